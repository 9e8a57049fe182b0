#include "belfry/ops/pointwise/comparisons.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace comparisons_test {

using Comparison = Output (*)(Operand, Operand, At);
using Truths = std::vector<double>;

Builder of(Comparison op) {
  return [op](Inputs x) { return op(x[0], x[1], {}); };
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Comparison kAllComparisons[] = {equal,      not_equal, less,
                                          less_equal, greater,   greater_equal};

TEST(Compare, HasValuesKnownByHand) {
  const std::vector<Tensor> x{Tensor({5}, std::vector<double>{1, 2, 3, kNan, kNan}),
                              Tensor({5}, std::vector<double>{2, 2, 2, 1, kNan})};
  EXPECT_EQ(doubles(compute(of(equal), x)), (Truths{0, 1, 0, 0, 0}));
  EXPECT_EQ(doubles(compute(of(not_equal), x)), (Truths{1, 0, 1, 1, 1}));
  EXPECT_EQ(doubles(compute(of(less), x)), (Truths{1, 0, 0, 0, 0}));
  EXPECT_EQ(doubles(compute(of(less_equal), x)), (Truths{1, 1, 0, 0, 0}));
  EXPECT_EQ(doubles(compute(of(greater), x)), (Truths{0, 0, 1, 0, 0}));
  EXPECT_EQ(doubles(compute(of(greater_equal), x)), (Truths{0, 1, 1, 0, 0}));
  EXPECT_EQ(compute(of(less), x).dtype(), DType::kBool);
}

TEST(Compare, TakesEveryType) {
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8, DType::kF32, DType::kF64}) {
    const std::vector<Tensor> x{to(Tensor({3}, std::vector<float>{1, 2, 3}), dtype),
                                to(Tensor({3}, std::vector<float>{2, 2, 2}), dtype)};
    EXPECT_EQ(doubles(compute(of(less), x)), (Truths{1, 0, 0})) << name_of(dtype);
  }
  const std::vector<Tensor> bools{to(Tensor({2}, std::vector<float>{0, 1}), DType::kBool),
                                  to(Tensor({2}, std::vector<float>{1, 1}), DType::kBool)};
  EXPECT_EQ(doubles(compute(of(equal), bools)), (Truths{0, 1}));
  EXPECT_EQ(doubles(compute(of(less), bools)), (Truths{1, 0}));
}

TEST(Compare, TakesNumbersOnEitherSide) {
  const Tensor x({3}, std::vector<std::int64_t>{-1, 0, 1});
  EXPECT_EQ(doubles(compute([](Inputs in) { return greater(in[0], 0); }, {x})), (Truths{0, 0, 1}));
  EXPECT_EQ(doubles(compute([](Inputs in) { return greater(0, in[0]); }, {x})), (Truths{1, 0, 0}));
}

TEST(Compare, LogicalOpsTakeNumbersAsTruths) {
  const std::vector<Tensor> x{Tensor({4}, std::vector<float>{0, 0, -2, 0.5}),
                              Tensor({4}, std::vector<float>{0, 3, 0, 1})};
  EXPECT_EQ(doubles(compute([](Inputs in) { return logical_and(in[0], in[1]); }, x)),
            (Truths{0, 0, 0, 1}));
  EXPECT_EQ(doubles(compute([](Inputs in) { return logical_or(in[0], in[1]); }, x)),
            (Truths{0, 1, 1, 1}));
  EXPECT_EQ(doubles(compute([](Inputs in) { return logical_not(in[0]); }, x)),
            (Truths{1, 1, 0, 0}));
  const Builder of_bools = [](Inputs in) {
    return logical_not(logical_or(less(in[0], in[1]), equal(in[0], in[1])));
  };
  EXPECT_EQ(doubles(compute(of_bools, x)), (Truths{0, 0, 0, 0}));
}

TEST(Compare, FindsNumbersThatAreNotFinite) {
  const Tensor x({5}, std::vector<double>{1, kNan, kInfinity, -kInfinity, -1e308});
  EXPECT_EQ(doubles(compute([](Inputs in) { return isnan(in[0]); }, {x})), (Truths{0, 1, 0, 0, 0}));
  EXPECT_EQ(doubles(compute([](Inputs in) { return isfinite(in[0]); }, {x})),
            (Truths{1, 0, 0, 0, 1}));
}

TEST(Compare, BecomesNumbersByACast) {
  const std::vector<Tensor> x{Tensor({2}, std::vector<float>{1, 2}),
                              Tensor({2}, std::vector<float>{2, 1})};
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
    const Tensor y = compute([&](Inputs in) { return cast(less(in[0], in[1]), dtype); }, x);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(doubles(y), (Truths{1, 0}));
  }
}

TEST(Compare, KeepsItsContractForEveryWayToRepeat) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{5, 7}, {5, 7}}, {{5, 7}, {7}}, {{7}, {5, 7}}, {{5, 7}, {}}, {{5, 1}, {1, 7}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(cat(a, " and ", b));
    for (const Comparison op : kAllComparisons)
      check_op({.build = of(op),
                .inputs = {random_values(a), random_values(b, -2, 2, 2)},
                .gradient = -1,
                .nan = false});
  }
}

TEST(Compare, RefusesShapesAndTypesThatDiffer) {
  expect_refused(of(equal), {{{2, 3}}, {{2, 4}}}, "shapes [2,3] and [2,4] do not fit");
  expect_refused(of(less), {{{2}, DType::kF32}, {{2}, DType::kI32}}, "cast");
  expect_refused([](Inputs x) { return isfinite(x[0]); }, {{{2}, DType::kI32}}, "is not exact in");
}

}  // namespace comparisons_test
}  // namespace belfry
