// How much memory of a plan is used for which purpose, for people.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/source_line.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

struct Plan;

enum class MemoryKind : std::uint8_t {
  kWeight,        // variables of the model, trained or not
  kOptimizer,     // other variables: slots, counters, moving averages of weights
  kGradient,      // of variables, from their computation to their update
  kShardPartial,  // partial sums, one per shard
  kActivation,    // all other tensors, gradients of activations among them
  kWorkspace,     // scratch memory of kernels
  kFeed,          // one batch
  kFetch,
  kUnused,  // gaps between tensors, and constants of GPUs
};
inline constexpr std::size_t kMemoryKinds = 9;

// "shard_partials".
std::string_view name_of(MemoryKind kind);

// Bytes by kind.
class KindBytes {
 public:
  std::int64_t& operator[](MemoryKind kind) { return bytes_[static_cast<std::size_t>(kind)]; }
  std::int64_t operator[](MemoryKind kind) const { return bytes_[static_cast<std::size_t>(kind)]; }
  std::int64_t total() const;
  void add(const KindBytes& other);

 private:
  std::array<std::int64_t, kMemoryKinds> bytes_{};
};

struct PlannedTensor {
  std::string name;
  SourceLine site;  // the line of the user's program that built it
  MemoryKind kind;
  int device;
  std::int64_t bytes;  // of all shards
};

struct PlanMemory {
  // Per device: bytes of its arena; bytes of fetches and of memory kept between runs.
  std::vector<KindBytes> arenas, others;
  // A tensor of the caller: a batch. Feeds for GPUs count on the first CPU.
  struct Feed {
    Output where;
    PlannedTensor tensor;
  };
  std::vector<Feed> feeds;
  std::vector<PlannedTensor> tensors;  // all others, in no order
};

// Counts the memory of a plan, without its variables. Tensors of a step share memory if they are
// not needed at once, so a byte of an arena counts for the largest tensor that lies there. The
// kinds of `arenas` add up to arena_bytes, and those of `others` to kept_bytes and fetch_bytes.
PlanMemory memory_of(const Plan& plan);

// The planned memory of a session: of all steps that it keeps, and of its variables. If steps share
// an arena, the arena's kinds and tensors are those of the step that needs the largest one. A
// placeholder counts once, with its largest feed.
struct MemoryReport {
  struct Device {
    DeviceSpec device;  // full
    KindBytes bytes;
    std::int64_t fed_bytes = 0;  // part of `bytes`: feeds of the caller, one batch
  };
  std::vector<Device> devices;
  std::vector<PlannedTensor> tensors;  // the largest first; `device` is an index into `devices`
};

}  // namespace belfry
