#include "belfry/ops/losses/ctc_loss.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace ctc_loss_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor ints(Shape shape, std::vector<std::int32_t> values) { return Tensor(shape, values); }
Tensor longs(Shape shape, std::vector<std::int64_t> values) { return Tensor(shape, values); }

Builder losses(CtcOptions options = {}) {
  options.reduction = LossReduction::kNone;
  return [options](Inputs x) { return ctc_loss(x[0], x[1], x[2], x[3], options); };
}
Builder gradient(CtcOptions options = {}) {
  return [build = losses(options)](Inputs x) { return gradients(build(x)[0], {x[0]})[0]; };
}

// Logits of 3 samples, 5 steps and 4 classes.
Tensor logits() {
  std::vector<double> x;
  for (int i = 0; i < 3; ++i)
    for (int t = 0; t < 5; ++t)
      for (int c = 0; c < 4; ++c) x.push_back((7 * i + 5 * t + 3 * c) % 11 / 4.0 - 1);
  return Tensor({3, 5, 4}, x);
}
// A repeated label, a sample with fewer steps, and one without labels.
std::vector<Tensor> example() {
  return {logits(), ints({3, 3}, {1, 1, 2, 3, 2, 0, 2, 0, 0}), ints({3}, {5, 4, 3}),
          ints({3}, {3, 2, 0})};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

// The probability of the labels, by going through all paths.
double by_enumeration(const double* x, int steps, int classes, const std::vector<int>& labels) {
  std::vector<double> p;
  for (int t = 0; t < steps; ++t) {
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(x[t * classes + c]);
    for (int c = 0; c < classes; ++c) p.push_back(std::exp(x[t * classes + c]) / sum);
  }
  double total = 0;
  for (int path = 0; path < std::pow(classes, steps); ++path) {
    std::vector<int> left;
    double probability = 1;
    int before = 0, rest = path;
    for (int t = 0; t < steps; ++t, rest /= classes) {
      const int now = rest % classes;
      probability *= p[static_cast<std::size_t>(t * classes + now)];
      if (now != 0 && now != before) left.push_back(now);
      before = now;
    }
    if (left == labels) total += probability;
  }
  return -std::log(total);
}

TEST(CtcLoss, IsMinusTheLogProbabilityOfAllPathsThatGiveTheLabels) {
  const std::vector<double> y = doubles(compute(losses(), example()));
  const Tensor x = logits();
  const double* const first = x.data<double>().data();
  expect_near(y, {by_enumeration(first, 5, 4, {1, 1, 2}), by_enumeration(first + 20, 4, 4, {3, 2}),
                  by_enumeration(first + 40, 3, 4, {})});
}

// Values of PyTorch 2.15, torch.nn.functional.ctc_loss.
TEST(CtcLoss, HasTheValuesAndGradientsOfPyTorch) {
  expect_near(doubles(compute(losses(), example())),
              {5.773059883115313, 3.46333140268363, 4.916773892031023});
  const std::vector<double> dx = doubles(compute(gradient(), example()));
  expect_near(
      {dx.begin(), dx.begin() + 8},
      {-0.11995721436149924, -0.6976172618321456, 0.26229530697344183, 0.5552791692202029,
       -0.19429348444319017, -0.02840665438211878, 0.07144694823175618, 0.15125319059355274});
  // The fourth step of the second sample, and the fifth, which it does not have.
  expect_near({dx.begin() + 32, dx.begin() + 40},
              {0.0038688036512110812, 0.12389952995519081, -0.6830475028266042, 0.5552791692202024,
               0, 0, 0, 0});
  expect_near({dx.begin() + 40, dx.begin() + 44},
              {-0.8781263596984533, 0.2580064985430215, 0.5461997617017545, 0.07392009945367732});
}

TEST(CtcLoss, AnotherClassMayBeTheBlank) {
  std::vector<Tensor> inputs = example();
  inputs[1] = longs({3, 3}, {1, 1, 2, 0, 2, 0, 2, 0, 0});
  inputs[3] = longs({3}, {3, 2, 0});
  expect_near(doubles(compute(losses({.blank = 3}), inputs)),
              {5.4101811189985645, 3.435051168406182, 6.416773892031023});
}

TEST(CtcLoss, ReducesAsPyTorchByTheNumberOfLabels) {
  const auto reduced = [](LossReduction reduction) {
    return compute(
               [&](Inputs x) { return ctc_loss(x[0], x[1], x[2], x[3], {.reduction = reduction}); },
               example())
        .item<double>();
  };
  EXPECT_NEAR(reduced(LossReduction::kMean), 2.8575976292482035, 1e-12);
  EXPECT_NEAR(reduced(LossReduction::kBatchMean),
              (5.773059883115313 + 3.46333140268363 + 4.916773892031023) / 3, 1e-12);
}

// "1 1 2" needs four steps.
TEST(CtcLoss, LabelsThatDoNotFitHaveAnInfiniteLossOrNone) {
  std::vector<Tensor> inputs = example();
  inputs[2] = ints({3}, {3, 4, 0});
  const std::vector<double> y = doubles(compute(losses(), inputs));
  EXPECT_EQ(y[0], kInfinity);
  EXPECT_NEAR(y[1], 3.46333140268363, 1e-12);
  EXPECT_EQ(y[2], 0);  // no labels in no time
  const std::vector<double> dx = doubles(compute(gradient(), inputs));
  EXPECT_TRUE(std::isnan(dx[0]));
  EXPECT_TRUE(std::isnan(dx[11]));
  EXPECT_EQ(dx[12], 0);
  EXPECT_NEAR(dx[32], 0.0038688036512110812, 1e-12);
  EXPECT_EQ(doubles(compute(losses({.zero_infinity = true}), inputs))[0], 0);
  const std::vector<double> zeros = doubles(compute(gradient({.zero_infinity = true}), inputs));
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(zeros[i], 0) << i;
  EXPECT_NEAR(zeros[32], 0.0038688036512110812, 1e-12);
}

// Probabilities of 400 steps are far below the least number of f64.
TEST(CtcLoss, OfALongSequenceDoesNotUnderflow) {
  const std::int64_t steps = 400;
  const Tensor x(Shape{1, steps, 3}, std::vector<double>(static_cast<std::size_t>(steps * 3), 0.0));
  std::vector<std::int32_t> labels;
  for (int i = 0; i < steps; ++i) labels.push_back(1 + i % 2);
  const std::vector<Tensor> inputs{x, ints({1, steps}, labels), ints({1}, {400}), ints({1}, {400})};
  EXPECT_NEAR(doubles(compute(losses(), inputs))[0], 400 * std::log(3.0), 1e-9);  // a single path
  const std::vector<double> dx = doubles(compute(gradient(), inputs));
  EXPECT_NEAR(dx[0], 1.0 / 3, 1e-9);
  EXPECT_NEAR(dx[1], -2.0 / 3, 1e-9);
}

TEST(CtcLoss, DoesNotReadWhatComesAfterTheEnd) {
  std::vector<Tensor> inputs = example();
  Tensor x = logits();
  for (std::size_t i = 36; i < 40; ++i)
    x.mutable_data<double>()[i] = std::numeric_limits<double>::quiet_NaN();
  inputs[0] = x;
  inputs[1] = ints({3, 3}, {1, 1, 2, 3, 2, -1, 99, -1, -1});
  EXPECT_EQ(compute(losses(), inputs), compute(losses(), example()));
  EXPECT_EQ(compute(gradient(), inputs), compute(gradient(), example()));
}

TEST(CtcLoss, KeepsItsContract) {
  check_op({.build = losses(),
            .inputs = {random_values({5, 7, 4}),
                       ints({5, 3}, {1, 2, 3, 1, 1, 2, 3, 3, 3, 2, 1, 2, 1, 3, 1}),
                       ints({5}, {7, 7, 7, 7, 7}), ints({5}, {3, 3, 2, 0, 1})}});
  check_op({.build = losses({.blank = 2, .zero_infinity = true}),
            .inputs = {random_values({4, 6, 3}), longs({4, 2}, {1, 0, 0, 0, 1, 1, 0, 1}),
                       longs({4}, {6, 2, 0, 5}), longs({4}, {2, 2, 1, 1})},
            .nan = false});
  check_op({.build = [](Inputs x) { return ctc_loss(x[0], x[1], x[2], x[3]); },
            .inputs = {random_values({4, 40, 33}), ints({4, 5}, std::vector<std::int32_t>(20, 7)),
                       ints({4}, {40, 39, 20, 11}), ints({4}, {5, 4, 3, 0})},
            .nan = false});
}

std::string refusal(const std::vector<Tensor>& inputs) {
  try {
    compute(losses(), inputs);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(CtcLoss, NamesTheRowOfAWrongLengthOrLabel) {
  const auto with = [](std::size_t i, Tensor tensor) {
    std::vector<Tensor> inputs = example();
    inputs[i] = std::move(tensor);
    return refusal(inputs);
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), text.npos) << text;
    EXPECT_NE(text.find("CtcLoss '"), text.npos) << text;
    EXPECT_NE(text.find("ctc_loss_test.cc:"), text.npos) << text;
  };
  expect(with(2, ints({3}, {5, 6, 3})), "logit length 6 is not in [0, 5] (row 1)");
  expect(with(3, ints({3}, {3, 2, -1})), "label length -1 is not in [0, 3] (row 2)");
  expect(with(1, ints({3, 3}, {1, 1, 2, 3, 4, 0, 2, 0, 0})),
         "label 4 is not one of the 4 classes [0, 4) (row 1)");
  expect(with(1, ints({3, 3}, {1, 0, 2, 3, 2, 0, 2, 0, 0})),
         "label 0 is the blank; no label may be (row 0)");
}

TEST(CtcLoss, RefusesShapesThatDoNotFit) {
  const TensorType x{{3, 5, 4}}, labels{{3, 2}, DType::kI32}, lengths{{3}, DType::kI64};
  expect_refused(losses(), {x, {{2, 2}, DType::kI32}, lengths, lengths},
                 "logits [3,5,4] and labels [2,2] differ in number");
  expect_refused(losses(), {x, labels, {{3}}, lengths},
                 "logit lengths are f32, but must be i32 or i64");
  expect_refused(losses({.blank = 4}), {x, labels, lengths, lengths},
                 "the blank is class 4, but there are the classes [0, 4)");
}

TEST(CtcLoss, RefusesSecondDerivatives) {
  const Builder twice = [](Inputs x) { return gradients(gradient()(x)[0], {x[0]})[0]; };
  try {
    compute(twice, example());
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ctc_loss has no second derivative"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace ctc_loss_test
}  // namespace belfry
