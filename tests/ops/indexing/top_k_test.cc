#include "belfry/ops/indexing/top_k.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/indexing/ranking_impl.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace top_k_test {

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }
Tensor places(Shape shape, std::vector<std::int64_t> values) { return {std::move(shape), values}; }

Builder largest(int axis) {
  return [axis](Inputs x) { return argmax(x[0], axis); };
}
Builder smallest(int axis) {
  return [axis](Inputs x) { return argmin(x[0], axis); };
}
Builder values_of(std::int64_t k, TopKOptions options = {}) {
  return [=](Inputs x) { return top_k(x[0], k, options).values; };
}
Builder places_of(std::int64_t k, TopKOptions options = {}) {
  return [=](Inputs x) { return top_k(x[0], k, options).indices; };
}
Builder both_of(std::int64_t k, TopKOptions options = {}) {
  return [=](Inputs x) {
    const TopK top = top_k(x[0], k, options);
    return Built(std::vector{top.values, top.indices});
  };
}

const Tensor& digits() {
  static const Tensor tensor = floats({2, 4}, {1, 5, 3, 5, 4, 2, 6, 2});
  return tensor;
}

TEST(ArgMax, IsTheFirstOfTheLargest) {
  EXPECT_EQ(compute(largest(1), {digits()}), places({2}, {1, 2}));
  EXPECT_EQ(compute(largest(0), {digits()}), places({4}, {1, 0, 1, 0}));
  EXPECT_EQ(compute(largest(-1), {floats({3}, {1, 3, 3})}), Tensor(std::int64_t{1}));
  EXPECT_EQ(compute(largest(0), {Tensor({3}, std::vector<std::int32_t>{-3, -1, -2})}),
            Tensor(std::int64_t{1}));
}

TEST(ArgMin, IsTheFirstOfTheSmallest) {
  EXPECT_EQ(compute(smallest(1), {digits()}), places({2}, {0, 1}));
  EXPECT_EQ(compute(smallest(-2), {digits()}), places({4}, {0, 1, 0, 1}));
}

// As in NumPy.
TEST(ArgMin, IsTheFirstNan) {
  const Tensor x = floats({5}, {1, NAN, 0, NAN, 2});
  EXPECT_EQ(compute(smallest(0), {x}), Tensor(std::int64_t{1}));
  EXPECT_EQ(compute(largest(0), {x}), Tensor(std::int64_t{1}));
  EXPECT_EQ(compute(largest(0), {floats({2}, {NAN, 1})}), Tensor(std::int64_t{0}));
}

TEST(TopK, IsInOrderAndTakesTheFirstOfEqualOnes) {
  EXPECT_EQ(compute(values_of(3), {digits()}), floats({2, 3}, {5, 5, 3, 6, 4, 2}));
  EXPECT_EQ(compute(places_of(3), {digits()}), places({2, 3}, {1, 3, 2, 2, 0, 1}));
  EXPECT_EQ(compute(values_of(2, {.smallest = true}), {digits()}), floats({2, 2}, {1, 3, 2, 2}));
  EXPECT_EQ(compute(places_of(2, {.smallest = true}), {digits()}), places({2, 2}, {0, 2, 1, 3}));
  EXPECT_EQ(compute(places_of(4), {floats({4}, {2, 9, 2, 9})}), places({4}, {1, 3, 0, 2}));
  EXPECT_EQ(compute(values_of(0), {digits()}).shape(), (Shape{2, 0}));
}

// As torch.topk.
TEST(TopK, TakesNanForTheLargest) {
  const Tensor x = floats({4}, {1, NAN, 3, 2});
  EXPECT_EQ(compute(places_of(3), {x}), places({3}, {1, 2, 3}));
  EXPECT_EQ(compute(places_of(4, {.smallest = true}), {x}), places({4}, {0, 3, 2, 1}));
}

