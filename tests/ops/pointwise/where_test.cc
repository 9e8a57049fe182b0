#include "belfry/ops/pointwise/where.h"

#include <array>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace where_test {

Output chosen(Inputs x) { return where(x[0], x[1], x[2]); }

// Some true, some false.
Tensor truths(const Shape& shape) {
  Tensor result(shape, DType::kBool);
  std::int64_t i = 0;
  for (bool& truth : result.mutable_data<bool>()) truth = i++ % 3 == 0;
  return result;
}

TEST(Where, ChoosesElements) {
  const std::vector<Tensor> x{truths({4}), Tensor({4}, std::vector<float>{1, 2, 3, 4}),
                              Tensor({4}, std::vector<float>{5, 6, 7, 8})};
  EXPECT_EQ(doubles(compute(chosen, x)), (std::vector<double>{1, 6, 7, 4}));
}

TEST(Where, TakesNumbersAndEveryType) {
  for (const DType dtype : {DType::kF16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    const Tensor x = to(Tensor({4}, std::vector<float>{1, 2, 3, 4}), dtype);
    EXPECT_EQ(doubles(compute([](Inputs in) { return where(in[0], in[1], 9); }, {truths({4}), x})),
              (std::vector<double>{1, 9, 9, 4}));
    EXPECT_EQ(doubles(compute([](Inputs in) { return where(in[0], 9, in[1]); }, {truths({4}), x})),
              (std::vector<double>{9, 2, 3, 9}));
  }
}

TEST(Where, PassesNoGradientToWhatIsNotChosen) {
  const Builder slope = [](Inputs x) {
    return gradients(where(greater(x[0], 0.0), x[1], 0.0), {x[1]})[0];
  };
  const Tensor x({3}, std::vector<double>{-1, 0, 2});
  const Tensor nan({3}, std::vector<double>(3, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(doubles(compute(slope, {x, nan})), (std::vector<double>{0, 0, 1}));
}

TEST(Where, KeepsItsContractForEveryWayToRepeat) {
  const std::vector<std::array<Shape, 3>> shapes = {
      {{{5, 7}, {5, 7}, {5, 7}}}, {{{5, 7}, {}, {5, 7}}},       {{{5, 7}, {5, 7}, {}}},
      {{{5, 1}, {5, 7}, {7}}},    {{{7}, {5, 7}, {5, 1}}},      {{{5, 1}, {1, 7}, {5, 7}}},
      {{{5, 7}, {7}, {5, 1}}},    {{{2, 3, 4}, {3, 1}, {4}}},   {{{4}, {2, 1, 4}, {3, 1}}},
      {{{5, 1}, {7}, {}}},        {{{2, 1, 4}, {2, 3, 1}, {}}}, {{{5, 37}, {5, 1}, {37}}}};
  for (const auto& [condition, a, b] : shapes) {
    SCOPED_TRACE(cat(condition, " ", a, " ", b));
    check_op({.build = chosen,
              .inputs = {truths(condition), random_values(a), random_values(b, -2, 2, 2)}});
  }
}

// Only a run shows whether [?,3] was repeated.
TEST(Where, GradientsOfUnknownShapesSumWhatWasRepeated) {
  Graph graph;
  const Output condition = placeholder(graph, "c", DType::kBool, {kUnknownSize, 3});
  const Output a = placeholder(graph, "a", DType::kF32, {kUnknownSize, 3});
  const Output slope = gradients(where(condition, a, 0.0), {a})[0];
  const FeedValue repeated[] = {{condition, truths({2, 3})}, {a, Tensor({1, 3}, DType::kF32)}};
  EXPECT_EQ(evaluate(slope, repeated), Tensor({1, 3}, std::vector<float>{2, 0, 0}));
}

TEST(Where, RefusesWhatDoesNotFit) {
  expect_refused(chosen, {{{2}, DType::kF32}, {{2}}, {{2}}},
                 "the condition is f32, not bool; compare it, as in not_equal(x, 0)");
  expect_refused(chosen, {{{2}, DType::kBool}, {{2}, DType::kF32}, {{2}, DType::kI32}},
                 "chooses from f32 and i32; cast one");
  expect_refused(chosen, {{{2}, DType::kBool}, {{3}}, {{3}}}, "shapes [2] and [3] do not fit");
  expect_refused([](Inputs x) { return where(x[0], 1, 2); }, {{{2}, DType::kBool}},
                 "has no tensor on either side");
}

}  // namespace where_test
}  // namespace belfry
