#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace weighted_test {

using testing::HasSubstr;

const std::vector<Shape> kShapes{{33, 40}, {7}, {}};

using Numbers = std::vector<float>;

// The canonical tree over n_t * g_t of towers [begin, end).
Numbers weighted_tree(const TestGradients& of, const Numbers& n, int v, int begin, int end) {
  if (end - begin == 1) {
    Numbers leaf = of.tree(v, begin, end);
    const float weight = n[static_cast<std::size_t>(begin)];
    for (float& x : leaf) x = weight == 0 ? 0 : weight * x;
    return leaf;
  }
  const int middle = begin + (end - begin + 1) / 2;
  Numbers left = weighted_tree(of, n, v, begin, middle);
  const Numbers right = weighted_tree(of, n, v, middle, end);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

void expect_bits(const Tensor& got, const Numbers& want, const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got.data<float>()[i]),
              std::bit_cast<std::uint32_t>(want[i]))
        << what << ", element " << i << ": " << got.data<float>()[i];
}

// Makes tower t's gradients NaN. The gradients of a tower without samples may be NaN.
void spoil(TestGradients& gradients, std::size_t t) {
  DeviceScope on(gradients.graph, cpu(static_cast<int>(t)));
  for (Gradient& g : gradients.rows[t])
    g.value = g.value * std::numeric_limits<double>::quiet_NaN();
}

struct Case {
  std::string strategy;
  int towers;
  int parts;
};

class WeightedReduce : public testing::TestWithParam<Case> {
 protected:
  static GradientTable reduce(const GradientTable& table, ReduceOptions how) {
    how.packing.parts = GetParam().parts;
    return make_strategy(GetParam().strategy)->reduce(table, how);
  }

  // Reduces with fed weights n and compares every tensor with its closed form.
  static void expect_all(Reduction reduction, const Numbers& n, bool spoiled) {
    TestGradients gradients(GetParam().towers, kShapes);
    std::vector<Output> weights;
    std::vector<FeedValue> feeds;
    for (std::size_t t = 0; t < n.size(); ++t) {
      if (spoiled && n[t] == 0) spoil(gradients, t);
      weights.push_back(placeholder(gradients.graph, cat("n", t), DType::kF32, {}));
      feeds.push_back({weights[t], Tensor(n[t])});
    }
    const GradientTable reduced =
        reduce(gradients.table(), {.reduction = reduction, .weights = weights});
    Session session(
        gradients.graph,
        {.device_count = {{"CPU", GetParam().towers}}, .threads = 2, .all_workers = true});
    float total = 0;
    for (const float weight : n) total += weight;
    for (int v = 0; v < reduced.variables(); ++v) {
      Numbers want = weighted_tree(gradients, n, v, 0, GetParam().towers);
      if (reduction == Reduction::kMean)
        for (float& x : want) x = total == 0 ? 0 : x / total;
      std::vector<Fetch> fetches;
      for (const Output& value : reduced.values(v)) fetches.emplace_back(value);
      for (const Tensor& got : session.run(fetches, feeds))
        expect_bits(got, want, cat("variable ", v));
    }
  }

  static Numbers counts() {
    Numbers n;
    for (int t = 0; t < GetParam().towers; ++t) n.push_back(static_cast<float>((5 * t + 3) % 4));
    return n;  // 3 0 1 2 3 0 1 2
  }
};

TEST_P(WeightedReduce, GivesTheMeanBySamplesOfThoseThatHaveAny) {
  expect_all(Reduction::kMean, counts(), true);
}

TEST_P(WeightedReduce, GivesTheSumBySamples) { expect_all(Reduction::kSum, counts(), true); }

TEST_P(WeightedReduce, GivesZeroIfNobodyHasSamples) {
  const Numbers none(static_cast<std::size_t>(GetParam().towers));
  expect_all(Reduction::kMean, none, true);
  expect_all(Reduction::kSum, none, true);
}