// Few of a line and many of it are found in different ways.
template <class T>
void expect_order(const std::vector<T>& line) {
  const auto n = static_cast<std::int64_t>(line.size());
  for (const bool smallest : {false, true}) {
    std::vector<std::int64_t> order(line.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::int64_t i, std::int64_t j) {
      const T a = line[static_cast<std::size_t>(smallest ? i : j)],
              b = line[static_cast<std::size_t>(smallest ? j : i)];
      return b != b ? a == a : a < b;
    });
    for (const std::int64_t k : {std::int64_t{1}, n / 64, n / 2, n})
      EXPECT_EQ(compute(places_of(k, {.smallest = smallest}), {Tensor({n}, line)}),
                places({k}, {order.begin(), order.begin() + k}))
          << k;
  }
}

template <class T>
std::vector<T> line_with_ties() {
  std::vector<T> line;
  for (int i = 0; i < 400; ++i) line.push_back(static_cast<T>(i * 7919 % 41 - 20));
  return line;
}

TEST(TopK, PutsTiesInOrderForAllNumbersOfElements) {
  expect_order(line_with_ties<std::int32_t>());
  expect_order(line_with_ties<std::int64_t>());
  std::vector<float> line = line_with_ties<float>();
  std::vector<double> wide = line_with_ties<double>();
  line[100] = line[7] = wide[300] = NAN;
  line[350] = wide[5] = -0.;
  line[200] = wide[3] = -INFINITY;
  line[201] = wide[4] = INFINITY;
  expect_order(line);
  expect_order(wide);
}

TEST(TopK, SendsTheGradientToTheElements) {
  const Builder gradient = [](Inputs x) {
    return gradients(top_k(x[0], 2).values, {x[0]}, {.initial = {x[1]}})[0];
  };
  EXPECT_EQ(compute(gradient, {digits(), floats({2, 2}, {1, 2, 3, 4})}),
            floats({2, 4}, {0, 1, 0, 2, 4, 0, 3, 0}));
}

TEST(TopK, KeepsItsContract) {
  for (const bool smallest : {false, true})
    for (const std::int64_t k : {1, 3, 7})
      check_op({.build = both_of(k, {.smallest = smallest}), .inputs = {random_values({5, 7})}});
  check_op({.build = both_of(5), .inputs = {random_values({3, 2, 300})}, .gradient = -1});
  check_op({.build = both_of(2), .inputs = {random_values({9})}});
}

TEST(ArgMax, KeepsItsContract) {
  for (const int axis : {0, 1, 2}) {
    check_op({.build = largest(axis),
              .inputs = {random_values({4, 5, 3})},
              .gradient = -1,
              .nan = false});
    check_op({.build = smallest(axis),
              .inputs = {random_values({4, 5, 3})},
              .gradient = -1,
              .nan = false});
  }
  check_op(
      {.build = largest(1), .inputs = {random_values({3, 1000})}, .gradient = -1, .nan = false});
}

TEST(TopK, RefusesWrongNumbersAndTypes) {
  const auto rows = [](Inputs x) {
    return x[0].graph().add(kTopK, x, {}, NodeOptions(RankedOptions{2})).output();
  };
  expect_refused(rows, {{{4}}}, "takes rows [..., n], not [4]");
  expect_refused(places_of(5), {{{2, 4}}},
                 "k is 5, but must be from 0 to the size of the last axis of [2,4]");
  expect_refused(places_of(-1), {{{2, 4}}}, "k is -1");
  expect_refused(places_of(1), {{Shape{}}}, "a scalar has no axis to take elements of");
  expect_refused(places_of(1), {{{2, 4}, DType::kBool}}, "no order of bool; cast it");
}

TEST(ArgMax, RefusesAxesThatAreNotThereOrEmpty) {
  expect_refused(largest(2), {{{2, 4}}}, "there is no axis 2 in 2 dimensions");
  expect_refused(largest(-3), {{{2, 4}}}, "there is no axis -3 in 2 dimensions");
  expect_refused(smallest(1), {{{2, 0}}}, "axis 1 of [2,0] has no elements");
}

}  // namespace top_k_test
}  // namespace belfry
