#include "belfry/trainers/optimizers/minimize.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/log.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace minimize_test {

using testing::AllOf;
using testing::HasSubstr;

Variable scalar(Graph& graph, std::string_view name, double value, DType dtype = DType::kF64) {
  return variable(graph, name, {}, {.dtype = dtype, .initializer = init::constant(value)});
}

double value_of(Session& session, Variable variable) {
  const Tensor value = session.read(variable);
  return variable.dtype() == DType::kF32 ? value.item<float>() : value.item<double>();
}

Output rosenbrock(Output x, Output y) { return 100 * square(y - square(x)) + square(1 - x); }

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Minimize, FindsTheMinimumOfAQuadraticExactly) {
  Graph graph;
  const Variable x = variable(graph, "x", {3}, {.dtype = DType::kF64, .initializer = init::ones()});
  const Output wanted = constant(graph, Tensor({3}, std::vector<double>{4, -2, 0.5}));
  const Output weights = constant(graph, Tensor({3}, std::vector<double>{1, 10, 100}));
  Session session(graph);
  const MinimizeResult result =
      minimize(session, reduce_sum(weights * square(x - wanted)) + 7, {x});
  EXPECT_NEAR(session.read(x).data<double>()[0], 4, 1e-7);
  EXPECT_NEAR(session.read(x).data<double>()[1], -2, 1e-7);
  EXPECT_NEAR(session.read(x).data<double>()[2], 0.5, 1e-7);
  EXPECT_NEAR(result.loss, 7, 1e-12);
  EXPECT_LE(result.evaluations, 20);
  EXPECT_EQ(session.step(), 0u);
}

// PyTorch's LBFGS takes 45, 27, 30, 34 and 24 evaluations to a gradient of 1e-8, SciPy's L-BFGS-B
// 46, 27, 31, 34 and 25.
TEST(Minimize, FindsRosenbrocksMinimum) {
  struct From {
    double x, y;
    int evaluations;  // at most
  };
  for (const From& from :
       {From{-1.2, 1, 46}, {0, 0, 28}, {2, 2, 29}, {-1, -1, 36}, {0.5, 0.5, 23}}) {
    Graph graph;
    const Variable x = scalar(graph, "x", from.x), y = scalar(graph, "y", from.y);
    Session session(graph);
    const MinimizeResult result = minimize(session, rosenbrock(x, y), {x, y});
    EXPECT_EQ(result.end, MinimizeEnd::kGradient) << result.str();
    EXPECT_LT(result.loss, 1e-15);
    EXPECT_NEAR(value_of(session, x), 1, 3e-8);
    EXPECT_NEAR(value_of(session, y), 1, 3e-8);
    EXPECT_LE(result.evaluations, from.evaluations) << from.x << " " << from.y << result.str();
  }
}

// The first gradient is -1e18, so 1e-10 of it is steep.
TEST(Minimize, IsNotEndedEarlyByASteepBeginning) {
  Graph graph;
  const Variable x = scalar(graph, "x", 1e-9);
  Session session(graph);
  const MinimizeResult result = minimize(session, 1 / x + x, {x});
  EXPECT_NEAR(value_of(session, x), 1, 1e-5) << result.str();
}

TEST(Minimize, TakesLossesAndVariablesWhoseSquaresOverflow) {
  Graph graph;
  const Variable x = scalar(graph, "x", 3), y = scalar(graph, "y", 5);
  const Variable far = scalar(graph, "far", -1e160);
  Session session(graph);
  const Output steep = 1e160 * (square(x - 1) + 3 * square(y + 2));
  EXPECT_LT(minimize(session, steep, {x, y}).loss, 1e145);
  EXPECT_NEAR(value_of(session, x), 1, 1e-6);
  EXPECT_NEAR(value_of(session, y), -2, 1e-6);
  EXPECT_LT(minimize(session, square(far / 1e160 - 1), {far}).loss, 1e-12);
  EXPECT_NEAR(value_of(session, far) / 1e160, 1, 1e-6);
}

