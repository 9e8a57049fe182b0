#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/square.h"
#include "belfry/tests/allreduce/verify/two_variables.h"

namespace belfry {
namespace verify_build_test {

// -- The table of gradients.

Way table(std::string name, std::function<void(TwoVariables&)> change,
          std::vector<std::string> says) {
  return {std::move(name),
          [change] {
            TwoVariables model(3);
            change(model);
            model.table();
          },
          std::move(says)};
}

std::vector<Way> wrong_tables() {
  return {
      table("ATowerLacksAVariable", [](auto& m) { m.rows[1].pop_back(); },
            {"tower 0 has a gradient of variable 'b'", "model.cc:42", "tower 1", "grad.cc:51",
             "has none"}),
      table("ATowerHasAVariableMore", [](auto& m) { m.rows[0].pop_back(); },
            {"tower 1 has a gradient of variable 'b'", "model.cc:42", "tower 0", "has none"}),
      table(
          "ATowerHasAnotherOrder", [](auto& m) { std::swap(m.rows[2][0], m.rows[2][1]); },
          {"order of gradients: number 0", "'w'", "model.cc:41", "'b'", "model.cc:42", "tower 2"}),
      table("ATowerHasAnotherShape",
            [](auto& m) {
              const Output five = constant(m.graph, Tensor({5}, DType::kF32));
              m.rows[0][0].value = slice(five, {0}, {4});
              m.rows[1][0].value = slice(five, {0}, {3});
            },
            {"disagree on variable 'w'", "f32[4]", "f32[3]", "tower 1", "model.cc:41"}),
      table("ATowerHasAnotherDType",
            [](auto& m) { m.rows[2][1].value = cast(m.rows[2][1].value, DType::kF64); },
            {"disagree on variable 'b'", "f64[?]", "f32[?]", "tower 2", "model.cc:42"}),
      table("AGradientIsEmpty", [](auto& m) { m.rows[1][1].value = {}; },
            {"tower 1 has an empty gradient of variable 'b'", "model.cc:42"}),
      table("AGradientIsOfAnotherGraph",
            [](auto& m) {
              static TwoVariables other(3);
              m.rows[2] = other.rows[2];
            },
            {"tower 2", "'w'", "model.cc:41", "another graph"}),
      table("AVariableComesTwice",
            [](auto& m) {
              for (auto& row : m.rows) row[1] = row[0];
            },
            {"tower 0 has two gradients of variable 'w'", "model.cc:41", "grad.cc:50"}),
      table("AGradientHasNotTheShapeOfItsVariable",
            [](auto& m) {
              for (auto& row : m.rows)
                row[1].value = slice(constant(m.graph, Tensor({5}, DType::kF32)), {0}, {3});
            },
            {"gradient of variable 'b'", "model.cc:42", "f32[3]", "the shape of its variable"}),
      table("TwoTowersHaveTheSameTensor", [](auto& m) { m.rows[2][0].value = m.rows[1][0].value; },
            {"towers 1 and 2 have the same tensor", "'w'", "model.cc:41", "grad.cc:51"}),
      table("TwoOfThreeTowersShareAVariable",
            [](auto& m) { m.rows[2][1].variable = m.rows[1][1].variable; },
            {"variable 'b'", "model.cc:42", "2 copies for 3 towers"}),
      table("RowsAreNotInTheOrderOfTowers", [](auto& m) { std::swap(m.rows[1], m.rows[2]); },
            {"'w'", "model.cc:41", "belongs to tower 1, after that of tower 2", "order of towers"}),
      table("AGradientStandsBesideAnotherTowersVariable",
            [](auto& m) { std::swap(m.rows[1][1].value, m.rows[2][1].value); },
            {"'b'", "model.cc:42", "for tower 1", "grad.cc:62", "computed by tower 2"}),
      table("TwoOfThreeTowersShareADevice",
            [](auto& m) {
              DeviceScope on(m.graph, DeviceSpec("/cpu:1"));
              ReplicaScope replica(m.graph, "tower2/", 2);
              NameScope names(m.graph, "tower2/");
              for (Gradient& g : m.rows[2])
                g.value = square(m.inputs[4], SourceLine{"grad.cc", 99});
              m.rows[2][1].value = square(m.inputs[5]);
            },
            {"towers 1 and 2", "CPU:1", "'w'", "model.cc:41", "grad.cc:99"}),
  };
}

// -- The results of a strategy.

Output total(const GradientTable& g, int v) { return add_n(g.values(v)); }

// The right result, which tests then spoil.
Values sums(const GradientTable& g) {
  Values result(static_cast<std::size_t>(g.towers()));
  for (int v = 0; v < g.variables(); ++v) {
    const std::vector<Output> reduced = all_reduce(g.values(v));
    for (std::size_t t = 0; t < result.size(); ++t) result[t].push_back(reduced[t]);
  }
  return result;
}

// Variable b consists of halves, side by side. Each is the sum of the towers that `halves` names.
// The other variable is right.
Values scattered(const GradientTable& g, const std::vector<std::vector<int>>& halves, bool mean) {
  Values values = sums(g);
  std::vector<Output> parts;
  for (std::size_t p = 0; p < halves.size(); ++p) {
    std::vector<Output> summands;
    for (const int t : halves[p])
      summands.push_back(slice(g.at(t, 1).value, {static_cast<std::int64_t>(2 * p)}, {2}));
    parts.push_back(add_n(summands));
  }
  const Output joined = concat(parts, 0);
  for (auto& row : values) row[1] = mean ? identity(joined / g.towers()) : joined;
  return values;
}

Way strategy(std::string name, std::function<void(const GradientTable&, Values&)> spoil,
             std::vector<std::string> says) {
  return {std::move(name),
          [spoil] {
            const TwoVariables model(3);
            model.reduce([&](const GradientTable& g) {
              Values values = sums(g);
              spoil(g, values);
              return values;
            });
          },
          std::move(says)};
}

std::vector<Way> wrong_strategies() {
  return {
      strategy("ATowerGetsNothing", [](auto&, auto& v) { v.pop_back(); },
               {"of tower 2 are 0 instead of 2", "'w'", "model.cc:41"}),
      strategy("ATowerTooManyGetsSomething", [](auto&, auto& v) { v.push_back(v[0]); },
               {"4 towers instead of 3", "'w'", "model.cc:41"}),
      strategy("AVariableIsForgotten", [](auto&, auto& v) { v[1].pop_back(); },
               {"of tower 1 are 1 instead of 2", "'b'", "model.cc:42"}),
      strategy("AVariableTooMany", [](auto&, auto& v) { v[1].push_back(v[1][0]); },
               {"of tower 1 are 3 instead of 2", "'b'", "model.cc:42"}),
      strategy("AResultIsEmpty", [](auto&, auto& v) { v[2][1] = {}; },
               {"'b'", "model.cc:42", "for tower 2 is empty"}),
      strategy("AResultIsOfAnotherGraph",
               [](auto&, auto& v) {
                 static TwoVariables other(3);
                 v[1][0] = other.rows[1][0].value;
               },
               {"'w'", "model.cc:41", "tower 1", "grad.cc:51", "another graph"}),
      strategy("AResultHasAnotherShape", [](auto&, auto& v) { v[1][0] = reduce_sum(v[1][0]); },
               {"'w'", "model.cc:41", "tower 1", "reduce.cc:70", "is f32[], but", "f32[?]"}),
      strategy("AResultHasAnotherDType",
               [](auto&, auto& v) { v[1][0] = cast(v[1][0], DType::kF64); },
               {"'w'", "model.cc:41", "tower 1", "reduce.cc:70", "is f64[?], but", "f32[?]"}),
      strategy(
          "TheLastTowerIsLeftOut",
          [](auto& g, auto& v) {
            v[0][1] = v[1][1] = v[2][1] = add_n({g.at(0, 1).value, g.at(1, 1).value});
          },
          {"'b'", "model.cc:42", "reduce.cc:70", "lacks the gradient of tower 2", "grad.cc:62"}),
      strategy("ATowerKeepsItsOwn", [](auto& g, auto& v) { v[1][0] = g.at(1, 0).value; },
               {"'w'", "model.cc:41", "for tower 1", "grad.cc:51", "of tower 1 alone"}),
      strategy("ATowerGetsAnothersOwn",
               [](auto& g, auto& v) { v[1][0] = identity(g.at(2, 0).value); },
               {"'w'", "model.cc:41", "for tower 1", "reduce.cc:70", "of tower 2 alone"}),
      strategy("ATowerCountsTwice",
               [](auto& g, auto& v) {
                 for (auto& row : v) row[1] = add(total(g, 1), g.at(1, 1).value);
               },
               {"'b'", "model.cc:42", "reduce.cc:70", "the gradient of tower 1", "grad.cc:61",
                "2 times"}),
      strategy("ResultsOfTwoVariablesAreSwapped",
               [](auto&, auto& v) { std::swap(v[1][0], v[1][1]); },
               {"'w'", "model.cc:41", "for tower 1", "is made of gradients of variable 'b'",
                "model.cc:42"}),
      strategy("GradientsOfTwoVariablesAreAdded",
               [](auto& g, auto& v) {
                 v[0][0] = v[1][0] = v[2][0] =
                     add_n({g.at(0, 0).value, g.at(1, 1).value, g.at(2, 0).value});
               },
               {"'w'", "model.cc:41", "for tower 0", "adds gradients of two variables", "'b'",
                "model.cc:42"}),
      strategy("AResultIsAConstant",
               [](auto& g, auto& v) { v[2][0] = constant(g.graph(), Tensor({4}, DType::kF32)); },
               {"'w'", "model.cc:41", "for tower 2", "reduce.cc:70", "no tower's gradient"}),
      strategy("ACollectiveMixesVariables",
               [](auto& g, auto&) {
                 all_reduce(std::vector{g.at(0, 0).value, g.at(1, 1).value, g.at(2, 0).value});
               },
               {"AllReduce", "reduce.cc:70", "participant 1", "'b'", "model.cc:42", "'w'",
                "model.cc:41"}),
      strategy("ACollectiveHasATowerTwice",
               [](auto& g, auto&) {
                 all_reduce(std::vector{g.at(0, 0).value, g.at(1, 0).value, g.at(1, 0).value});
               },
               {"AllReduce", "reduce.cc:70", "tower 1 takes part twice", "'w'", "model.cc:41"}),
      strategy("ACollectiveHasAnotherOrderOfTowers",
               [](auto& g, auto&) {
                 all_reduce(std::vector{g.at(1, 1).value, g.at(0, 1).value, g.at(2, 1).value});
               },
               {"AllReduce", "reduce.cc:70", "tower 0 comes after tower 1", "'b'", "model.cc:42"}),
      strategy("CopiesOfACollectiveAreSwapped", [](auto&, auto& v) { std::swap(v[1][0], v[2][0]); },
               {"'w'", "model.cc:41", "for tower 1", "reduce.cc:70", "the copy of tower 2"}),
      strategy("ScaledCopiesOfACollectiveAreSwapped",
               [](auto&, auto& v) {
                 std::swap(v[0][1], v[1][1]);
                 v[0][1] = identity(v[0][1] / 3);
               },
               {"'b'", "model.cc:42", "for tower 0", "reduce.cc:70", "the copy of tower 1"}),
      {"AScatteredPartLacksATower",
       [] {
         const TwoVariables model(3, DType::kF32, 4);
         model.reduce([](const GradientTable& g) {
           return scattered(g, {{0, 1, 2}, {0, 1}}, false);
         });
       },
       {"'b'", "model.cc:42", "for tower 0", "reduce.cc:70", "a part of", "lacks the gradient",
        "of tower 2", "grad.cc:62"}},
      {"APartOfAMeanLacksATower",
       [] {
         const TwoVariables model(3, DType::kF32, 4);
         model.reduce([](const GradientTable& g) {
           return scattered(g, {{2, 1}, {0, 1, 2}}, true);
         });
       },
       {"'b'", "model.cc:42", "for tower 0", "reduce.cc:70", "a part of", "lacks the gradient",
        "of tower 0", "grad.cc:60"}},
      {"APartHasATowerTwice",
       [] {
         const TwoVariables model(3, DType::kF32, 4);
         model.reduce([](const GradientTable& g) {
           return scattered(g, {{0, 1, 2}, {0, 1, 2, 1}}, false);
         });
       },
       {"'b'", "model.cc:42", "for tower 0", "reduce.cc:70", "tower 1", "grad.cc:61", "2 times"}},
      {"ATableIsCombinedAgain",
       [] {
         const TwoVariables model(2);
         make_strategy("naive")->reduce(model.reduce("collective"), {.reduction = Reduction::kSum});
       },
       {"gradients of variable 'w'", "model.cc:41", "AllReduce", "reduce.cc:70",
        "were combined before"}},
      {"TheMeanIsOfIntegers",
       [] {
         const TwoVariables model(2, DType::kI32);
         model.reduce(*make_strategy("naive"), Reduction::kMean);
       },
       {"the mean of i32,", "'w'", "model.cc:41", "cast to f32"}},
  };
}

class VerifierAtBuild : public testing::TestWithParam<Way> {};

TEST_P(VerifierAtBuild, RefusesNamingTheVariableAndTheLine) { expect_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Tables, VerifierAtBuild, testing::ValuesIn(wrong_tables()), name_of_way);
INSTANTIATE_TEST_SUITE_P(Strategies, VerifierAtBuild, testing::ValuesIn(wrong_strategies()),
                         name_of_way);

TEST(Verified, TensorsMayBeStackedAndThenAdded) {
  const TwoVariables model(3, DType::kF32, 4);
  EXPECT_NO_THROW(model.reduce([](const GradientTable& g) {
    Values values = sums(g);
    std::vector<Output> rows;
    for (const Output& x : g.values(0)) rows.push_back(reshape(x, {1, 4}));
    for (auto& row : values) row[0] = reduce_sum(concat(rows, 0), {0});
    return values;
  }));
}

// Other towers begin each half, send it beside the other half, and finish it there.
TEST(Verified, PartsMayTravelTogether) {
  const TwoVariables model(4, DType::kF32, 4);
  EXPECT_NO_THROW(model.reduce([](const GradientTable& g) {
    const auto part = [&](int t, std::int64_t begin) {
      return slice(g.at(t, 0).value, {begin}, {2});
    };
    const Output sent = concat({part(0, 0) + part(1, 0), part(2, 2) + part(3, 2)}, 0);
    const Output low = slice(sent, {0}, {2}) + (part(2, 0) + part(3, 0));
    const Output high = (part(0, 2) + part(1, 2)) + slice(sent, {2}, {2});
    Values values = sums(g);
    for (auto& row : values) row[0] = concat({low, high}, 0);
    return values;
  }));
}

TEST(Verified, PartsMayBeFinishedBesideEachOther) {
  const TwoVariables model(3, DType::kF32, 4);
  EXPECT_NO_THROW(model.reduce([](const GradientTable& g) {
    const auto part = [&](int t, std::int64_t begin) {
      return slice(g.at(t, 0).value, {begin}, {2});
    };
    const Output first = concat({part(0, 0), part(1, 2)}, 0);
    const Output second = concat({part(1, 0), part(0, 2)}, 0);
    Values values = sums(g);
    for (auto& row : values) row[0] = add_n({first, second, g.at(2, 0).value});
    return values;
  }));
}

// An empty part has nothing to add.
TEST(Verified, AnEmptyPartMayLackTowers) {
  const TwoVariables model(3, DType::kF32, 4);
  EXPECT_NO_THROW(model.reduce([](const GradientTable& g) {
    Values values = sums(g);
    const Output empty = slice(g.at(1, 0).value, {0}, {0});
    for (auto& row : values) row[0] = concat({total(g, 0), empty}, 0);
    return values;
  }));
}

}  // namespace verify_build_test
}  // namespace belfry
