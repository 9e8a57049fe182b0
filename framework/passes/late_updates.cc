// Updates on the host that nobody in the step waits for, as those of batch norm's averages by
// moments of GPUs, are taken out of it: what they read of GPUs is copied to memory that is kept, in
// one launch per memory space, and they are done beside the next run of the step.
#include <algorithm>
#include <map>
#include <utility>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/copy_to_host.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Of a tensor. A larger one goes to the host while the GPU computes, by a copy of its own.
constexpr std::int64_t kMostBytes = 1 << 20;

class LateUpdates {
 public:
  LateUpdates(Plan& plan, const PlanContext& context)
      : plan_(plan),
        context_(context),
        users_(plan.nodes.size()),
        written_(plan.nodes.size()),
        late_(plan.nodes.size()) {}

  void run() {
    find_users();
    find_late();
    if (std::ranges::count(late_, true) == 0) return;
    const int before = first_that_waits();
    part();
    reorder(before, keep_inputs());
  }

 private:
  const PlanNode& node(int n) const { return plan_.node(n); }
  bool on_gpu(int device) const { return context_.device(device).on_gpu(); }
  // Brings a tensor from a GPU to the host.
  bool comes_from_gpu(const PlanNode& copy) const {
    return copy.op == &kCopy && copy.fetch < 0 && !on_gpu(copy.device()) &&
           on_gpu(plan_.device(copy.inputs[0]));
  }

