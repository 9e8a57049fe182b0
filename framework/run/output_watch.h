// Looks at what launches compute, while a step runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

// For RunOptions::watch.
class OutputWatch {
 public:
  virtual ~OutputWatch() = default;
  // For runs: at the beginning, and after each launch, or each shard of it. Different threads may
  // look at different launches and shards at once.
  virtual void begin(std::shared_ptr<const Plan> plan,
                     const std::vector<std::unique_ptr<Device>>& devices) = 0;
  virtual void look_at(LaunchIndex launch, int shard, std::span<void* const> outputs) = 0;
};

// The types of a node's outputs, or of the parts that a shard computes.
std::vector<TensorType> types_of_shard(const Plan& plan, const PlanNode& node, int shard);

// Calls f(elements, as bytes) with a tensor, which may lie on a GPU, where its rows may be padded
// (PlanGraph::pitch); not for a null pointer.
void with_bytes_on_host(const TensorType& type, std::int64_t pitch, const void* memory,
                        const Device& device,
                        const std::function<void(std::span<const std::byte>)>& f);

// Hashes each output of what towers compute. Two runs of a step, by different processes, are
// compared by these: the first op that differs is to blame.
class OutputHashes final : public OutputWatch {
 public:
  // The check hash of all shards of an output, by "MatMul 'fc0/MatMul'", with ":1" for output 1.
  using Named = std::vector<std::pair<std::string, std::uint64_t>>;

  void begin(std::shared_ptr<const Plan> plan,
             const std::vector<std::unique_ptr<Device>>& devices) override;
  void look_at(LaunchIndex launch, int shard, std::span<void* const> outputs) override;

  // Of the last run, by tower of this process (NodeOrigin::replica), in the order of the plan. What
  // no tower has made is left out, and so are copies, fetches and packed weights.
  std::map<int, Named> by_tower() const;

 private:
  std::shared_ptr<const Plan> plan_;
  const std::vector<std::unique_ptr<Device>>* devices_ = nullptr;
  // By shard and output.
  Indexed<PlanNode, std::vector<std::vector<std::uint64_t>>> hashes_;
};

}  // namespace belfry
