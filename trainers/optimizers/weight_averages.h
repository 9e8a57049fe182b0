// Moving averages of what is trained: smoother weights to evaluate and predict with.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// After each update: average -= (average - variable) * (1 - decay), from the variable's first value
// on. An average is no copy in each tower: it lies beside tower 0's variable. So its bits are those
// of the variable, whatever the number of towers.
struct WeightAverages {
  double decay = 0.999;
  // The decay of update n, counted from 1, is at most (1 + n) / (10 + n), so that first values are
  // soon forgotten: `num_updates` of TensorFlow's ExponentialMovingAverage.
  bool counts_updates = false;
};

// Throws InvalidArgument unless 0 <= decay < 1.
void check_averages(const WeightAverages& averages);

// The average of a trained variable; empty if it has none.
Variable average_of(Variable variable);

// Lets all averages begin at what their variables hold.
void begin_averages(Session& session);

// 1 - decay. `updates`: scalar i64, the number of this one; empty unless they are counted.
Output average_step(Graph& graph, const WeightAverages& averages, Output updates, DType dtype);

// Moves an average towards what the variable holds where the scopes in force say. `factor`: as of
// ScaledGradient, where it is 0 the average stays.
Node& move_average(Variable average, Variable variable, Output step, Output factor);

// In its scope variable() finds, in the place of each variable that has an average,
// that average. For prediction towers: opened in their function, around the model.
class AveragesScope {
 public:
  // `all`: the variables that the model has.
  AveragesScope(Graph& graph, std::span<const Variable> all);

 private:
  VariableScope scope_;
};

}  // namespace belfry
