// L-BFGS (Nocedal and Wright 2006, algorithm 7.5): minimises a function by its gradients. It keeps
// the last few moves, and how the gradient changed in each, in place of second derivatives.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// Why a minimisation ended.
enum class MinimizeEnd {
  kGradient,       // the gradient is small enough
  kChange,         // the loss hardly changes any more
  kNoDecrease,     // no step lowers the loss: rounding hides what is left
  kUnbounded,      // the loss is -inf at a step, or falls as far as steps go
  kContradiction,  // every step raises the loss, where the gradient says that it falls
  kIterations,     // max_iterations were made
  kEvaluations,    // max_evaluations were made
  kCallback,       // the callback returned false
};

// "the gradient is small enough".
std::string_view text_of(MinimizeEnd end);

// What an iteration reached.
struct MinimizeIteration {
  int iteration = 0;    // from 1
  int evaluations = 0;  // of the loss with its gradients, so far
  double loss = 0, gradient_norm = 0;
  double move = 0;  // the length of the move of all variables together
};

struct MinimizeOptions {
  int memory = 10;  // the moves of how many iterations are kept
  // Ends when the norm of the gradient is at most so many times that of the first one, the last
  // move was at most 100 times that part of the length of the variables, and the loss has little
  // left to fall. 0 leaves the test out.
  double gradient_tolerance = 1e-10;
  // Ends when an iteration changes the loss by at most so much of it. Changes below the precision
  // of the loss always count as none. In a valley along which the loss still falls, only ten such
  // iterations in a row end it.
  double change_tolerance = 1e-12;
  int max_iterations = 10000, max_evaluations = 10000;
  // The length of the first move to try, of all variables together. 0: 0.3 times the norm of the
  // variables, at least 0.3.
  double first_move = 0;
  // The conditions of the line search (LineSearchOptions).
  double decrease = 1e-4, curvature = 0.6;
  // Called after each iteration, when the variables have the values that it reached. Returns
  // whether to continue. Empty: none.
  std::function<bool(const MinimizeIteration&)> callback = {};
};

struct MinimizeResult {
  int iterations = 0, evaluations = 0;
  double loss = 0, gradient_norm = 0;
  MinimizeEnd end = MinimizeEnd::kGradient;

  // "34 iterations, 42 evaluations: loss 1e-23, norm of the gradient 1e-11; the gradient is small
  // enough".
  std::string str() const;
};

// A function to be minimised.
struct ObjectiveFunction {
  struct Value {
    double loss = 0;
    std::vector<double> gradient = {};
    // What is not finite, as the subject of a sentence: "the loss ... is nan". "": nothing.
    std::string not_finite = {};
  };

  // The value at a point. May round the point to what can be represented.
  std::function<Value(std::vector<double>& point)> evaluate;
  // Called with the point that an iteration has reached.
  std::function<void(const std::vector<double>& point)> reach;
  // The precision of losses, as a part of them.
  double rounding = 0;
};

// Moves `point` to a minimum nearby. It always holds the last point that an iteration has reached,
// also when an exception leaves. Throws InvalidArgument for impossible options. Throws an Error
// with kDiverged, that says what is not finite in which iteration, if that is so at the first
// point, or at every step tried.
MinimizeResult minimize_by_lbfgs(const ObjectiveFunction& objective, std::vector<double>& point,
                                 const MinimizeOptions& options = {});

}  // namespace belfry
