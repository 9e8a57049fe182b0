// Finds the launch from which values that are not finite, or too large, come.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/run/output_watch.h"

namespace belfry {

// An output that is not finite, or beyond the limit, though what it was computed from is neither.
struct BadOutput {
  const Node* node = nullptr;  // whose output it is
  int output = 0;
  DeviceSpec device = {};
  TensorType type = {};                  // of the output, or of the part of a shard
  NotFinite value = {};                  // the first, in that part
  std::optional<std::int64_t> row = {};  // of the batch of all devices; none if it has no such rows
  std::vector<const Node*> storage = {};  // the variables, feeds and constants that it reads
  bool received = false;                  // it reads what other processes have sent
};

// What a run has computed. Outputs of messages from other processes are not looked at.
class OutputCheck final : public OutputWatch {
 public:
  // `limit`: the largest magnitude of a type that counts as finite; none: that of the type.
  explicit OutputCheck(std::function<double(DType)> limit = {}) : limit_(std::move(limit)) {}

  void begin(std::shared_ptr<const Plan> plan,
             const std::vector<std::unique_ptr<Device>>& devices) override;
  void look_at(LaunchIndex launch, int shard, std::span<void* const> outputs) override;

  // Whether a node holds or makes infinities on purpose, such as a constant mask.
  using OnPurpose = std::function<bool(const Node& node)>;

  // Where values of these tensors that are not finite come from: of the launches that computed such
  // values from finite ones, and from which such values lead to the tensors, the first in the order
  // of the plan. None if the tensors are finite. Infinities on purpose count as finite until they
  // become NaN; if nothing else leads to the tensors, their first launch is to blame. The plan must
  // not be fused (PrepareOptions::fuse).
  std::optional<BadOutput> origin_of(std::span<const Output> tensors,
                                     const OnPurpose& on_purpose = {}) const;

 private:
  struct Found {
    int output;
    NotFinite value;               // the first
    std::optional<NotFinite> nan;  // the first
  };

  std::optional<NotFinite> find_bad(DType dtype, std::span<const std::byte> elements) const;
  Value made(Value value) const;
  bool is_bad(Value value) const;
  bool has_nan(NodeIndex n) const;
  std::set<NodeIndex> infinite_on_purpose(const std::set<NodeIndex>& reached,
                                          const OnPurpose& on_purpose) const;
  BadOutput describe(NodeIndex n, bool by_nan) const;

  std::function<double(DType)> limit_;
  std::shared_ptr<const Plan> plan_;
  const std::vector<std::unique_ptr<Device>>* devices_ = nullptr;
  std::mutex finding_;  // GPUs may share a launch, each in a thread
  Indexed<PlanNode, std::vector<std::vector<Found>>> found_;  // by shard
};

}  // namespace belfry
