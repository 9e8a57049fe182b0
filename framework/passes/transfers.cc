#include <algorithm>
#include <map>
#include <set>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class Transfers {
 public:
  Transfers(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    std::vector<PlanNode> before = std::move(plan_.nodes);
    plan_.nodes.clear();
    moved_.resize(before.size());
    for (std::size_t n = 0; n < before.size(); ++n) {
      PlanNode& node = before[n];
      for (int& earlier : node.after) earlier = moved_[at(earlier)];
      if (node.feed() >= 0) count_feed(node);
      if (node.fetch() >= 0) node.devices = {on_host(node.device())};
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        Value& input = node.inputs[i];
        input.node = moved_[at(input.node)];
        input = on_device(input, wanted_device(node, i));
      }
      // A read stays with its variable, where its version is known; what travels is its value.
      const int wanted = node.device();
      if (node.op == &kRead && !node.shared) node.devices = {plan_.device(node.inputs[0])};
      if (node.op->collective) count_collective(node, 0, node.types, node.devices);
      if (const Fusion* fused = node.fusion(); fused && fused->op) {
        count_collective(node, fused->first_input, fused->types, fused->devices);
        count_results(node);
      }
      plan_.nodes.push_back(std::move(node));
      const Value kept{static_cast<int>(plan_.nodes.size()) - 1, 0};
      moved_[n] = plan_.nodes.back().op == &kRead ? on_device(kept, wanted).node : kept.node;
    }
  }

 private:
  // A collective reads each input where its output is.
  int wanted_device(const PlanNode& node, std::size_t input) const {
    const int there = plan_.device(node.inputs[input]);
    if (node.op == &kRead) return there;
    if (node.fusion()) return update_device(node, static_cast<int>(input), there);
    return node.participants() > 0 ? node.devices[input] : node.device();
  }

  bool on_gpu(int device) const { return context_.device(device).on_gpu(); }

  // Fetches are in memory of the host: the first CPU has those of GPUs.
  int on_host(int device) const { return on_gpu(device) ? 0 : device; }

  // What a GPU is fed with is brought there from the first CPU before the step.
  void count_feed(const PlanNode& node) {
    if (!on_gpu(node.device())) return;
    plan_.transfers.push_back(
        {plan_.feeds[at(node.feed())].where.name(), 0, node.device(), node.types[0].bytes()});
  }

  // Of the update in a fusion that takes an input besides its sum, or a gradient that is not
  // summed; `otherwise` if none does.
  static int update_device(const PlanNode& node, int input, int otherwise) {
    const int summed = input - node.fusion()->first_input;
    if (summed < std::ssize(node.fusion()->types))
      return summed < 0 || node.fusion()->op ? otherwise : node.fusion()->devices[at(summed)];
    for (const Fusion::Update& update : node.fusion()->updates)
      if (std::ranges::find(update.inputs, input) != update.inputs.end())
        return node.devices[at(update.first_output)];
    return otherwise;
  }

  // Of the sums in a fusion to updates on other devices than theirs.
  void count_results(const PlanNode& node) {
    std::set<std::pair<int, int>> sent;
    for (const Fusion::Update& update : node.fusion()->updates) {
      const int from = node.fusion()->devices[at(update.result)];
      const int to = node.devices[at(update.first_output)];
      if (from == to || !sent.emplace(update.result, to).second) continue;
      plan_.transfers.push_back({node.node->output(at(update.result)).name(), from, to,
                                 node.fusion()->types[at(update.result)].bytes()});
    }
  }

  // As if every tensor went to its first device and the sum came back, whatever the kernel does.
  // Its inputs are those of the node from `from` on.
  void count_collective(const PlanNode& node, int from, const std::vector<TensorType>& types,
                        const std::vector<int>& devices) {
    const std::size_t participants = at(node.participants());
    std::set<std::pair<Value, int>> sent;
    for (std::size_t b = 0; b < devices.size(); b += participants) {
      const int first = devices[b];
      std::set<int> reached{first};
      for (std::size_t i = b; i < b + participants; ++i) {
        const int device = devices[i];
        const std::int64_t bytes = types[i].bytes();
        const Value input = node.inputs[at(from) + i];
        if (device == first) continue;
        if (sent.emplace(input, first).second)
          plan_.transfers.push_back({plan_.name(input), device, first, bytes});
        if (reached.insert(device).second)
          plan_.transfers.push_back({node.node->output(i).name(), first, device, bytes});
      }
    }
  }

  Value on_device(Value value, int device) {
    const int source = plan_.device(value);
    if (source == device) return value;
    if (plan_.node(value.node).op == &kConst) return constant_in_space_of(device, value);
    const auto [made, fresh] = transfers_.emplace(std::pair(value, device), Value{});
    if (!fresh) return made->second;
    plan_.transfers.push_back({plan_.name(value), source, device, plan_.type(value).bytes()});
    const Value near = in_space_of(device, value);
    made->second = plan_.device(near) == device ? near : append(kTransfer, near, device);
    return made->second;
  }

  // The value, or its copy in the memory space of `device`: made there at first use.
  Value in_space_of(int device, Value value) {
    const int space = space_of(device);
    if (space_of(plan_.device(value)) == space) return value;
    const auto [made, fresh] = copies_.emplace(std::pair(value, space), Value{});
    if (!fresh) return made->second;
    const Device &from = context_.device(plan_.device(value)), &to = context_.device(device);
    const bool by_host = from.on_gpu() && to.on_gpu() && !to.reaches(from);
    const Value near = by_host ? in_space_of(0, value) : in_arena(value);
    return made->second = append(kCopy, near, device);
  }

  // The same constant, in the memory space of `device`.
  Value constant_in_space_of(int device, Value value) {
    const int space = space_of(device);
    if (space_of(plan_.device(value)) == space) return value;
    const auto [made, fresh] = copies_.emplace(std::pair(value, space), Value{});
    if (!fresh) return made->second;
    PlanNode same = plan_.node(value.node);
    same.devices = {device};
    plan_.nodes.push_back(std::move(same));
    return made->second = {static_cast<int>(plan_.nodes.size()) - 1, 0};
  }

  // What goes from a CPU to a GPU, in an arena: feeds and constants there are not pinned.
  Value in_arena(Value value) {
    const PlanNode& root = plan_.node(root_of(plan_, value).node);
    const int device = plan_.device(value);
    if (space_of(device) > 0 || (root.feed() < 0 && root.op != &kConst)) return value;
    const auto [made, fresh] = pinned_.emplace(value, Value{});
    if (fresh) made->second = append(kCopy, value, device);
    return made->second;
  }

  int space_of(int device) const { return context_.device(device).memory_space; }

  Value append(const Op& op, Value value, int device) {
    const TensorType type = plan_.type(value);
    plan_.nodes.push_back({&op, plan_.node(value.node).node, {value}, {}, {type}, {device}});
    return {static_cast<int>(plan_.nodes.size()) - 1, 0};
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<int> moved_;
  std::map<std::pair<Value, int>, Value> transfers_;  // by device
  std::map<std::pair<Value, int>, Value> copies_;     // by memory space
  std::map<Value, Value> pinned_;                     // in arenas of the host
};

}  // namespace

void add_transfers(PlanGraph& plan, const PlanContext& context) { Transfers(plan, context).run(); }

}  // namespace belfry
