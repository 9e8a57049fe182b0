#include "belfry/trainers/core/accumulation.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

// `original`: of tower 0; empty for that one itself. `part`: what the gradient is of; null: the
// whole variable.
Variable make_gradient_sum(const Gradient& gradient, Variable original, const VariablePart* part) {
  Graph& graph = gradient.value.graph();
  const Node& variable = gradient.variable.node();
  VariableOptions options{
      .dtype = gradient.value.dtype(),
      .initializer = init::zeros(),
      .trainable = false,
      .collections = {std::string(kGradientSums), std::string(kStateVariables)}};
  if (original) options.copy_of = &original.node();
  if (part) options.part = *part;
  const ColocateWith with(gradient.variable.ref());
  return graph.create_variable(
      {cat(variable.origin().prefix, gradient.variable.logical_name(), "/GradientSum"),
       part ? gradient.value.shape() : gradient.variable.shape(), std::move(options)},
      {});
}

// The sums of all towers, and what moves them.
class GradientSums {
 public:
  GradientSums(const GradientRows& combined, std::span<const VariablePart> parts)
      : graph_(combined[0][0].value.graph()), parts_(parts) {
    for (const std::vector<Gradient>& tower : combined) add_tower(tower);
  }

  // 1 / 0 is infinite, and stays so in a sum.
  Unscaling guard(Output applied, int batches) {
    if (!applied) return {.factor = constant(graph_, 1.0 / batches, DType::kF32, "share")};
    const Output bad = 1.0 / cast(applied, DType::kF32);
    const Variable sum = graph_.create_variable(
        {cat(kGradientSums, "/bad"),
         {},
         {.initializer = init::zeros(),
          .trainable = false,
          .collections = {std::string(kGradientSums), std::string(kStateVariables)}}},
        {});
    assigned_.push_back(&assign(sum, bad));
    added_.push_back(&assign_add(sum, bad, "sum"));
    const Output all = added_.back()->output();
    return unscale(constant(graph_, batches, DType::kF32, "batches"), {{all_finite({{all}})}});
  }

  Node& begin() { return group(graph_, assigned_, "begin"); }
  Node& add() { return group(graph_, added_, "add"); }
  // With the gradients of the last batch.
  const GradientRows& rows() const { return rows_; }

 private:
  void add_tower(const std::vector<Gradient>& gradients) {
    const Node& first = gradients[0].variable.node();
    const std::string prefix(first.origin().prefix);
    const ReplicaScope replica(graph_, prefix, first.origin().replica);
    const NameScope names(graph_, cat(prefix, kGradientSums, "/"));
    originals_.resize(gradients.size());
    std::vector<Gradient>& row = rows_.emplace_back();
    for (std::size_t v = 0; v < gradients.size(); ++v) {
      const Gradient& gradient = gradients[v];
      Variable& original = originals_[v];
      const Variable sum =
          make_gradient_sum(gradient, original, parts_.empty() ? nullptr : &parts_[v]);
      if (!original) original = sum;
      const ColocateWith with(gradient.variable.ref());
      assigned_.push_back(&assign(sum, gradient.value));
      Node& added = assign_add(sum, gradient.value, "sum");
      added_.push_back(&added);
      row.push_back({added.output(), gradient.variable});
    }
  }

  Graph& graph_;
  const std::span<const VariablePart> parts_;
  std::vector<Variable> originals_;  // of tower 0
  std::vector<Node*> assigned_, added_;
  GradientRows rows_;
};

}  // namespace

BatchSums sum_over_batches(const GradientRows& combined, int batches, Output applied,
                           std::span<const VariablePart> parts) {
  Graph& graph = combined[0][0].value.graph();
  GradientSums sums(combined, parts);
  const NameScope names(graph, "accumulation");
  const Unscaling unscaling = sums.guard(applied, batches);
  Node& begin = sums.begin();
  Node* const add = batches > 2 ? &sums.add() : nullptr;
  return {.nodes = {.begin = &begin, .add = add}, .of_all = sums.rows(), .unscaling = unscaling};
}

BatchSums sum_over_batches(const GradientTable& combined, int batches, Output applied) {
  const DeviceScope on(combined.graph(), combined.device(0));
  GradientRows distinct = combined.rows();
  if (combined.shares_variables()) distinct.resize(1);
  return sum_over_batches(distinct, batches, applied);
}

}  // namespace belfry
