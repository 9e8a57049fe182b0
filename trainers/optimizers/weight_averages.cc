#include "belfry/trainers/optimizers/weight_averages.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/weigh.h"

namespace belfry {
namespace {

// Under this scope the averages are found, and what has none itself.
std::string_view with_stand_ins(Graph& graph, std::span<const Variable> all) {
  for (const Variable& variable : all) {
    const Variable average = average_of(variable);
    graph.store_variable(cat(kWeightAverage, "/", variable.logical_name()),
                         average ? average : variable);
  }
  return kWeightAverage;
}

}  // namespace

void check_averages(const WeightAverages& averages) {
  require(averages.decay >= 0 && averages.decay < 1, "the decay of moving averages is ",
          averages.decay, "; it is at least 0 and less than 1");
}

Variable average_of(Variable variable) {
  return variable.node().graph().stored_variable(cat(variable.logical_name(), "/", kWeightAverage));
}

void begin_averages(Session& session) {
  for (const Variable weight : weights_of(session.graph()))
    if (const Variable average = average_of(weight)) session.write(average, session.read(weight));
}

Output average_step(Graph& graph, const WeightAverages& averages, Output updates, DType dtype) {
  const Output least = constant(graph, 1 - averages.decay, dtype, "average_step");
  if (!updates) return least;
  // 1 - (1 + n) / (10 + n), if that is more.
  const Output early = 9.0 / (cast(updates, dtype) + 10.0);
  return least + relu(early - least);
}

Node& move_average(Variable average, Variable variable, Output step, Output factor) {
  Output change = (average.read() - variable.read()) * step;
  if (factor) change = if_counted(change, cast(factor, change.dtype()));
  return assign_sub(average, change, "move_average");
}

AveragesScope::AveragesScope(Graph& graph, std::span<const Variable> all)
    : scope_(graph, with_stand_ins(graph, all),
             VariableScopeOptions{.auxiliary_name_scope = false}) {}

}  // namespace belfry
