// Minimises a loss over all of its data at once: for inverse problems, and other losses whose
// gradients are exact and take long. (For losses of batches there are trainers.)
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/optimizers/lbfgs.h"

namespace belfry {

// A loss, its gradients and their plan, to be minimised several times, for instance from other
// first values.
class LossMinimizer {
 public:
  // Adds the gradients to the graph. The loss is a scalar of f32 or f64, and so are the variables,
  // of any shape and on any devices. All replicas of a variable (VariableOptions::copy_of) change
  // together, by the sum of their gradients; to name one of them is enough.
  //
  // Throws InvalidArgument for a loss that is no such scalar, for no variables, for one of another
  // type or graph, or for one that the loss does not depend on, which it names. Also throws it in a
  // graph of several processes.
  LossMinimizer(Session& session, Output loss, const std::vector<Variable>& variables, At at = {});
  ~LossMinimizer();
  LossMinimizer(const LossMinimizer&) = delete;
  LossMinimizer& operator=(const LossMinimizer&) = delete;

  // Begins at the values that the variables have, and leaves in them the last that an iteration has
  // reached, also when it throws. `feeds` are fed in each evaluation. Computes in f64; a variable
  // of f32 gets rounded values. No run in between writes variables, so that random ops draw the
  // same numbers in each evaluation. Throws as minimize_by_lbfgs() and Session::run do.
  MinimizeResult run(const MinimizeOptions& options = {}, std::span<const FeedValue> feeds = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// LossMinimizer::run once:
//   const MinimizeResult result = minimize(session, loss, {a, b});
MinimizeResult minimize(Session& session, Output loss, const std::vector<Variable>& variables,
                        const MinimizeOptions& options = {}, std::span<const FeedValue> feeds = {},
                        At at = {});

}  // namespace belfry