TEST_P(WeightedReduce, LeavesEqualConstantsOut) {
  TestGradients gradients(GetParam().towers, kShapes);
  const auto reduced = [&](double weight, Reduction reduction) {
    std::vector<Output> weights;
    for (int t = 0; t < GetParam().towers; ++t)
      weights.push_back(constant(gradients.graph, weight, DType::kI64));
    const GradientTable table =
        reduce(gradients.table(), {.reduction = reduction, .weights = weights});
    return evaluate(table.values(0));
  };
  const auto plain = [&](Reduction reduction) {
    return evaluate(reduce(gradients.table(), {.reduction = reduction}).values(0));
  };
  EXPECT_EQ(reduced(3, Reduction::kMean), plain(Reduction::kMean));
  EXPECT_EQ(reduced(1, Reduction::kSum), plain(Reduction::kSum));
  EXPECT_NE(reduced(3, Reduction::kSum), plain(Reduction::kSum));
  for (const Tensor& none : reduced(0, Reduction::kMean))
    for (const float x : none.data<float>()) EXPECT_EQ(x, 0);
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const std::string& name : strategy_names())
    for (const int towers : {2, 3, 4, 6, 8})
      for (const int parts : {0, 1})
        if (make_strategy(name)->canonical(towers) && (parts == 0 || name != "colocate"))
          result.push_back({name, towers, parts});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Strategies, WeightedReduce, testing::ValuesIn(cases()),
                         [](const auto& test) {
                           return cat(test.param.strategy, "_", test.param.towers, "_",
                                      test.param.parts);
                         });

TEST(Weights, LeavesTheMeanOfOneTowerWithSamplesAlone) {
  TestGradients gradients(1, kShapes);
  const Output weight = placeholder(gradients.graph, "n", DType::kF32, {});
  const auto strategy = make_strategy("collective");
  const Output mean = strategy->reduce(gradients.table(), {.weights = {weight}}).at(0, 1).value;
  const Output sum =
      strategy->reduce(gradients.table(), {.reduction = Reduction::kSum, .weights = {weight}})
          .at(0, 1)
          .value;
  Session session(gradients.graph);
  const Tensor g = gradients.value(0, 1), none(Shape{7}, DType::kF32);
  const FeedValue three[] = {{weight, Tensor(3.F)}}, zero[] = {{weight, Tensor(0.F)}};
  EXPECT_EQ(session.run(mean, three), g);
  EXPECT_EQ(session.run(sum, three).data<float>()[6], 3 * g.data<float>()[6]);
  EXPECT_EQ(session.run(mean, zero), none);
  EXPECT_EQ(session.run(sum, zero), none);
}

TEST(Weights, RefusesWeightsThatAreNotOneScalarPerTower) {
  TestGradients gradients(2, kShapes);
  const auto error = [&](std::vector<Output> weights) {
    try {
      make_strategy("naive")->reduce(gradients.table(), {.weights = std::move(weights)});
    } catch (const InvalidArgument& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  const Output one = constant(gradients.graph, 1), row = constant(gradients.graph, {1, 2}, {2});
  EXPECT_THAT(error({one}), HasSubstr("1 weights for the gradients of 2 towers"));
  for (const double wrong : {-2.0, std::nan(""), HUGE_VAL})
    EXPECT_THAT(error({one, constant(gradients.graph, wrong)}),
                HasSubstr("is below 0 or not finite"));
  EXPECT_THAT(error({one, row}), HasSubstr("the weight of tower 1"));
  EXPECT_THAT(error({one, row}), HasSubstr("must be a scalar"));
  EXPECT_THAT(error({Output(), one}), HasSubstr("the weight of tower 0 is empty"));
}

// A strategy that leaves out the last tower.
class Lacking final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    std::vector<Output> row;
    for (int v = 0; v < grads.variables(); ++v) {
      std::vector<Output> values = grads.values(v);
      values.pop_back();
      row.push_back(add_n(values));
    }
    return std::vector(static_cast<std::size_t>(grads.towers()), row);
  }
};

TEST(Weights, LeaveResultsToTheVerifier) {
  TestGradients gradients(3, kShapes);
  std::vector<Output> weights;
  for (int t = 0; t < 3; ++t) weights.push_back(constant(gradients.graph, t));
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMean}) {
    try {
      Lacking().reduce(gradients.table(), {.reduction = reduction, .weights = weights});
      FAIL() << "accepted";
    } catch (const InvalidArgument& refused) {
      EXPECT_THAT(refused.what(), HasSubstr("lacks the gradient of tower 2"));
    }
    const std::size_t before = gradients.graph.combined_gradients().size();
    make_strategy("naive")->reduce(gradients.table(), {.reduction = reduction, .weights = weights});
    EXPECT_EQ(gradients.graph.combined_gradients().size(), before + kShapes.size());
  }
}

}  // namespace weighted_test
}  // namespace belfry
