// Moving averages of trained variables: smoother weights for evaluation and prediction.
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

// After each update: average -= (average - variable) * (1 - decay), starting at the variable's
// first value. There is one average for all towers, on the device of tower 0's variable. So its
// bits depend only on those of the variable, not on the number of towers.
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

// Sets all averages to the present values of their variables.
void begin_averages(Session& session);

// Returns 1 - decay. `updates`: scalar i64, the number of this update; empty unless updates are
// counted.
Output average_step(Graph& graph, const WeightAverages& averages, Output updates, DType dtype);

// Moves an average towards the value of the variable that a read in the scopes in force sees.
// `factor`: that of ScaledGradient; if it is 0, the average stays unchanged.
Node& move_average(Variable average, Variable variable, Output step, Output factor);

// While it lives, variable() returns the average of a variable instead of the variable, if it has
// one. Prediction towers open it in their function, around the model.
class AveragesScope {
 public:
  // `all`: the variables that the model has.
  AveragesScope(Graph& graph, std::span<const Variable> all);

 private:
  VariableScope scope_;
};

}  // namespace belfry
