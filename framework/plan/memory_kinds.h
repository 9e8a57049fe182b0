// What the memory of a plan is for, kind by kind: for people who ask where it goes.
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
  kWeight,        // trainable variables
  kOptimizer,     // other variables: slots, counters, moving averages
  kGradient,      // of variables: from where they are made to the update that takes them
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
  SourceLine site;  // the line that it is from
  MemoryKind kind;
  int device;
  std::int64_t bytes;  // of all shards
};

struct PlanMemory {
  // Per device: of its arena; and of fetches and what is kept between runs.
  std::vector<KindBytes> arenas, others;
  // Tensors of the caller: a batch. Those for GPUs count on the first CPU.
  struct Feed {
    Output where;
    PlannedTensor tensor;
  };
  std::vector<Feed> feeds;
  std::vector<PlannedTensor> tensors;  // all others, in no order
};

// Of a plan, without its variables. Tensors of a step that are not needed at once share memory: a
// byte of an arena counts as what the largest tensor is that lies there. So the kinds of `arenas`
// and `others` add up to arena_bytes, and to kept_bytes and fetch_bytes.
PlanMemory memory_of(const Plan& plan);

// What a session has planned: the memory of all steps that it keeps, and of its variables. Of an
// arena that steps share, the kinds and tensors are those of the step that needs the largest one. A
// placeholder counts once, with its largest feed.
struct MemoryReport {
  struct Device {
    DeviceSpec device;  // full
    KindBytes bytes;
    std::int64_t fed_bytes = 0;  // of these, feeds of the caller: one batch
  };
  std::vector<Device> devices;
  std::vector<PlannedTensor> tensors;  // the largest first; `device` counts in `devices`
};

}  // namespace belfry