// The gradient of x^2 would be 2 x, and is -2 x here.
TEST(Minimize, SaysThatAGradientMayBeWrong) {
  Graph graph;
  const Variable x = scalar(graph, "x", 3);
  Session session(graph);
  const MinimizeResult result = minimize(session, square(x - stop_gradient(2 * x)) + 1, {x});
  EXPECT_EQ(result.end, MinimizeEnd::kContradiction);
  EXPECT_EQ(result.iterations, 0);
  EXPECT_THAT(result.str(), HasSubstr("no step along the gradient lowers the loss: the gradient "
                                      "may be wrong"));
  EXPECT_EQ(value_of(session, x), 3);
}

// Tolerances and steps are relative, so the unit of the loss does not matter.
TEST(Minimize, TakesTheSameStepsForALossInAnotherUnit) {
  std::vector<std::string> runs;
  for (const double unit : {1.0, std::ldexp(1, -60), std::ldexp(1, 60)}) {
    Graph graph;
    const Variable x = scalar(graph, "x", -1.2), y = scalar(graph, "y", 1);
    Session session(graph);
    const MinimizeResult result = minimize(session, rosenbrock(x, y) * unit, {x, y});
    runs.push_back(cat(result.evaluations, " ", value_of(session, x), " ", value_of(session, y)));
  }
  EXPECT_EQ(runs[1], runs[0]);
  EXPECT_EQ(runs[2], runs[0]);
}

TEST(Minimize, FindsMinimaInF32AsFarAsItsPrecisionGoes) {
  Graph graph;
  const Variable x = scalar(graph, "x", -1.2, DType::kF32), y = scalar(graph, "y", 1, DType::kF32);
  Session session(graph);
  const MinimizeResult result = minimize(session, rosenbrock(x, y) + 3, {x, y});
  EXPECT_NEAR(value_of(session, x), 1, 3e-3) << result.str();
  EXPECT_NEAR(value_of(session, y), 1, 6e-3);
  EXPECT_LT(result.evaluations, 150) << result.str();
}

// In the valley far from the minimum the loss still falls, by less than f32 shows.
TEST(Minimize, DoesNotGoOnWhereF32ShowsNoChange) {
  Graph graph;
  const Variable x = scalar(graph, "x", -1000, DType::kF32),
                 y = scalar(graph, "y", 1000, DType::kF32);
  Session session(graph);
  const MinimizeResult result = minimize(session, rosenbrock(x, y), {x, y});
  EXPECT_EQ(result.end, MinimizeEnd::kChange) << result.str();
  EXPECT_LT(result.evaluations, 500) << result.str();
}

TEST(Minimize, TakesVariablesOfBothTypesAndShapes) {
  Graph graph;
  const Variable a = variable(graph, "a", {2, 3}, {.initializer = init::ones()});
  const Variable b = scalar(graph, "b", 5);
  Session session(graph);
  const Output loss = reduce_sum(square(cast(a, DType::kF64) - 0.25)) + square(b + 2);
  minimize(session, loss, {b, a});
  const Tensor found = session.read(a);
  for (const float x : found.data<float>()) EXPECT_NEAR(x, 0.25, 1e-6);
  EXPECT_NEAR(value_of(session, b), -2, 1e-8);
}

