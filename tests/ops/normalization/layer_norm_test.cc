#include "belfry/ops/normalization/layer_norm.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace layer_norm_test {

const Builder kLayer = [](Inputs x) { return layer_norm(x[0], x[1], x[2]); };
const Builder kRms = [](Inputs x) { return rms_norm(x[0], x[1]); };

Tensor vector(std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor({count}, values);
}

TEST(LayerNorm, GivesEachRowMeanBetaAndDeviationGamma) {
  const Builder exact = [](Inputs x) { return layer_norm(x[0], x[1], x[2], {.epsilon = 0}); };
  // Means 2 and 10, variances 1 and 4.
  const Tensor x({2, 2}, std::vector<double>{1, 3, 12, 8});
  EXPECT_EQ(doubles(compute(exact, {x, vector({1, 3}), vector({0, 5})})),
            (std::vector<double>{-1, 8, 1, 2}));
}

TEST(LayerNorm, AddsEpsilonToTheVariance) {
  const Builder flat = [](Inputs x) { return layer_norm(x[0], x[1], x[2], {.epsilon = 3}); };
  const Tensor x({1, 2}, std::vector<double>{4, 6});
  EXPECT_EQ(doubles(compute(flat, {x, vector({2, 2}), vector({0, 0})})),
            (std::vector<double>{-1, 1}));
}

TEST(LayerNorm, ALargeMeanDoesNotDestroyTheVariance) {
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i) values.push_back(10000 + static_cast<float>(i % 2));
  const Tensor ones({4000}, std::vector<float>(4000, 1)), zeros({4000}, DType::kF32);
  const std::vector<double> y = doubles(compute(kLayer, {Tensor({1, 4000}, values), ones, zeros}));
  for (const std::size_t i : {0, 1, 2001, 3998}) EXPECT_NEAR(y[i], i % 2 ? 1 : -1, 1e-4) << i;
}

TEST(LayerNorm, KeepsItsContract) {
  for (const Shape& shape :
       {Shape{5, 3}, Shape{3, 2, 4, 17}, Shape{2, 1030}, Shape{2200, 9}, Shape{2117, 140}})
    check_op({.build = kLayer,
              .inputs = {random_values(shape), random_values({shape.back()}, 0.5, 2, 2),
                         random_values({shape.back()}, -1, 1, 3)},
              .f32 = 2e-6,
              .f64 = 1e-12,
              // Numeric gradients of so many take too long.
              .gradient = shape.elements() > 1000 ? -1 : 1e-6});
}

// The rows make several groups of sums.
TEST(LayerNorm, GradientsOfManyRowsMatchPlainLoops) {
  const Builder gradient = [](Inputs x) {
    return Built(gradients(layer_norm(x[0], x[1], x[2]), {x[0], x[1], x[2]}, {.initial = {x[3]}}));
  };
  check_op({.build = gradient,
            .inputs = {random_values({2500, 5}), random_values({5}, 0.5, 2, 2),
                       random_values({5}, -1, 1, 3), random_values({2500, 5}, -1, 1, 4)},
            .f32 = 2e-6,
            .f64 = 1e-12,
            .gradient = -1,
            .nan = false,
            .unknown = false});
}

TEST(LayerNorm, RefusesWhatItCannotNormalise) {
  expect_refused(kLayer, {{{8, 4}}, {{5}}, {{4}}},
                 "input 1 has shape [5], but rows have 4 elements");
  expect_refused(kLayer, {{{4}}, {{4}}, {{4}}}, "reshape a vector to [1,n]");
  expect_refused(kLayer, {{{8, 4}, DType::kI32}, {{4}}, {{4}}}, "LayerNorm 'LayerNorm'");
  const Builder negative = [](Inputs x) { return layer_norm(x[0], x[1], x[2], {.epsilon = -1}); };
  expect_refused(negative, {{{8, 4}}, {{4}}, {{4}}}, "epsilon must not be negative, but is -1");
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  const Builder exact = [](Inputs x) { return rms_norm(x[0], x[1], {.epsilon = 0}); };
  const Tensor x({2, 2}, std::vector<double>{1, 7, -3, 3});  // 5 and 3
  const std::vector<double> y = doubles(compute(exact, {x, vector({5, 10})}));
  const std::vector<double> expected{1, 14, -5, 10};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-14) << i;
}

TEST(RmsNorm, KeepsItsContract) {
  for (const Shape& shape :
       {Shape{5, 3}, Shape{3, 2, 4, 17}, Shape{2, 1030}, Shape{2200, 9}, Shape{2117, 140}})
    check_op({.build = kRms,
              .inputs = {random_values(shape), random_values({shape.back()}, 0.5, 2, 2)},
              .f32 = 2e-6,
              .f64 = 1e-12,
              .gradient = shape.elements() > 1000 ? -1 : 1e-6});
}

TEST(RmsNorm, RefusesAGammaOfAnotherSize) {
  expect_refused(kRms, {{{8, 4}}, {{5}}}, "RmsNorm 'RmsNorm'");
  expect_refused(kRms, {{{8, 4}}, {{5}}}, "input 1 has shape [5], but rows have 4 elements");
}

TEST(RmsNorm, RefusesVectorsIntegersAndANegativeEpsilon) {
  expect_refused(kRms, {{{4}}, {{4}}}, "reshape a vector to [1,n]");
  expect_refused(kRms, {{{8, 4}, DType::kI32}, {{4}}}, "RmsNorm 'RmsNorm'");
  const Builder negative = [](Inputs x) { return rms_norm(x[0], x[1], {.epsilon = -1}); };
  expect_refused(negative, {{{8, 4}}, {{4}}}, "epsilon must not be negative, but is -1");
}

// Only the sum of the shards' gradients of gamma and beta runs once.
TEST(LayerNorm, OfABatchInShardsIsComputedByThem) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  const Output gamma = fill(graph, {3}, 2), beta = fill(graph, {3}, 1);
  const Output y = rms_norm(layer_norm(x, gamma, beta), gamma);
  const std::vector<Output> all = gradients(y, std::vector{x, gamma}, {.initial = {x * 2}});
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  CompiledStep& step = session.prepare({y.node(), all[0].node(), all[1]}, {FeedType{x, {8, 3}, 0}});
  std::map<const Op*, int> runs;
  for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
  for (const Op* op : {&kLayerNorm, &kLayerNormGrad, &kRmsNorm, &kRmsNormGrad})
    EXPECT_EQ(runs.at(op), 4) << op->name;
  EXPECT_EQ(runs.at(&kSumShards), 1);
  EXPECT_FALSE(runs.contains(&kGatherShards));
}

}  // namespace layer_norm_test
}  // namespace belfry
