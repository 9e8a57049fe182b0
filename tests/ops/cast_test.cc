#include "belfry/ops/cast.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace cast_test {

Tensor converted(const Tensor& x, DType dtype) {
  return compute([dtype](Inputs inputs) { return cast(inputs[0], dtype); }, {x});
}

constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kI32,
                          DType::kI64, DType::kU8,  DType::kBool};

TEST(Cast, KeepsSmallNumbersBetweenAllTypes) {
  for (const DType from : kAll)
    for (const DType to_type : kAll) {
      const Tensor x = to(Tensor({3}, std::vector<float>{0, 1, 1}), from);
      const Tensor y = converted(x, to_type);
      EXPECT_EQ(y.dtype(), to_type);
      EXPECT_EQ(doubles(y), (std::vector<double>{0, 1, 1}))
          << name_of(from) << " to " << name_of(to_type);
    }
}

TEST(Cast, TruncatesAndLimitsWhatIntegersCannotHold) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x({7}, std::vector<float>{-1.7f, 1.7f, 300, 3e9f, inf, -inf, nan});
  EXPECT_EQ(converted(x, DType::kI32),
            Tensor({7}, std::vector<std::int32_t>{-1, 1, 300, 2147483647, 2147483647,
                                                  std::numeric_limits<std::int32_t>::min(), 0}));
  EXPECT_EQ(converted(x, DType::kU8),
            Tensor({7}, std::vector<std::uint8_t>{0, 1, 255, 255, 255, 0, 0}));
  EXPECT_EQ(converted(x, DType::kI64).data<std::int64_t>()[4],
            std::numeric_limits<std::int64_t>::max());
}

TEST(Cast, BoolIsWhetherAValueIsNot0) {
  EXPECT_EQ(converted(Tensor({3}, std::vector<float>{0, 0.5f, -2}), DType::kBool),
            Tensor({3}, std::vector<bool>{false, true, true}));
}

TEST(Cast, KeepsItsContract) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    check_op({.build = [dtype](Inputs x) { return cast(x[0], dtype); },
              .inputs = {random_values({5, 7})},
              .gradient = dtype == DType::kF64 ? 1e-6 : -1});
}

TEST(Cast, GradientsFlowBetweenFloatingTypesOnly) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {3});
  EXPECT_EQ(cast(x, DType::kF32), x);
  EXPECT_EQ(gradients(cast(x, DType::kF64), {x})[0].dtype(), DType::kF32);
  EXPECT_FALSE(gradients(cast(cast(x, DType::kI32), DType::kF32), {x})[0]);
}

TEST(Cast, RoundsTo16BitsAndWidensExactly) {
  const Tensor x({7}, std::vector<float>{0, -1.5f, 1.0009765625f, 65504, 70000, 0x1p-30f, 0.1f});
  const auto through = [&](DType half, DType to) {
    return compute([=](Inputs in) { return cast(cast(in[0], half), to); }, {x});
  };
  EXPECT_EQ(doubles(through(DType::kF16, DType::kF64)),
            (std::vector<double>{0, -1.5, 1.0009765625, 65504, HUGE_VAL, 0, 0.0999755859375}));
  EXPECT_EQ(doubles(through(DType::kBF16, DType::kF64)),
            (std::vector<double>{0, -1.5, 1, 65536, 70144, 0x1p-30, 0.10009765625}));
  EXPECT_EQ(doubles(through(DType::kF16, DType::kI32))[3], 65504);
  const Tensor both = compute(
      [](Inputs in) { return cast(cast(cast(in[0], DType::kF16), DType::kBF16), DType::kF32); },
      {x});
  EXPECT_EQ(doubles(both)[2], 1);
  EXPECT_EQ(doubles(compute([](Inputs in) { return cast(cast(in[0], DType::kF16), DType::kF32); },
                            {Tensor({2}, std::vector<std::int32_t>{3, -2049})})),
            (std::vector<double>{3, -2048}));
}

TEST(Cast, TakesRowsOfAnyLength) {
  for (const std::int64_t n : {1, 1023, 1024, 1025, 5000})
    for (const DType half : {DType::kF16, DType::kBF16}) {
      Tensor x({n}, DType::kI32);
      for (std::int64_t i = 0; i < n; ++i)
        x.mutable_data<std::int32_t>()[static_cast<std::size_t>(i)] =
            static_cast<std::int32_t>(i % 256);
      EXPECT_EQ(compute([=](Inputs in) { return cast(cast(in[0], half), DType::kI32); }, {x}), x);
    }
}

}  // namespace cast_test
}  // namespace belfry
