#include "belfry/trainers/core/accumulation.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/arithmetic.h"

namespace belfry {
namespace {

// `original`: of tower 0; empty for that one itself.
Variable make_gradient_sum(const Gradient& gradient, Variable original) {
  Graph& graph = gradient.value.graph();
  const Node& variable = gradient.variable.node();
  VariableOptions options{.dtype = gradient.value.dtype(),
                          .initializer = init::zeros(),
                          .trainable = false,
                          .collections = {std::string(kGradientSums)}};
  if (original) options.copy_of = &original.node();
  const ColocateWith with(gradient.variable.ref());
  return graph.create_variable(
      {cat(variable.origin().prefix, gradient.variable.logical_name(), "/GradientSum"),
       gradient.variable.shape(), std::move(options)},
      {});
}

// The sums of all towers, and what moves them.
class GradientSums {
 public:
  explicit GradientSums(const GradientTable& combined) : combined_(combined) {
    // Towers that share a variable share its gradient.
    const bool shared =
        combined.towers() > 1 && combined.at(1, 0).variable == combined.at(0, 0).variable;
    for (int t = 0; t < (shared ? 1 : combined.towers()); ++t) add_tower(t);
  }

  Node& begin() { return group(combined_.graph(), assigned_, "begin"); }
  Node& add() { return group(combined_.graph(), added_, "add"); }
  // With the gradients of the last batch.
  const std::vector<std::vector<Gradient>>& rows() const { return rows_; }

 private:
  void add_tower(int t) {
    Graph& graph = combined_.graph();
    const Node& first = combined_.at(t, 0).variable.node();
    const std::string prefix(first.origin().prefix);
    const DeviceScope on(graph, combined_.device(t));
    const ReplicaScope replica(graph, prefix, first.origin().replica);
    const NameScope names(graph, cat(prefix, kGradientSums, "/"));
    std::vector<Gradient>& row = rows_.emplace_back();
    for (int v = 0; v < combined_.variables(); ++v) {
      const Gradient& gradient = combined_.at(t, v);
      if (t == 0) originals_.emplace_back();
      if (!gradient.value) {
        row.push_back(gradient);
        continue;
      }
      Variable& original = originals_[static_cast<std::size_t>(v)];
      const Variable sum = make_gradient_sum(gradient, original);
      if (t == 0) original = sum;
      const ColocateWith with(gradient.variable.ref());
      assigned_.push_back(&assign(sum, gradient.value));
      added_.push_back(&assign_add(sum, gradient.value));
      row.push_back({belfry::add(Output(sum), gradient.value, "sum"), gradient.variable});
    }
  }

  const GradientTable& combined_;
  std::vector<Variable> originals_;
  std::vector<Node*> assigned_, added_;
  std::vector<std::vector<Gradient>> rows_;
};

}  // namespace

BatchSums sum_over_batches(const GradientTable& combined, int batches) {
  Graph& graph = combined.graph();
  GradientSums sums(combined);
  const NameScope names(graph, "accumulation");
  Node& begin = sums.begin();
  Node* const add = batches > 2 ? &sums.add() : nullptr;
  const DeviceScope on(graph, combined.device(0));
  return {.begin = &begin,
          .add = add,
          .of_all = GradientTable(sums.rows()),
          .share = constant(graph, 1.0 / batches, DType::kF32, "share")};
}

}  // namespace belfry
