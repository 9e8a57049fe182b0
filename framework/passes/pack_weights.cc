// Packs weights once per step into the form that a library wants. Otherwise the kernels of every
// shard and tower, forward and backward, would each copy the weights before using them. Recomputed
// nodes of the backward pass get their weights packed again, because packed weights would take
// memory until then.
#include "belfry/framework/core_ops/pack_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

constexpr std::size_t kWeights = 1;  // the input of all ops that have a packed form

class WeightPacker {
 public:
  WeightPacker(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), recomputed_(recomputed_nodes(plan)) {}

  void run() {
    for (const NodeIndex n : plan_.nodes.indices()) consider(n);
    std::vector<const Use*> packed;
    for (const auto& [key, use] : uses_)
      if (use.runs > 1) packed.push_back(&use);
    if (packed.empty()) return;
    // The new nodes come after all others, so sort_nodes takes one only when no other node can run
    // without it.
    std::ranges::stable_sort(packed, {}, [](const Use* use) { return use->nodes[0]; });
    for (const Use* const use : packed) pack(*use);
    sort_nodes(plan_);
  }

 private:
  struct Use {
    std::shared_ptr<const PackedForm> form;
    std::vector<NodeIndex> nodes;
    int runs = 0;
  };

  void consider(NodeIndex n) {
    const PlanNode& node = plan_.node(n);
    const Device& device = context_.device(node.device());
    const bool plain = std::holds_alternative<std::monostate>(node.role);
    if (!node.op->packed_form || !plain || device.on_gpu() || device.declared) return;
    const Value weights = source(node.inputs[kWeights]);
    if (weights.shard != Value::kOwn || plan_.division(weights)) return;
    std::shared_ptr<const PackedForm> form = form_of(node);
    if (!form) return;
    Use& use = uses_[{weights, device.memory_space, form->layout, recomputed_.contains(node.node)}];
    use.form = std::move(form);
    use.nodes.push_back(n);
    use.runs += plan_.runs(node);
  }

  // Follows aliases, because reads of one version of a variable are one tensor, whichever tower
  // makes them.
  Value source(Value value) const {
    for (;;) {
      const PlanNode& node = plan_.node(value.node);
      if (!node.op->alias || !node.after.empty() || node.sharding.divides()) return value;
      value = node.inputs[0];
    }
  }

  // Null if shards of different sizes want different forms.
  std::shared_ptr<const PackedForm> form_of(const PlanNode& node) const {
    if (!node.sharding.divides()) return ask(node, plan_.input_types(node), node.types);
    const std::int64_t samples = plan_.batches[at(node.device())].samples;
    const std::int64_t fewest = samples / plan_.shards_per_device;
    const auto of_shard = [&](std::int64_t size) {
      return ask(node, plan_.input_types(node, size), plan_.output_types(node, size));
    };
    if (fewest == 0) return nullptr;
    std::shared_ptr<const PackedForm> form = of_shard(fewest);
    if (!form || samples % plan_.shards_per_device == 0) return form;
    const std::shared_ptr<const PackedForm> larger = of_shard(fewest + 1);
    return larger && larger->layout == form->layout ? form : nullptr;
  }

  static std::shared_ptr<const PackedForm> ask(const PlanNode& node,
                                               const std::vector<TensorType>& inputs,
                                               const std::vector<TensorType>& outputs) {
    KernelPlan kernel(*node.node, inputs, outputs, whole_range(*node.op, 0, inputs, outputs));
    return node.op->packed_form(kernel);
  }

  void pack(const Use& use) {
    const Value weights = plan_.node(use.nodes[0]).inputs[kWeights];
    const std::int64_t elements = use.form->bytes / static_cast<std::int64_t>(sizeof(float));
    PlanNode node{&kPackWeights, plan_.node(weights.node).node, {weights}, {}, {}, {}};
    node.types = {{{elements}, DType::kF32}};
    node.devices = {plan_.node(use.nodes[0]).device()};
    node.role = use.form;
    const Value packed{plan_.nodes.add(std::move(node)), 0};
    for (const NodeIndex n : use.nodes) plan_.nodes[n].inputs[kWeights] = packed;
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  const std::set<const Node*> recomputed_;
  std::map<std::tuple<Value, int, std::string, bool>, Use> uses_;
};

}  // namespace

void pack_weights(PlanGraph& plan, const PlanContext& context) {
  if (!context.options.reference_kernels) WeightPacker(plan, context).run();
}

}  // namespace belfry