  void find_users() {
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      for (const Value& input : plan_.nodes[n].inputs)
        users_[at(input.node)].push_back(static_cast<int>(n));
      for (int i = 0; i < plan_.nodes[n].writes(); ++i)
        written_[at(plan_.nodes[n].inputs[at(i)].node)] = true;
    }
  }

  // Those of the host that only serve to write variables of the host which nothing else touches,
  // and such a write by a tensor of a GPU.
  void find_late() {
    for (std::size_t n = 0; n < late_.size(); ++n) late_[n] = is_plain(plan_.nodes[n]);
    bool changed = true;
    const auto visit = [&](std::size_t n) {
      if (!late_[n] || may_be_late(n)) return;
      late_[n] = false;
      changed = true;
    };
    find_moved_by_gpus();
    while (std::exchange(changed, false))
      for (std::size_t n = late_.size(); n-- > 0;) visit(n);
  }

  // A late launch may not ask for the number of the step, nor for what belongs to a run.
  bool is_plain(const PlanNode& n) const {
    return !n.op->storage && !n.op->random && n.feed < 0 && n.fetch < 0 && !comes_from_gpu(n) &&
           std::ranges::none_of(n.devices, [&](int device) { return on_gpu(device); });
  }

  // By what may be late. What is late in the end has no other inputs than what is, too.
  void find_moved_by_gpus() {
    moved_by_gpus_.assign(late_.size(), false);
    for (std::size_t n = 0; n < late_.size(); ++n)
      if (late_[n])
        moved_by_gpus_[n] = std::ranges::any_of(plan_.nodes[n].inputs, [&](const Value& input) {
          return moved_by_gpus_[at(input.node)] || comes_from_gpu(node(input.node));
        });
  }

  bool may_be_late(std::size_t n) const {
    if (users_[n].empty() && !(plan_.nodes[n].writes() > 0 && moved_by_gpus_[n])) return false;
    return all_late(users_[n]) &&
           std::ranges::all_of(plan_.nodes[n].inputs, [&](Value input) { return serves(input); });
  }

  bool all_late(const std::vector<int>& nodes) const {
    return std::ranges::all_of(nodes, [&](int n) { return late_[at(n)]; });
  }

  // What there will still be when the late launches are done.
  bool serves(Value input) const {
    const PlanNode& from = node(input.node);
    if (late_[at(input.node)] || from.op == &kConst) return true;
    if (from.is_variable())
      return !on_gpu(from.device()) &&
             (!written_[at(input.node)] || all_late(users_[at(input.node)]));
    return comes_from_gpu(from) && from.types[0].bytes() <= kMostBytes &&
           node(root_of(plan_, from.inputs[0]).node).launches();
  }

  // The first launch of a host, without those that are late, that waits for a GPU.
  int first_that_waits() const {
    std::vector<int> of_gpus;
    const auto is_of_gpu = [&](const PlanNode& n) {
      return n.launches() && (on_gpu(n.device()) || comes_from_gpu(n));
    };
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (is_of_gpu(plan_.nodes[n])) of_gpus.push_back(static_cast<int>(n));
    const std::vector<char> waits = reached_from(consumers_of(plan_), of_gpus);
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (waits[n] && !late_[n] && plan_.nodes[n].launches() && !is_of_gpu(plan_.nodes[n]))
        return static_cast<int>(n);
    return static_cast<int>(plan_.nodes.size());
  }

  // What is late and what is not see nothing of each other: neither waits.
  void part() {
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      plan_.nodes[n].late = late_[n] && plan_.nodes[n].launches();
      std::erase_if(plan_.nodes[n].after,
                    [&](int before) { return late_[at(before)] != late_[n]; });
    }
  }

  // Late launches read what is kept. Appends it, and the copies that fill it, which are returned.
  std::vector<int> keep_inputs() {
    std::map<Value, int> kept;                  // by tensor of a GPU
    std::map<int, std::vector<Value>> sources;  // by memory space
    for (std::size_t n = 0; n < late_.size(); ++n)
      for (std::size_t i = 0; late_[n] && i < plan_.nodes[n].inputs.size(); ++i) {
        const PlanNode& copy = node(plan_.nodes[n].inputs[i].node);
        if (!comes_from_gpu(copy)) continue;
        const Value source = copy.inputs[0];
        const auto [found, fresh] = kept.emplace(source, static_cast<int>(plan_.nodes.size()));
        plan_.nodes[n].inputs[i] = {found->second, 0};
        if (!fresh) continue;
        sources[context_.device(plan_.device(source)).memory_space].push_back(source);
        PlanNode memory{&kHeld, copy.node, {}, {}, copy.types, copy.devices};
        plan_.nodes.push_back(std::move(memory));
      }
    const auto consumers = consumers_of(plan_);
    std::vector<int> copies;
    for (const auto& [space, tensors] : sources) {
      const Value first = tensors[0];
      PlanNode copy{&kCopyToHost, node(first.node).node, {}, {}, {}, {plan_.device(first)}};
      for (const Value& tensor : tensors) {
        const Value memory{kept.at(tensor), 0};
        copy.inputs.push_back(memory);
        // Before it is overwritten.
        const std::vector<int> readers = users_of(plan_, consumers, memory);
        copy.after.insert(copy.after.end(), readers.begin(), readers.end());
      }
      copy.inputs.insert(copy.inputs.end(), tensors.begin(), tensors.end());
      copies.push_back(static_cast<int>(plan_.nodes.size()));
      plan_.nodes.push_back(std::move(copy));
    }
    return copies;
  }

  // Late launches stand before what waits for GPUs, so that they are done while GPUs work; the
  // copies, which wait for them, behind all else.
  void reorder(int before, const std::vector<int>& copies) {
    const auto consumers = consumers_of(plan_);
    std::vector<char> placed(plan_.nodes.size());
    std::vector<int> order;
    const auto place = [&](int n) {
      if (!std::exchange(placed[at(n)], true)) order.push_back(n);
    };
    const auto place_others = [&](std::size_t first, std::size_t last) {
      for (std::size_t n = first; n < last; ++n) {
        const bool replaced = comes_from_gpu(plan_.nodes[n]) && consumers[n].empty();
        if (!late_[n] && !replaced) place(static_cast<int>(n));
      }
    };
    place_others(0, at(before));
    for (std::size_t n = 0; n < late_.size(); ++n) {
      if (!late_[n]) continue;
      for (const Value& input : plan_.nodes[n].inputs)
        if (node(input.node).op->storage) place(input.node);
      place(static_cast<int>(n));
    }
    place_others(at(before), late_.size());
    for (const int copy : copies) place(copy);
    keep_nodes(plan_, order);
  }

  Plan& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> users_;  // of each node's outputs
  std::vector<char> written_;            // variables
  std::vector<char> late_;
  std::vector<char> moved_by_gpus_;
};

}  // namespace

void make_updates_late(Plan& plan, const PlanContext& context) {
  const auto on_gpu = [&](const PlanNode& node) { return context.device(node.device()).on_gpu(); };
  if (plan.writes && std::ranges::any_of(plan.nodes, on_gpu)) LateUpdates(plan, context).run();
}

}  // namespace belfry
