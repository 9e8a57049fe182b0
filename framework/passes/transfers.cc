#include <map>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/state.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class Transfers {
 public:
  explicit Transfers(Plan& plan) : plan_(plan) {}

  void run() {
    std::vector<PlanNode> before = std::move(plan_.nodes);
    plan_.nodes.clear();
    moved_.resize(before.size());
    for (std::size_t n = 0; n < before.size(); ++n) {
      PlanNode& node = before[n];
      for (int& earlier : node.after) earlier = moved_[static_cast<std::size_t>(earlier)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        Value& input = node.inputs[i];
        input.node = moved_[static_cast<std::size_t>(input.node)];
        input = on_device(input, wanted_device(node, i));
      }
      // A read stays with its variable, where its version is known; what travels is its value.
      const int wanted = node.device();
      if (node.op == &kRead) node.devices = {source_device(node.inputs[0])};
      plan_.nodes.push_back(std::move(node));
      const Value kept{static_cast<int>(plan_.nodes.size()) - 1, 0};
      moved_[n] = plan_.nodes.back().op == &kRead ? on_device(kept, wanted).node : kept.node;
    }
  }

 private:
  // A collective reads each input where it is; constants are wherever they are needed.
  int wanted_device(const PlanNode& node, std::size_t input) const {
    const bool stays =
        node.op->collective || node.op == &kRead || from(node.inputs[input]).op == &kConstant;
    return stays ? source_device(node.inputs[input]) : node.device();
  }

  int source_device(Value value) const {
    return from(value).devices[static_cast<std::size_t>(value.index)];
  }

  const PlanNode& from(Value value) const {
    return plan_.nodes[static_cast<std::size_t>(value.node)];
  }

  Value on_device(Value value, int device) {
    const int source = source_device(value);
    if (source == device) return value;
    const auto [made, fresh] = transfers_.emplace(std::pair(value, device), Value{});
    if (!fresh) return made->second;
    const TensorType type = from(value).types[static_cast<std::size_t>(value.index)];
    PlanNode transfer{&kTransfer, from(value).node, {value}, {}, {type}, {device}};
    made->second = {static_cast<int>(plan_.nodes.size()), 0};
    plan_.nodes.push_back(std::move(transfer));
    plan_.transfers.push_back({plan_.nodes.back().name(), source, device, type.bytes()});
    return made->second;
  }

  Plan& plan_;
  std::vector<int> moved_;
  std::map<std::pair<Value, int>, Value> transfers_;
};

}  // namespace

void add_transfers(Plan& plan) { Transfers(plan).run(); }

}  // namespace belfry
