#include "belfry/ops/normalization/batch_norm.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/normalization/moments.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace batch_norm_test {

const Builder kTrain = [](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; };
const Builder kMoments = [](Inputs x) {
  const BatchNorm result = batch_norm_train(x[0], x[1], x[2]);
  return Built({result.mean, result.variance});
};
const Builder kInference = [](Inputs x) {
  return batch_norm_inference(x[0], x[1], x[2], x[3], x[4]);
};

Tensor vector(std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor({count}, values);
}

TEST(BatchNorm, GivesEachChannelMeanBetaAndDeviationGamma) {
  const Builder exact = [](Inputs x) {
    return batch_norm_train(x[0], x[1], x[2], {.epsilon = 0}).y;
  };
  // Means 2 and 10, variances 1 and 4.
  const Tensor x({2, 2}, std::vector<double>{1, 8, 3, 12});
  EXPECT_EQ(doubles(compute(exact, {x, vector({1, 3}), vector({0, 5})})),
            (std::vector<double>{-1, 2, 1, 8}));
}

TEST(BatchNorm, TheMomentsAreThoseOfThePopulation) {
  const Tensor x({4, 1, 1}, std::vector<double>{1, 2, 3, 6});
  const Builder mean = [](Inputs in) { return batch_norm_train(in[0], in[1], in[2]).mean; };
  const Builder variance = [](Inputs in) { return batch_norm_train(in[0], in[1], in[2]).variance; };
  EXPECT_EQ(compute(mean, {x, vector({1}), vector({0})}).item<double>(), 3);
  EXPECT_EQ(compute(variance, {x, vector({1}), vector({0})}).item<double>(), 3.5);
}

TEST(BatchNorm, ALargeMeanDoesNotDestroyTheVariance) {
  std::vector<float> values;
  for (int i = 0; i < 10000; ++i) values.push_back(10000 + static_cast<float>(i % 2));
  const Builder variance = [](Inputs in) { return batch_norm_train(in[0], in[1], in[2]).variance; };
  const Tensor result = compute(variance, {Tensor({10000, 1}, values), to(vector({1}), DType::kF32),
                                           to(vector({0}), DType::kF32)});
  EXPECT_NEAR(result.data<float>()[0], 0.25, 1e-6);
}

TEST(BatchNorm, InferenceUsesTheGivenMoments) {
  const Builder exact = [](Inputs x) {
    return batch_norm_inference(x[0], x[1], x[2], x[3], x[4], {.epsilon = 0});
  };
  const Tensor x({1, 2}, std::vector<double>{5, 7});
  EXPECT_EQ(
      doubles(compute(exact, {x, vector({1, 2}), vector({0, 1}), vector({3, 3}), vector({4, 16})})),
      (std::vector<double>{1, 3}));
}

TEST(BatchNorm, TrainKeepsItsContract) {
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 4, 17}, Shape{700, 9}})
    check_op({.build = kTrain,
              .inputs = {random_values(shape), random_values({shape.back()}, 0.5, 2, 2),
                         random_values({shape.back()}, -1, 1, 3)},
              .f32 = 2e-6,
              .f64 = 1e-12,
              // Numeric gradients of many rows take too long; GradientSums tests those.
              .gradient = shape[0] == 700 ? -1 : 1e-6});
}

TEST(BatchNorm, GradientSumsOfManyRowsMatchPlainLoops) {
  constexpr std::int64_t kRows = 2001, kChannels = 9;
  const Tensor dy = random_values({kRows, kChannels}, -1, 1, 2),
               x = random_values({kRows, kChannels});
  const Tensor mean = random_values({kChannels}, -1, 1, 3);
  std::vector<float> sum(kChannels), product(kChannels);
  std::vector<float> scratch(static_cast<std::size_t>(kernels::moment_scratch(kRows, kChannels)));
  kernels::gradient_sums(dy.data<float>().data(), x.data<float>().data(), mean.data<float>().data(),
                         kRows, kChannels, sum.data(), product.data(), scratch.data());
  for (std::size_t c = 0; c < kChannels; ++c) {
    double plain_sum = 0, plain_product = 0;
    for (std::size_t i = c; i < dy.data<float>().size(); i += kChannels) {
      plain_sum += dy.data<float>()[i];
      plain_product += dy.data<float>()[i] * (x.data<float>()[i] - mean.data<float>()[c]);
    }
    EXPECT_NEAR(sum[c], plain_sum, 1e-4) << c;
    EXPECT_NEAR(product[c], plain_product, 1e-4) << c;
  }
}

