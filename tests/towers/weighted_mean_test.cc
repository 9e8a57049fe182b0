#include "belfry/towers/weighted_mean.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/square.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/metrics.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace weighted_mean_test {

Tensor logits() { return Tensor({2, 3}, std::vector<double>{0.5, -1, 2, 0.25, 3, -0.75}); }

// The mean over `towers` towers, which share two samples, of what each returns.
double mean_of_towers(int towers, const std::function<Output(Tower&, Output, Output)>& loss) {
  Graph graph;
  const std::int64_t rows = 2 / towers;
  const std::vector<TowerRecord> built =
      replicate(graph, cpus(towers), VariablePolicy::kReplicated, [&](Tower& tower) {
        const std::int64_t begin = tower.index() * rows;
        const Output labels = constant(graph, Tensor({2}, std::vector<std::int32_t>{2, 0}));
        tower.loss(loss(tower, slice(constant(graph, logits()), {begin, 0}, {rows, 3}),
                        slice(labels, {begin}, {rows})));
      });
  Session session(graph, {.device_count = {{"CPU", towers}}, .threads = 1});
  double sum = 0;
  for (const TowerRecord& tower : built) sum += session.run(tower.loss).item<double>();
  return sum / towers;
}

// Values of torch.nn.functional.cross_entropy with weights, for one batch of both samples.
TEST(WeightedMean, IsThatOfPyTorchOverTheBatchesOfAllTowers) {
  for (const int towers : {1, 2}) {
    const auto mean = [&](const WeightedCrossEntropyOptions& options) {
      return mean_of_towers(towers, [&](Tower& tower, Output x, Output labels) {
        return cross_entropy(tower, x, labels, options);
      });
    };
    EXPECT_NEAR(mean({.class_weights = {1, 2, 0.5}}), 1.9696580763762404, 1e-14) << towers;
    EXPECT_NEAR(mean({.class_weights = {1, 2, 0.5}, .smoothing = 0.1}), 2.0674255947414006, 1e-14)
        << towers;
    // One row counts.
    const double second = std::log1p(std::exp(2.75) + std::exp(-1.0));
    EXPECT_NEAR(mean({.ignored = 2}), second, 1e-14) << towers;
  }
}

TEST(WeightedMean, TakesWeightsOfElements) {
  for (const int towers : {1, 2})
    EXPECT_NEAR(mean_of_towers(towers, [](Tower& tower, Output x,
                                          Output) { return weighted_mean(tower, x, square(x)); }),
                (0.125 - 1 + 8 + 0.015625 + 27 - 0.421875) / (0.25 + 1 + 4 + 0.0625 + 9 + 0.5625),
                1e-14)
        << towers;
}

// The weighted mean is `mean`, and evaluations read its sums.
TEST(WeightedMean, IsSplitIntoSumsForEvaluations) {
  Graph graph;
  const TowerRecord tower = predict_tower(graph, {}, [&](Tower& building) {
    const Output x = constant(graph, logits());
    const Output mean = weighted_mean(building, x, square(x)), plain = reduce_mean(x);
    building.loss(mean);
    building.metric("mixed", (plain - mean * 3.0) / 2.0 + 1.0);
    building.metric("other", exp(mean));
    building.metric("sums", metrics::ratio(x, x));
  });
  Session session(graph);
  const auto value = [&](Output x) { return session.run(x).item<double>(); };
  const double above = 0.125 - 1 + 8 + 0.015625 + 27 - 0.421875, below = 14.875;
  ASSERT_EQ(tower.evaluated.size(), 4U);
  for (const std::size_t i : {0, 1}) {
    ASSERT_EQ(tower.evaluated[i].terms.size(), 1U) << i;
    const Tensor sums = session.run(tower.evaluated[i].terms[0].sums);
    EXPECT_NEAR(sums.data<double>()[0], above, 1e-14) << i;
    EXPECT_NEAR(sums.data<double>()[1], below, 1e-14) << i;
  }
  EXPECT_NEAR(value(tower.loss), above / below, 1e-14);
  EXPECT_EQ(tower.evaluated[0].terms[0].factor, 1);
  EXPECT_EQ(value(tower.evaluated[0].rest), 0);
  EXPECT_EQ(tower.evaluated[1].terms[0].factor, -1.5);
  EXPECT_NEAR(value(tower.evaluated[1].rest), 4.0 / 6 / 2 + 1, 1e-14);
  EXPECT_TRUE(tower.evaluated[2].terms.empty());
  EXPECT_NEAR(value(tower.evaluated[2].rest), std::exp(above / below), 1e-14);
  EXPECT_EQ(tower.evaluated[3].rest, tower.metrics[2].value);
}

// Rows of three towers, of which the last has twice as many.
TEST(BatchMean, IsThatOfTheSamplesOfAllTowers) {
  Graph graph;
  const std::vector<TowerRecord> built =
      replicate(graph, cpus(3), VariablePolicy::kReplicated, [&](Tower& tower) {
        const std::int64_t begin = tower.index(), rows = begin == 2 ? 2 : 1;
        const Output x =
            constant(graph, Tensor({4, 1, 2}, std::vector<double>{1, 2, 3, 6, 5, 8, 7, 0}));
        const Output mean = batch_mean(tower, slice(x, {begin, 0, 0}, {rows, 1, 2}));
        EXPECT_EQ(mean.shape(), (Shape{1, 2}));
        tower.output("mean", mean);
        tower.loss(reduce_sum(square(mean)));
      });
  Session session(graph, {.device_count = {{"CPU", 3}}, .threads = 1});
  for (const TowerRecord& tower : built)
    EXPECT_EQ(session.run(tower.get("mean")), Tensor({1, 2}, std::vector<double>{4, 4}));
}

TEST(BatchMean, HasAGradientAndRefusesScalars) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, Tensor({4, 1}, std::vector<double>{1, 2, 3, 6}));
  const Output dx = gradients(reduce_sum(square(batch_mean(tower, x))), {x})[0];
  EXPECT_EQ(Session(graph).run(dx), Tensor({4, 1}, std::vector<double>{1.5, 1.5, 1.5, 1.5}));
  EXPECT_THAT(message_of([&] { batch_mean(tower, constant(graph, 1.0)); }),
              testing::HasSubstr("batch_mean (built at weighted_mean_test.cc:"));
}

TEST(WeightedMean, RefusesShapesThatDoNotFit) {
  Graph graph;
  Tower tower(graph);
  const Output x = constant(graph, logits());
  try {
    weighted_mean(tower, x, reshape(x, {6}));
    FAIL() << "was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("weighted_mean (built at weighted_mean_test.cc:"),
              std::string::npos)
        << error.what();
  }
  try {
    weighted_mean(tower, constant(graph, 1.0), constant(graph, 1.0));
    FAIL() << "was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("needs samples"), std::string::npos) << error.what();
  }
}

}  // namespace weighted_mean_test
}  // namespace belfry