// Each of two towers has a part of the loss and replicas of both variables.
TEST(Minimize, KeepsReplicasOfSeveralDevicesEqual) {
  std::vector<std::string> runs;
  for (const VariablePolicy policy : {VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice}) {
    Graph graph;
    std::vector<Output> losses;
    const std::vector<DeviceSpec> devices{"/cpu:0", "/cpu:1"};
    const auto towers = replicate(graph, devices, policy, [&](Tower& tower) {
      const Variable x = scalar(tower.graph(), "x", -1.2), y = scalar(tower.graph(), "y", 1);
      losses.push_back(tower.index() == 0 ? 100 * square(y - square(x)) : square(1 - x) + 0 * y);
      tower.loss(losses.back());
    });
    Session session(graph, {.device_count = {{"CPU", 2}}});
    const MinimizeResult result = minimize(session, add_n(losses), towers[0].trainables);
    EXPECT_EQ(result.end, MinimizeEnd::kGradient) << result.str();
    for (std::size_t v = 0; v < 2; ++v)
      EXPECT_EQ(session.read(towers[0].variables[v]), session.read(towers[1].variables[v])) << v;
    EXPECT_NEAR(value_of(session, towers[1].variables[0]), 1, 1e-8);
    EXPECT_NEAR(value_of(session, towers[1].variables[1]), 1, 1e-8);
    runs.push_back(result.str());
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(Minimize, CallsBackAfterEachIterationWithItsValues) {
  Graph graph;
  const Variable x = scalar(graph, "x", -1.2), y = scalar(graph, "y", 1);
  const Output loss = rosenbrock(x, y);
  Session session(graph);
  std::vector<double> losses;
  const MinimizeResult result =
      minimize(session, loss, {x, y}, {.callback = [&](const MinimizeIteration& now) {
                 losses.push_back(now.loss);
                 EXPECT_EQ(now.iteration, std::ssize(losses));
                 EXPECT_EQ(session.run(loss).item<double>(), now.loss);
                 EXPECT_GT(now.gradient_norm, 0);
                 EXPECT_GT(now.move, 0);
                 return losses.size() < 7;
               }});
  EXPECT_EQ(result.end, MinimizeEnd::kCallback);
  EXPECT_EQ(result.iterations, 7);
  EXPECT_TRUE(std::is_sorted(losses.rbegin(), losses.rend()));
  EXPECT_EQ(session.run(loss).item<double>(), result.loss);
}

TEST(Minimize, EndsAtItsLimitsWithTheBestValues) {
  for (const int most : {1, 2, 3, 5, 8}) {
    Graph graph;
    const Variable x = scalar(graph, "x", -1.2), y = scalar(graph, "y", 1);
    const Output loss = rosenbrock(x, y);
    Session session(graph);
    const MinimizeResult limited = minimize(session, loss, {x, y}, {.max_evaluations = most});
    EXPECT_EQ(limited.end, MinimizeEnd::kEvaluations);
    EXPECT_EQ(limited.evaluations, most);
    EXPECT_EQ(session.run(loss).item<double>(), limited.loss);
    EXPECT_LE(limited.loss, 24.2000001);
    const MinimizeResult two = minimize(session, loss, {x, y}, {.max_iterations = 2});
    EXPECT_EQ(two.end, MinimizeEnd::kIterations);
    EXPECT_EQ(two.iterations, 2);
  }
}

// One plan serves several first values and other data.
TEST(Minimize, RunsOneMinimizerSeveralTimes) {
  Graph graph;
  const Variable x = scalar(graph, "x", 0);
  const Output data = placeholder(graph, "data", DType::kF64, {4});
  Session session(graph);
  LossMinimizer mean(session, reduce_mean(square(x - data)), {x});
  const std::size_t nodes = graph.size();
  for (const double add : {0.0, 100.0}) {
    const Tensor values({4}, std::vector<double>{1 + add, 2 + add, 3 + add, 6 + add});
    const FeedValue feed{data, values};
    const MinimizeResult result = mean.run({}, {&feed, 1});
    EXPECT_NEAR(value_of(session, x), 3 + add, 1e-6) << result.str();
    EXPECT_NEAR(result.loss, 3.5, 1e-9);
  }
  EXPECT_EQ(graph.size(), nodes);
}

TEST(Minimize, EndsAtOnceAtAMinimum) {
  Graph graph;
  const Variable x = scalar(graph, "x", 2);
  Session session(graph);
  const MinimizeResult result = minimize(session, square(x - 2), {x});
  EXPECT_EQ(result.str(),
            "0 iterations, 1 evaluations: loss 0, norm of the gradient 0; the gradient is small "
            "enough");
}

// x - log(x) has no value below 0, where the first move would lead.
TEST(Minimize, StaysWhereTheLossIsFinite) {
  Graph graph;
  const Variable x = scalar(graph, "x", 5);
  Session session(graph);
  const MinimizeResult result = minimize(session, x - log(x), {x}, {.first_move = 40});
  EXPECT_NEAR(value_of(session, x), 1, 1e-6) << result.str();
}

TEST(Minimize, NamesWhatIsNotFiniteAndTheIteration) {
  Graph graph;
  const Variable x = scalar(graph, "x", -1), y = scalar(graph, "y", 0);
  Session session(graph);
  EXPECT_THAT(error_of([&] { minimize(session, log(x), {x}); }),
              AllOf(HasSubstr("iteration 1: the loss Log 'Log' (built at minimize_test.cc:"),
                    HasSubstr("is nan at the first values of the variables")));
  EXPECT_THAT(error_of([&] { minimize(session, sqrt(y), {y}); }),
              HasSubstr("iteration 1: the gradient of 'y' f64[] (built at minimize_test.cc:"));
  EXPECT_EQ(value_of(session, x), -1);
  // Finite at the first value only: 0 * log(1 - (x + 1)^2) is nan elsewhere.
  const Output barrier = 1e300 * log(2 - square(x * 1e200 + 1e200));
  try {
    minimize(session, barrier + x, {x});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("steps tried; look at logarithms"));
    EXPECT_EQ(error.fields().kind, ErrorKind::kDiverged);
    EXPECT_EQ(error.fields().step, 1);
  }
  EXPECT_EQ(value_of(session, x), -1);
}

TEST(Minimize, RefusesWhatItCannotMinimise) {
  Graph graph, other;
  const Variable x = scalar(graph, "x", 1), unused = scalar(graph, "unused", 1);
  const Variable wide = variable(graph, "wide", {2}, {.dtype = DType::kF64});
  const Variable count = variable(graph, "count", {}, {.dtype = DType::kI64});
  const Variable foreign = scalar(other, "foreign", 1);
  Session session(graph);
  const auto error = [&](Output loss, const std::vector<Variable>& variables,
                         const MinimizeOptions& options = {}) {
    return error_of([&] { minimize(session, loss, variables, options); });
  };
  EXPECT_THAT(error(square(x), {}), HasSubstr("got no variables"));
  EXPECT_THAT(
      error(square(x), {x, unused}),
      HasSubstr("does not depend on the variable 'unused' f64[] (built at minimize_test.cc:"));
  EXPECT_THAT(error(square(wide), {wide}), HasSubstr("must be a scalar; take its mean"));
  EXPECT_THAT(error(square(x), {x, count}), HasSubstr("'count' i64[]"));
  EXPECT_THAT(error(square(x), {foreign}), HasSubstr("another graph"));
  EXPECT_THAT(error(square(foreign), {x}), HasSubstr("another graph"));
  EXPECT_THAT(error({}, {x}), HasSubstr("the loss is empty"));
  EXPECT_THAT(error(square(x), {Variable()}), HasSubstr("a variable is empty"));
  EXPECT_THAT(error(cast(square(x), DType::kI32), {x}), HasSubstr("must be f32 or f64"));
  EXPECT_THAT(error(square(x), {x}, {.memory = 0}), HasSubstr("memory=0"));
  EXPECT_THAT(error(square(x), {x}, {.max_iterations = 0}), HasSubstr("max_iterations=0"));
  EXPECT_THAT(error(square(x), {x}, {.max_evaluations = 0}), HasSubstr("max_evaluations=0"));
  EXPECT_THAT(error(square(x), {x}, {.gradient_tolerance = -1}),
              HasSubstr("gradient_tolerance=-1"));
  EXPECT_THAT(error(square(x), {x}, {.first_move = NAN}), HasSubstr("first_move=nan"));
  EXPECT_THAT(error(square(x), {x}, {.curvature = 1e-5}), HasSubstr("curvature=1e-05"));
  EXPECT_EQ(value_of(session, x), 1);
}

TEST(Minimize, RefusesSeveralProcesses) {
  Graph graph(1, {.rank = 0, .size = 2});
  const Variable x = scalar(graph, "x", 1);
  Session session(graph, {.dry_run = true, .planned_place = {.rank = 0, .size = 2}});
  EXPECT_THAT(error_of([&] { minimize(session, square(x), {x}); }),
              HasSubstr("works in one process, but this graph is of 2"));
}

}  // namespace minimize_test
}  // namespace belfry
