// Turns every tensor that crosses devices into a node. Another memory space needs a copy. Another
// device in the same memory needs none, but its launches wait for the tensor. The schedule orders
// such a node, the memory plan gives it room, and reports count its bytes. A tensor goes to a
// device once, however many nodes read it there.
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

class Transfers {
 public:
  Transfers(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    Indexed<PlanNode> before = std::exchange(plan_.nodes, {});
    moved_.resize(before.size());
    plan_.nodes.reserve(before.size());
    for (const NodeIndex n : before.indices()) {
      PlanNode& node = before[n];
      for (NodeIndex& earlier : node.after) earlier = moved_[earlier];
      if (node.feed() >= 0) count_feed(node);
      if (node.fetch() >= 0) node.devices = {on_host(node.device())};
      const std::vector<int> wanted_at = input_devices(node);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        Value& input = node.inputs[i];
        input.node = moved_[input.node];
        if (node.op != &kRead) input = on_device(input, wanted_at[i]);
      }
      // A read stays with its variable, where its version is known. Only its value crosses devices.
      const int wanted = node.device();
      if (node.op == &kRead && !node.reads_shared_storage)
        node.devices = {plan_.device(node.inputs[0])};
      if (const auto collective = collective_of(node)) count_collective(*collective);
      if (node.fused_update()) count_results(*node.fused_update());
      const Value kept{plan_.nodes.add(std::move(node)), 0};
      moved_[n] = plan_.node(kept.node).op == &kRead ? on_device(kept, wanted).node : kept.node;
    }
  }

 private:
  // The devices on which a node takes its inputs. A collective takes each where its output is, a
  // FusedUpdate where its members do.
  static std::vector<int> input_devices(const PlanNode& node) {
    std::vector<int> devices(node.inputs.size(), node.device());
    if (node.op->collective) devices = node.devices;
    if (!node.fused_update()) return devices;
    const std::vector<FusedReader> readers = readers_of(*node.fused_update());
    for (std::size_t i = 0; i < readers.size(); ++i) {
      const auto& [member, input] = readers[i];
      devices[i] = member->devices[member->op->collective ? input : 0];
    }
    return devices;
  }

  bool on_gpu(int device) const { return context_.device(device).on_gpu(); }

  // Fetches are in host memory: the first CPU has the fetches of GPUs.
  int on_host(int device) const { return on_gpu(device) ? 0 : device; }

  // Counts a feed of a GPU, which comes from the first CPU before the step.
  void count_feed(const PlanNode& node) {
    if (!on_gpu(node.device())) return;
    plan_.transfers.push_back(
        {plan_.feeds[at(node.feed())].where.name(), 0, node.device(), node.types[0].bytes()});
  }

  // Counts tensors that a member of a FusedUpdate gives to members on other devices.
  void count_results(const FusedUpdate& fused) {
    std::set<std::tuple<int, int, int>> sent;  // member, output, device
    for (const FusedUpdate::Member& member : fused.body)
      for (const FusedUpdate::Source source : member.inputs) {
        if (source.member == FusedUpdate::Source::kInput) continue;
        const FusedUpdate::Member& giver = fused.body[at(source.member)];
        const int from = giver.devices[at(source.index)], to = member.devices[0];
        if (from == to || !sent.emplace(source.member, source.index, to).second) continue;
        plan_.transfers.push_back({giver.node->output(at(source.index)).name(), from, to,
                                   giver.types[at(source.index)].bytes()});
      }
  }

  // Counts a collective as if every tensor went to its first device and the sum came back, whatever
  // the kernel does.
  void count_collective(const CollectivePart& collective) {
    const std::size_t participants = at(collective_size(*collective.node));
    std::set<std::pair<Value, int>> sent;
    for (std::size_t b = 0; b < collective.devices.size(); b += participants) {
      const int first = collective.devices[b];
      std::set<int> reached{first};
      for (std::size_t i = b; i < b + participants; ++i) {
        const int device = collective.devices[i];
        const std::int64_t bytes = collective.types[i].bytes();
        const Value input = collective.inputs[i];
        if (device == first) continue;
        if (sent.emplace(input, first).second)
          plan_.transfers.push_back({plan_.name(input), device, first, bytes});
        if (reached.insert(device).second)
          plan_.transfers.push_back({collective.node->output(i).name(), first, device, bytes});
      }
    }
  }

  Value on_device(Value value, int device) {
    const int source = plan_.device(value);
    if (source == device) return value;
    if (plan_.node(value.node).op == &kConst) return constant_in_space_of(device, value);
    const auto [made, fresh] = transfers_.emplace(std::pair(value, device), value);
    if (!fresh) return made->second;
    plan_.transfers.push_back({plan_.name(value), source, device, plan_.type(value).bytes()});
    if (value.shard != Value::kOwn) {  // hosts read it where it is
      require(space_of(device) == space_of(source), plan_.name(value), " lies in shards on ",
              context_.device(source).spec, ", and ", context_.device(device).spec,
              " cannot combine them; use one shard per device, or CPUs alone");
      return value;
    }
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

  // A node for the same constant in the memory space of `device`.
  Value constant_in_space_of(int device, Value value) {
    const int space = space_of(device);
    if (space_of(plan_.device(value)) == space) return value;
    const auto [made, fresh] = copies_.emplace(std::pair(value, space), Value{});
    if (!fresh) return made->second;
    PlanNode same = plan_.node(value.node);
    same.devices = {device};
    return made->second = {plan_.nodes.add(std::move(same)), 0};
  }

  // Tensors that a GPU reads from a CPU must be pinned. Feeds and constants are not, so they are
  // copied into an arena.
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
    return {plan_.nodes.add({&op, plan_.node(value.node).node, {value}, {}, {type}, {device}}), 0};
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  Indexed<PlanNode, NodeIndex> moved_;
  std::map<std::pair<Value, int>, Value> transfers_;  // by device
  std::map<std::pair<Value, int>, Value> copies_;     // by memory space
  std::map<Value, Value> pinned_;                     // in arenas of the host
};

}  // namespace

void add_transfers(PlanGraph& plan, const PlanContext& context) { Transfers(plan, context).run(); }

}  // namespace belfry
