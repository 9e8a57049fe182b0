#include "belfry/ops/indexing/segments.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace segments_test {

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }
Tensor ids(Shape shape, std::vector<std::int32_t> values) { return {std::move(shape), values}; }

Builder sums(std::int64_t segments) {
  return [segments](Inputs x) { return segment_sum(x[0], x[1], segments); };
}
Builder means(std::int64_t segments) {
  return [segments](Inputs x) { return segment_mean(x[0], x[1], segments); };
}

Builder maxima(std::int64_t segments) {
  return [segments](Inputs x) { return segment_max(x[0], x[1], segments); };
}

const Tensor& values() {
  static const Tensor tensor = floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  return tensor;
}

// As tf.math.unsorted_segment_sum.
TEST(SegmentSum, AddsRowsOfOneId) {
  EXPECT_EQ(compute(sums(3), {values(), ids({4}, {2, 0, 2, 2})}),
            floats({3, 2}, {3, 4, 0, 0, 13, 16}));
  EXPECT_EQ(compute(sums(2), {values(), ids({4, 2}, {0, 1, 1, 1, 0, 0, 1, 1})}),
            floats({2}, {12, 24}));
  const Tensor ones({3}, std::vector<std::int64_t>{1, 1, 1});
  EXPECT_EQ(compute(sums(2), {ones, ids({3}, {1, 0, 1})}),
            Tensor({2}, std::vector<std::int64_t>{1, 2}));
}

TEST(SegmentMean, DividesByTheRowsAndIs0WithoutAny) {
  EXPECT_EQ(compute(means(3), {values(), ids({4}, {2, 0, 2, 0})}),
            floats({3, 2}, {5, 6, 0, 0, 3, 4}));
}

TEST(SegmentMean, OfManyRowsOf16BitsIsExact) {
  const Tensor y = compute(means(1), {to(floats({600}, std::vector<float>(600, 3)), DType::kBF16),
                                      ids({600}, std::vector<std::int32_t>(600, 0))});
  EXPECT_EQ(y.dtype(), DType::kBF16);
  EXPECT_EQ(doubles(y), std::vector<double>{3});
}

TEST(SegmentMax, TakesTheLargestRow) {
  EXPECT_EQ(compute(maxima(3), {values(), ids({4}, {2, 0, 2, 0})}),
            floats({3, 2}, {7, 8, -INFINITY, -INFINITY, 5, 6}));
  EXPECT_EQ(
      compute(maxima(2), {Tensor({3}, std::vector<std::int32_t>{-5, -7, -6}), ids({3}, {1, 1, 1})}),
      Tensor({2}, std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::lowest(), -5}));
}

TEST(SegmentShares, ShareTheGradientEqually) {
  const Builder gradient = [](Inputs x) {
    return gradients(segment_max(x[0], x[1], 2), {x[0]}, {.initial = {x[2]}})[0];
  };
  EXPECT_EQ(compute(gradient,
                    {floats({5}, {3, 1, 3, 2, 3}), ids({5}, {0, 1, 0, 1, 0}), floats({2}, {6, 4})}),
            floats({5}, {2, 0, 2, 4, 2}));
  const Tensor dx =
      compute(gradient, {floats({3}, {NAN, 1, 2}), ids({3}, {0, 0, 1}), floats({2}, {1, 1})});
  EXPECT_TRUE(std::isnan(dx.data<float>()[0]) && std::isnan(dx.data<float>()[1]));
  EXPECT_EQ(dx.data<float>()[2], 1);
}

TEST(SegmentMax, KeepsItsContract) {
  check_op(
      {.build = maxima(4), .inputs = {random_values({7, 3}), ids({7}, {3, 0, 0, 1, 3, 3, 2})}});
  check_op({.build = maxima(3),
            .inputs = {random_values({4, 2, 5}), ids({4, 2}, {2, 0, 1, 1, 2, 2, 0, 1})}});
}

TEST(SegmentSum, KeepsItsContract) {
  check_op({.build = sums(4),
            .inputs = {random_values({7, 3}), ids({7}, {3, 0, 0, 1, 3, 3, 0})},
            .nan = false});
  check_op({.build = sums(3),
            .inputs = {random_values({4, 2, 33}), ids({4, 2}, {2, 0, 1, 1, 2, 2, 0, 1})}});
  check_op({.build = means(4),
            .inputs = {random_values({7, 3}), ids({7}, {3, 0, 0, 1, 3, 3, 0})},
            .nan = false});
}

TEST(SegmentSum, AnIdOutsideTheSegmentsIsAnErrorWithTheOpAndTheId) {
  for (const std::int32_t id : {3, -1}) try {
      compute(sums(3), {values(), ids({4}, {0, id, 2, 1})});
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("SegmentSum 'SegmentSum' (built at segments_test.cc"), std::string::npos)
          << text;
      EXPECT_NE(text.find("is not in [0, 3)"), std::string::npos) << text;
    }
}

TEST(SegmentSum, RefusesOtherShapesAndTypes) {
  const TensorType of_ids{{4}, DType::kI32};
  expect_refused(sums(3), {{{5, 2}}, of_ids},
                 "the ids are [4], but have to be the first dimensions of the values, [5,2]");
  expect_refused(sums(3), {{{4, 2}}, {{4}}}, "the ids are f32, but must be i32 or i64");
  const Builder shares = [](Inputs x) {
    return x[0].graph().add(kSegmentShares, x, {}, NodeOptions(SegmentOptions{3})).output();
  };
  expect_refused(shares, {{{4, 2}}, of_ids, {{3, 4}}},
                 "the largest values are f32[3,4], but must be f32[3,2]");
  expect_refused(sums(-1), {{{4, 2}}, of_ids}, "cannot make -1 segments");
  expect_refused(sums(3), {{{4}, DType::kBool}, of_ids}, "no arithmetic on bool; cast it");
  expect_refused(means(3), {{{4}, DType::kI32}, of_ids},
                 "the values are i32, but must be floating point; cast them");
}

}  // namespace segments_test
}  // namespace belfry
