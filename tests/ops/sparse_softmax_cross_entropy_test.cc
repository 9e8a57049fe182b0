#include "belfry/ops/sparse_softmax_cross_entropy.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sparse_softmax_cross_entropy_test {

const Builder kLosses = [](Inputs x) { return sparse_softmax_cross_entropy(x[0], x[1]); };
const Builder kMean = [](Inputs x) { return cross_entropy(x[0], x[1]); };

Tensor labels(std::vector<std::int32_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor({count}, values);
}

TEST(SparseSoftmaxCrossEntropy, IsMinusTheLogProbabilityOfTheLabel) {
  const Tensor logits({3, 2}, std::vector<double>{0, std::log(3.0), 0, std::log(3.0), 7, 7});
  const std::vector<double> y = doubles(compute(kLosses, {logits, labels({1, 0, 0})}));
  EXPECT_NEAR(y[0], std::log(4.0 / 3), 1e-15);
  EXPECT_NEAR(y[1], std::log(4.0), 1e-15);
  EXPECT_NEAR(y[2], std::log(2.0), 1e-15);
}

TEST(SparseSoftmaxCrossEntropy, CrossEntropyIsItsMean) {
  const Tensor logits({2, 2}, std::vector<double>{0, 0, 5, 5});
  const Tensor wide({2}, std::vector<std::int64_t>{1, 0});
  EXPECT_NEAR(compute(kMean, {logits, wide}).item<double>(), std::log(2.0), 1e-15);
}

TEST(SparseSoftmaxCrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits({1, 2}, std::vector<float>{1000, -1000});
  EXPECT_EQ(doubles(compute(kLosses, {logits, labels({1})})), (std::vector<double>{2000}));
}

TEST(SparseSoftmaxCrossEntropy, TheGradientIsSoftmaxLessOneHot) {
  const Builder gradient = [](Inputs x) {
    return Built(gradients(sparse_softmax_cross_entropy(x[0], x[1]), {x[0]}));
  };
  const Tensor logits({1, 2}, std::vector<double>{0, std::log(3.0)});
  const std::vector<double> d = doubles(compute(gradient, {logits, labels({0})}));
  EXPECT_NEAR(d[0], -0.75, 1e-15);
  EXPECT_NEAR(d[1], 0.75, 1e-15);
}

TEST(SparseSoftmaxCrossEntropy, KeepsItsContract) {
  check_op({.build = kLosses, .inputs = {random_values({5, 7}), labels({0, 6, 3, 3, 1})}});
  check_op({.build = kLosses,
            .inputs = {random_values({3, 1500}),
                       Tensor({3}, std::vector<std::int64_t>{0, 1499, 1023})}});
  check_op({.build = kMean, .inputs = {random_values({4, 10}), labels({9, 0, 2, 5})}});
}

TEST(SparseSoftmaxCrossEntropy, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(sparse_softmax_cross_entropy(x[0], x[1]), {x[0]}, {.initial = {x[2]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values({4, 5}), labels({4, 0, 2, 2}), random_values({4}, -1, 1, 2)},
            .f32 = 2e-6,
            .unknown = false});
}

Builder losses(CrossEntropyOptions options) {
  return [options](Inputs x) { return sparse_softmax_cross_entropy(x[0], x[1], options); };
}

Builder gradient_of(CrossEntropyOptions options) {
  return [options](Inputs x) {
    return gradients(sparse_softmax_cross_entropy(x[0], x[1], options), {x[0]})[0];
  };
}

// The expected loss is -sum of target log(probability), in another order than in kernels.
TEST(SparseSoftmaxCrossEntropy, SmoothedTargetsAreSpreadOverAllClasses) {
  const std::vector<double> x{0.5, -1, 2, 0}, target{0.025, 0.025, 0.925, 0.025};
  double sum = 0, expected = 0;
  for (const double value : x) sum += std::exp(value);
  for (std::size_t i = 0; i < 4; ++i) expected -= target[i] * std::log(std::exp(x[i]) / sum);
  const std::vector<Tensor> inputs{Tensor({1, 4}, x), labels({2})};
  EXPECT_NEAR(doubles(compute(losses({.smoothing = 0.1}), inputs))[0], expected, 1e-14);
  const std::vector<double> dx = doubles(compute(gradient_of({.smoothing = 0.1}), inputs));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(dx[i], std::exp(x[i]) / sum - target[i], 1e-14);
}

TEST(SparseSoftmaxCrossEntropy, IgnoredRowsHaveNeitherLossNorGradient) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor logits({3, 2}, std::vector<float>{nan, 1, 0, 0, 5, 9});
  for (const std::int32_t ignored : {-100, 1}) {
    const Tensor given = labels({ignored, 0, ignored});
    const std::vector<double> y = doubles(compute(losses({.ignored = ignored}), {logits, given}));
    EXPECT_NEAR(y[1], std::log(2.0), 1e-7);
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(doubles(compute(gradient_of({.ignored = ignored}), {logits, given})),
              (std::vector<double>{0, 0, -0.5, 0.5, 0, 0}));
  }
}

