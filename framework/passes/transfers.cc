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
      for (int& earlier : node.after) earlier = moved_[at(earlier)];
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        Value& input = node.inputs[i];
        input.node = moved_[at(input.node)];
        input = on_device(input, wanted_device(node, i));
      }
      // A read stays with its variable, where its version is known; what travels is its value.
      const int wanted = node.device();
      if (node.op == &kRead) node.devices = {plan_.device(node.inputs[0])};
      if (node.op->collective) count_collective(node);
      plan_.nodes.push_back(std::move(node));
      const Value kept{static_cast<int>(plan_.nodes.size()) - 1, 0};
      moved_[n] = plan_.nodes.back().op == &kRead ? on_device(kept, wanted).node : kept.node;
    }
  }

 private:
  // A collective reads each input where it is; constants are wherever they are needed.
  int wanted_device(const PlanNode& node, std::size_t input) const {
    const bool stays = node.op->collective || node.op == &kRead ||
                       plan_.node(node.inputs[input].node).op == &kConstant;
    return stays ? plan_.device(node.inputs[input]) : node.device();
  }

  // As if every tensor went to the first device and the sum came back, whatever the kernel does.
  void count_collective(const PlanNode& node) {
    for (std::size_t i = 1; i < node.devices.size(); ++i) {
      const int first = node.devices[0], device = node.devices[i];
      const std::string name(node.node->name());
      plan_.transfers.push_back({name, device, first, node.types[i].bytes()});
      plan_.transfers.push_back({name, first, device, node.types[i].bytes()});
    }
  }

  Value on_device(Value value, int device) {
    const int source = plan_.device(value);
    if (source == device) return value;
    const auto [made, fresh] = transfers_.emplace(std::pair(value, device), Value{});
    if (!fresh) return made->second;
    const TensorType type = plan_.type(value);
    PlanNode transfer{&kTransfer, plan_.node(value.node).node, {value}, {}, {type}, {device}};
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
