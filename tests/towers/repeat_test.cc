#include "belfry/framework/graph/repeat.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/collections.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace repeat_test {

using testing::HasSubstr;
using Values = std::vector<Output>;

// Newton's method, whose values meet the root of a and its derivatives.
TEST(Repeat, CarriesValuesFromRoundToRoundAndIsDifferentiated) {
  Graph graph;
  const Output a = constant(graph, Tensor({2}, std::vector<double>{2, 9}));
  const Output start = constant(graph, Tensor({2}, std::vector<double>{1, 1}));
  const Output root =
      repeat(9, {start}, [&](int, Values x) { return Values{(x[0] + a / x[0]) * 0.5}; })[0];
  const Output slope = gradients(root, {a})[0], bend = gradients(slope, {a})[0];
  const std::vector<Tensor> found = evaluate(Values{root, slope, bend});
  for (std::size_t i = 0; i < 2; ++i) {
    const double value = i == 0 ? 2 : 9;
    EXPECT_NEAR(doubles(found[0])[i], std::sqrt(value), 1e-14);
    EXPECT_NEAR(doubles(found[1])[i], 0.5 / std::sqrt(value), 1e-14);
    EXPECT_NEAR(doubles(found[2])[i], -0.25 / (value * std::sqrt(value)), 1e-13);
  }
}

TEST(Repeat, GivesTheBodyItsRoundAndSeveralValues) {
  Graph graph;
  const Output zero = constant(graph, 0.0, DType::kF64), one = constant(graph, 1.0, DType::kF64);
  std::vector<int> rounds;
  const Values found = repeat(5, {zero, one}, [&](int round, Values x) {
    rounds.push_back(round);
    return Values{x[1], x[0] + x[1]};
  });
  EXPECT_EQ(rounds, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(doubles(evaluate(found[0])), std::vector<double>{5});
  EXPECT_EQ(doubles(evaluate(found[1])), std::vector<double>{8});
}

TEST(Repeat, WithoutRoundsReturnsTheFirstValues) {
  Graph graph;
  const Output one = constant(graph, 1.0);
  EXPECT_EQ(repeat(0, {one}, [](int, Values x) { return x; }), Values{one});
}

TEST(Repeat, SharesTheVariablesOfItsRounds) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({1, 2}, std::vector<double>{3, 5}));
  const VariableScope scope(graph, "model");
  const Output y = repeat(
      3, {x},
      [&](int, Values value) {
        const Variable factor =
            variable(graph, "factor", {}, {.dtype = DType::kF64, .initializer = init::constant(2)});
        return Values{factor *
                      dense(tower, "step", value[0], {.units = 2, .init = init::constant(0.5)})};
      },
      "loop")[0];
  std::vector<std::string> names;
  for (const Variable& v : graph.variables()) names.emplace_back(v.name());
  EXPECT_EQ(names, (std::vector<std::string>{"model/factor", "model/step/W", "model/step/b"}));
  EXPECT_THAT(std::string(y.node().name()), HasSubstr("model/loop/round2/"));
  // Each round adds the elements and multiplies by 1/2 and by 2.
  EXPECT_EQ(doubles(evaluate(y)), (std::vector<double>{32, 32}));
}

TEST(Repeat, RefusesAVariableThatALaterRoundAdds) {
  Graph graph;
  const Output one = constant(graph, 1.0);
  EXPECT_THROW(repeat(2, {one},
                      [&](int round, Values x) {
                        return Values{x[0] + variable(graph, cat("v", round), {})};
                      }),
               NotFoundError);
}

TEST(Repeat, RefusesValuesThatChange) {
  Graph graph;
  const Output one = constant(graph, 1.0), pair = constant(graph, {1, 2}, {2});
  const auto message = [&](int rounds, const Values& first, auto body) {
    return message_of<InvalidArgument>([&] { repeat(rounds, first, body); });
  };
  const auto same = [](int, Values x) { return x; };
  EXPECT_THAT(message(-1, {one}, same), HasSubstr("-1 rounds are too few"));
  EXPECT_THAT(message(1, {}, same), HasSubstr("needs at least one value that it carries"));
  EXPECT_THAT(message(1, {one, Output()}, same), HasSubstr("first value 1 is empty"));
  EXPECT_THAT(message(2, {one},
                      [&](int, Values x) {
                        return Values{x[0], x[0]};
                      }),
              HasSubstr("round 0 returns 2 values, but gets 1"));
  EXPECT_THAT(message(2, {one}, [&](int, Values) { return Values{Output()}; }),
              HasSubstr("value 0 of round 0 is empty"));
  EXPECT_THAT(message(3, {one}, [&](int round, Values x) { return round == 1 ? Values{pair} : x; }),
              HasSubstr("value 0 is f32[], but after round 1 it is f32[2]"));
}

}  // namespace repeat_test
}  // namespace belfry