// Its mean would be over other rows than that of cross_entropy(tower, ...).
TEST(SparseSoftmaxCrossEntropy, HasNoMeanWithIgnoredRows) {
  const Builder mean = [](Inputs x) { return cross_entropy(x[0], x[1], {.ignored = -1}); };
  try {
    compute(mean, {random_values({2, 3}), labels({0, -1})});
    FAIL() << "was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("cross_entropy(tower, logits, labels"),
              std::string::npos)
        << error.what();
  }
}

TEST(SparseSoftmaxCrossEntropy, KeepsItsContractWithOptions) {
  check_op({.build = losses({.smoothing = 0.2}),
            .inputs = {random_values({5, 7}), labels({0, 6, 3, 3, 1})}});
  check_op({.build = losses({.smoothing = 1}),
            .inputs = {random_values({3, 1500}), labels({0, 1499, 1023})}});
  check_op({.build = losses({.smoothing = 0.1, .ignored = -1}),
            .inputs = {random_values({5, 7}), labels({0, -1, 3, 6, -1})},
            .nan = false});
  const Builder mean = [](Inputs x) { return cross_entropy(x[0], x[1], {.smoothing = 0.1}); };
  check_op({.build = mean, .inputs = {random_values({4, 10}), labels({9, 0, 2, 5})}});
}

// check_op checks second derivatives of gradient_of(), too.
TEST(SparseSoftmaxCrossEntropy, HasSecondDerivativesThatIgnoreRows) {
  check_op({.build = gradient_of({.smoothing = 0.1, .ignored = -1}),
            .inputs = {random_values({5, 7}), labels({0, -1, 3, 6, -1})},
            .nan = false});
  const Builder twice = [](Inputs x) {
    return gradients(square(gradient_of({.ignored = 100})(x)[0]), {x[0]})[0];
  };
  const double nan = std::nan("");
  const std::vector<double> with_nan = doubles(
      compute(twice, {Tensor({2, 2}, std::vector<double>{1, 3, nan, nan}), labels({0, 100})}));
  const std::vector<double> alone =
      doubles(compute(twice, {Tensor({1, 2}, std::vector<double>{1, 3}), labels({0})}));
  ASSERT_GT(std::abs(alone[0]), 1e-3);
  EXPECT_NEAR(with_nan[0], alone[0], 1e-12);
  EXPECT_NEAR(with_nan[1], alone[1], 1e-12);
  EXPECT_EQ(with_nan[2], 0);
  EXPECT_EQ(with_nan[3], 0);
}

TEST(SparseSoftmaxCrossEntropy, RefusesToSmoothMoreThanAll) {
  expect_refused(losses({.smoothing = 1.5}), {{{8, 10}}, {{8}, DType::kI32}},
                 "smoothing must be from 0 to 1, not 1.5");
}

// By default no label is ignored, not even kNoLabel, the number of the default.
TEST(SparseSoftmaxCrossEntropy, RefusesTheNumberOfNoLabel) {
  const Tensor wide({1}, std::vector<std::int64_t>{kNoLabel});
  EXPECT_THROW(compute(kLosses, {random_values({1, 3}), wide}), InvalidArgument);
}

TEST(SparseSoftmaxCrossEntropy, NamesARowWhoseLabelIsNoClass) {
  const Tensor logits = random_values({3, 10});
  for (const std::int32_t wrong : {10, -1}) {
    try {
      compute(kLosses, {logits, labels({0, 9, wrong})});
      FAIL() << "label " << wrong << " was taken";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(cat("label ", wrong, " in row 2")), text.npos) << text;
      EXPECT_NE(text.find("SparseSoftmaxCrossEntropy '"), text.npos) << text;
      EXPECT_NE(text.find("sparse_softmax_cross_entropy_test.cc:"), text.npos) << text;
    }
  }
}

TEST(SparseSoftmaxCrossEntropy, RefusesLabelsThatDoNotMatch) {
  expect_refused(kLosses, {{{8, 10}}, {{9}, DType::kI32}}, "logits [8,10] and labels [9]");
  expect_refused(kLosses, {{{8, 10}}, {{8}, DType::kF32}}, "labels are i32 or i64, not f32");
}

TEST(SparseSoftmaxCrossEntropy, NamesTheRowOfTheWholeBatch) {
  Graph graph;
  const Output logits = placeholder(graph, "logits", DType::kF32, {kUnknownSize, 10});
  const Output wanted = placeholder(graph, "labels", DType::kI32, {kUnknownSize});
  Session session(graph, {.shards_per_device = 2, .threads = 1});
  CompiledStep& step = session.prepare({sparse_softmax_cross_entropy(logits, wanted)},
                                       {FeedType{logits, {3, 10}, 10}, FeedType{wanted, {3}, 10}});
  try {
    step.run(std::vector{random_values({3, 10}), labels({0, 9, 10})});
    FAIL();
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("label 10 in row 12"), text.npos) << text;
  }
}

}  // namespace sparse_softmax_cross_entropy_test
}  // namespace belfry