TEST(BatchNorm, MomentsKeepTheirContract) {
  check_op({.build = kMoments,
            .inputs = {random_values({1100, 9}, 0, 3), random_values({9}), random_values({9})},
            .gradient = -1,
            .nan = false});
}

TEST(BatchNorm, InferenceKeepsItsContract) {
  for (const Shape& shape : {Shape{5, 2, 7}, Shape{3, 300}})
    check_op({.build = kInference,
              .inputs = {random_values(shape), random_values({shape.back()}, 0.5, 2, 2),
                         random_values({shape.back()}, -1, 1, 3),
                         random_values({shape.back()}, -1, 1, 4),
                         random_values({shape.back()}, 0.5, 2, 5)},
              .f32 = 2e-6});
}

TEST(BatchNorm, RefusesAGammaOfAnotherSize) {
  expect_refused(kTrain, {{{8, 4}}, {{5}}, {{4}}},
                 "input 1 has shape [5], but there are 4 channels");
  expect_refused(kInference, {{{8, 4}}, {{4}}, {{4}}, {{4}}, {{2}}}, "input 4 has shape [2]");
}

TEST(BatchNorm, RefusesGradientsOfTheMoments) {
  const Builder wrong = [](Inputs x) {
    return Built(gradients(batch_norm_train(x[0], x[1], x[2]).mean, {x[0]}));
  };
  expect_refused(wrong, {{{8, 4}}, {{4}}, {{4}}}, "use stop_gradient");
}

// Each shard has its own moments and sums. Only their combination runs once.
TEST(BatchNorm, OfABatchInShardsGathersMomentsAndSumsAlone) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  const Output gamma = fill(graph, {3}, 2), beta = fill(graph, {3}, 1);
  const BatchNorm norm = batch_norm_train(x, gamma, beta);
  const Output dx = gradients(norm.y, std::vector{x}, {.initial = {x * 2}})[0];
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  CompiledStep& step = session.prepare({norm.mean, dx.node()}, {FeedType{x, {8, 3}, 0}});
  std::map<const Op*, int> runs;
  for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
  for (const Op* op : {&kBatchMoments, &kBatchNormInference, &kBatchNormSums, &kBatchNormInputGrad})
    EXPECT_EQ(runs.at(op), 4) << op->name;
  EXPECT_EQ(runs.at(&kCombineMoments), 1);
  EXPECT_EQ(runs.at(&kSumShards), 1);
  EXPECT_FALSE(runs.contains(&kGatherShards));
}

// y, dx, dgamma and dbeta of a batch in three shards of different sizes.
std::vector<Tensor> in_three_shards(bool reference) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF64, {kUnknownSize, 2, 3});
  const Output gamma = fill(graph, {3}, 2, DType::kF64), beta = fill(graph, {3}, 1, DType::kF64);
  const Output y = batch_norm_train(x, gamma, beta).y;
  const std::vector<Output> all = gradients(y, std::vector{x, gamma, beta}, {.initial = {x * x}});
  Session session(graph, {.shards_per_device = 3, .reference_kernels = reference});
  CompiledStep& step = session.prepare({y, all[0], all[1], all[2]}, {FeedType{x, {5, 2, 3}, 0}});
  step.run(std::vector{to(random_values({5, 2, 3}), DType::kF64)});
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < 4; ++i) {
    results.push_back(step.fetched(i));
    results.back().mutable_raw();  // memory of its own
  }
  return results;
}

TEST(BatchNormInput, GradientsOfShardsAreThoseOfThePlainKernels) {
  const std::vector<Tensor> fast = in_three_shards(false), plain = in_three_shards(true);
  for (std::size_t i = 0; i < fast.size(); ++i) EXPECT_LE(difference(fast[i], plain[i]), 1e-12);
}

}  // namespace batch_norm_test
}  // namespace belfry
