// What the memory of a plan is for, kind by kind: for people who ask where it goes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/source_line.h"
#include "belfry/framework/graph/device_spec.h"

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
  std::vector<KindBytes> devices;
  std::vector<PlannedTensor> tensors;  // in no order
};

// Of the arenas, feeds and fetches of a plan, without its variables. Tensors of a step that are not
// needed at once share memory: a byte of an arena counts as what the largest tensor is that lies
// there. So kinds of a device, but for the feeds of a CPU, add up to its arena and fetches.
PlanMemory memory_of(const Plan& plan);

// What a session has planned: the memory of all steps that it keeps, and of its variables.
struct MemoryReport {
  struct Device {
    DeviceSpec device;  // full
    KindBytes bytes;
  };
  std::vector<Device> devices;
  std::vector<PlannedTensor> tensors;  // the largest first; `device` counts in `devices`
};

}  // namespace belfry
