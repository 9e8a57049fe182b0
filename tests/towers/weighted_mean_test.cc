#include "belfry/towers/weighted_mean.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/square.h"
#include "belfry/tests/towers/towers_test_support.h"
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

TEST(WeightedMean, OfATowerThatDoesNotTrainIsOverSamples) {
  Graph graph;
  Tower tower(graph, {}, false);
  const Output x = constant(graph, logits());
  const double mean = Session(graph).run(weighted_mean(tower, x, square(x))).item<double>();
  EXPECT_NEAR(mean, (0.125 - 1 + 8 + 0.015625 + 27 - 0.421875) / 6, 1e-14);
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
