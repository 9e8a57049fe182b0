#include "belfry/ops/all_reduce.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/plain.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace all_reduce_test {

Builder reducing(AllReduceOptions options = {}) {
  return [=](Inputs x) { return Built(all_reduce(x, options)); };
}
// Builds participant i's result.
Builder reducing_to(std::size_t i, AllReduceOptions options = {}) {
  return [=](Inputs x) { return all_reduce(x, options)[i]; };
}

std::vector<Tensor> participants(int count, Shape shape) {
  std::vector<Tensor> result;
  for (int k = 0; k < count; ++k)
    result.push_back(random_values(shape, -2, 2, static_cast<unsigned>(k + 1)));
  return result;
}

TEST(AllReduce, EveryParticipantGetsTheSum) {
  const std::vector<Tensor> inputs = {Tensor({2}, std::vector<float>{1, 2}),
                                      Tensor({2}, std::vector<float>{10, 20}),
                                      Tensor({2}, std::vector<float>{100, 200})};
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(doubles(compute(reducing_to(i), inputs)), (std::vector<double>{111, 222})) << i;
}

TEST(AllReduce, TheMeanDividesOnce) {
  const std::vector<Tensor> inputs = {Tensor({1}, std::vector<double>{1}),
                                      Tensor({1}, std::vector<double>{2}),
                                      Tensor({1}, std::vector<double>{6})};
  EXPECT_EQ(compute(reducing_to(2, {.mean = true}), inputs).item<double>(), 3);
}

TEST(AllReduce, IsTheCanonicalTree) {
  // (1e8 + -1e8) + 1, where a chain from the right would lose the 1.
  const std::vector<Tensor> inputs = {Tensor({1}, std::vector<float>{1e8f}),
                                      Tensor({1}, std::vector<float>{-1e8f}),
                                      Tensor({1}, std::vector<float>{1})};
  EXPECT_EQ(compute(reducing_to(0), inputs).item<float>(), 1);
  for (const int count : {1, 2, 3, 4, 6, 8, 13}) {
    const std::vector<Tensor> random = participants(count, {1031});
    EXPECT_EQ(compute(reducing_to(0), random), compute([](Inputs x) { return add_n(x); }, random))
        << count;
  }
}

TEST(AllReduce, IntegersWrap) {
  const std::int32_t top = 2147483647;
  const std::vector<Tensor> inputs = {Tensor({1}, std::vector<std::int32_t>{top}),
                                      Tensor({1}, std::vector<std::int32_t>{1})};
  EXPECT_EQ(compute(reducing_to(1), inputs).item<std::int32_t>(), -top - 1);
}

TEST(AllReduce, KeepsItsContract) {
  for (const int count : {1, 2, 3, 8, 9}) {
    const double gradient = count > 3 ? -1 : OpTest().gradient;  // one rule for any count
    check_op({.build = reducing(),
              .inputs = participants(count, {7, 5}),
              .f32 = 0,
              .f64 = 0,
              .gradient = gradient,
              .nan = false,
              .unknown = false});
    check_op({.build = reducing({.mean = true}),
              .inputs = participants(count, {33}),
              .f32 = 0,
              .f64 = 0,
              .gradient = gradient,
              .nan = false,
              .unknown = false});
  }
}

TEST(AllReduce, NaNOfOneReachesAll) {
  std::vector<Tensor> inputs = participants(3, {2});
  inputs[1] = Tensor({2}, std::vector<float>{0, std::numeric_limits<float>::quiet_NaN()});
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor y = compute(reducing_to(i), inputs);
    EXPECT_EQ(y.data<float>()[0], y.data<float>()[0]);
    EXPECT_NE(y.data<float>()[1], y.data<float>()[1]);
  }
}

TEST(AllReduce, GradientsOfOutputsThatAreNotUsedAreZero) {
  Graph graph;
  const Output xs[] = {constant(graph, 1), constant(graph, 2)};
  const std::vector<Output> sums = all_reduce(xs);
  for (const Output& gradient : gradients(sums[1], xs))
    EXPECT_EQ(evaluate(gradient).item<float>(), 1);
}

// Random values of types that hosts have no C++ type for.
Tensor random_half(DType dtype, Shape shape, unsigned seed) {
  Tensor tensor(std::move(shape), dtype);
  std::mt19937 random(seed);
  auto* const bits = reinterpret_cast<std::uint16_t*>(tensor.mutable_raw());
  // The mask leaves no infinity or NaN in either format.
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    bits[i] = static_cast<std::uint16_t>(random() & 0xbbff);
  return tensor;
}

TEST(AllReduce, SumsSixteenBitsInF32AndRoundsOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const int count : {1, 2, 3, 8, 9})
      for (const bool mean : {false, true}) {
        Graph graph;
        std::vector<Output> xs;
        for (unsigned t = 0; t < 2 * static_cast<unsigned>(count); ++t)
          xs.push_back(constant(
              graph, random_half(dtype, {t < static_cast<unsigned>(count) ? 700 : 33}, t)));
        const auto sums = all_reduce(xs, {.mean = mean, .participants = count});
        const std::vector<Tensor> expected = evaluate(sums, {}, {.reference = true});
        const auto convert = kernels::half_conversion(dtype);
        std::vector<float> terms(static_cast<std::size_t>(count));
        std::vector<const void*> pointers;
        for (std::size_t t = 0; t < terms.size(); ++t) {
          const Tensor& x = xs[t].node().options<ConstantOptions>().value;
          convert.widen(reinterpret_cast<const std::uint16_t*>(x.raw()), &terms[t], 1);
          pointers.push_back(&terms[t]);
        }
        float first = kernels::plain_tree<float>(pointers, 0);
        if (mean) first /= static_cast<float>(count);
        std::uint16_t bits;
        convert.narrow(&first, &bits, 1);
        EXPECT_EQ(std::memcmp(expected[0].raw(), &bits, 2), 0);
        EXPECT_EQ(evaluate(sums), expected);
        for (const int parts : {2, 3}) EXPECT_EQ(evaluate(sums, {}, {.parts = parts}), expected);
        for (const int shift : {1, 5, 701})
          EXPECT_EQ(evaluate(sums, {}, {.shift = shift}), expected);
        EXPECT_EQ(evaluate(sums, {}, {.in_place = 0}), expected);
        Session session(graph);
        EXPECT_EQ(session.run(std::vector<Fetch>(sums.begin(), sums.end())), expected);
      }
}

TEST(AllReduce, RefusesParticipantsThatDiffer) {
  expect_refused(reducing(), {{{4}}, {{5}}},
                 "participant 1 has f32[5], but participant 0 has f32[4]");
  expect_refused(reducing(), {{{4}}, {{4}, DType::kF64}}, "participant 1 has f64[4]");
  expect_refused(reducing({.mean = true}), {{{4}, DType::kI32}}, "cast to f32 first");
  for (const DType dtype : {DType::kI64, DType::kU8, DType::kBool})
    expect_refused(reducing(), {{{4}, dtype}}, "sums floating types and i32, not");
}

// tensors[b * K + t] as one bucket of tensors of K participants.
Builder reducing_buckets(int participants, bool mean = false) {
  return reducing({.mean = mean, .participants = participants});
}

TEST(AllReduceBucket, SumsEachTensorOverItsParticipants) {
  Graph graph;
  const auto row = [&](std::vector<float> values) {
    return constant(graph, Tensor({static_cast<std::int64_t>(values.size())}, values));
  };
  const std::vector<std::vector<Output>> tensors = {{row({1}), row({2}), row({3})},
                                                    {row({}), row({}), row({})},
                                                    {row({4, 5}), row({6, 7}), row({8, 9})}};
  const auto sums = all_reduce_bucket(tensors);
  ASSERT_EQ(sums.size(), 3u);
  for (std::size_t t = 0; t < 3; ++t) {
    EXPECT_EQ(doubles(evaluate(sums[0][t])), (std::vector<double>{6}));
    EXPECT_EQ(evaluate(sums[1][t]).elements(), 0);
    EXPECT_EQ(doubles(evaluate(sums[2][t])), (std::vector<double>{18, 21}));
    EXPECT_EQ(&sums[2][t].node(), &sums[0][0].node()) << "one node";
    EXPECT_EQ(sums[2][t].index(), 6 + static_cast<int>(t));
  }
  const auto means = all_reduce_bucket(tensors, {.mean = true});
  EXPECT_EQ(doubles(evaluate(means[2][1])), (std::vector<double>{6, 7}));
}

TEST(AllReduceBucket, KeepsItsContract) {
  for (const int participants : {1, 2, 3}) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : {Shape{3, 5}, Shape{}, Shape{0}, Shape{7}})
      for (const Tensor& tensor : all_reduce_test::participants(participants, shape))
        inputs.push_back(tensor);
    for (const bool mean : {false, true})
      check_op({.build = reducing_buckets(participants, mean),
                .inputs = inputs,
                .f32 = 0,
                .f64 = 0,
                .nan = false,
                .unknown = false});
  }
}

// A ResNet-50 has this many tensors on 8 devices.
TEST(AllReduceBucket, TakesAnyNumberOfTensors) {
  Graph graph;
  std::vector<std::vector<Output>> tensors(161);
  for (std::size_t b = 0; b < tensors.size(); ++b)
    for (int t = 0; t < 8; ++t)
      tensors[b].push_back(constant(graph, static_cast<float>(b + 1) * static_cast<float>(t)));
  const auto sums = all_reduce_bucket(tensors);
  for (const std::size_t b : {0, 77, 160})
    EXPECT_EQ(evaluate(sums[b][7]).item<float>(), static_cast<float>(b + 1) * 28);
}

TEST(AllReduceBucket, ATensorWithoutGradientsPassesNone) {
  Graph graph;
  const std::vector<std::vector<Output>> tensors = {{constant(graph, 1), constant(graph, 2)},
                                                    {constant(graph, 3), constant(graph, 4)}};
  const auto sums = all_reduce_bucket(tensors);
  for (const Output& gradient : gradients(sums[1][0], tensors[0])) EXPECT_FALSE(gradient);
  const auto passed = gradients(sums[1][0], tensors[1]);
  for (const Output& gradient : passed) EXPECT_EQ(evaluate(gradient).item<float>(), 1);
  EXPECT_EQ(passed[0].node().op().name, kAllReduce.name);
  EXPECT_EQ(passed[0].node().inputs().size(), 2u) << "the other tensor is left out";
}

TEST(AllReduceBucket, RefusesWhatDiffers) {
  expect_refused(reducing_buckets(2), {{{4}}, {{4}}, {{2}}, {{3}}},
                 "participant 1 of tensor 1 has f32[3], but participant 0 of tensor 1 has f32[2]");
  const DType other = DType::kF64;
  expect_refused(reducing_buckets(2), {{{4}}, {{4}}, {{2}, other}, {{2}, other}},
                 "participant 0 of tensor 1 has f64[2], but participant 0 of tensor 0 has f32[4]");
  expect_refused(reducing_buckets(2), {{{4}}, {{4}}, {{2}}},
                 "3 tensors are not the same number for each of 2 participants");
  expect_refused(reducing_buckets(-1), {{{4}}, {{4}}}, "needs at least one tensor");
  Graph graph;
  const Output x = constant(graph, 1);
  const std::vector<Output> pair = {x, x}, one = {x};
  const std::vector<std::vector<Output>> uneven = {pair, one};
  EXPECT_THROW(all_reduce_bucket(uneven), InvalidArgument);
  EXPECT_THROW(all_reduce_bucket({}), InvalidArgument);
}

class AllReduceHook : public testing::Test {
 protected:
  ~AllReduceHook() override { set_collective_hook({}); }
};

TEST_F(AllReduceHook, IsCalledBeforeEverySum) {
  std::vector<std::string> seen;
  set_collective_hook([&](const Node& node, WorkRange range) {
    seen.push_back(cat(node.op().name, " ", range.begin, "-", range.end));
  });
  compute(reducing_to(0), participants(2, {7}));
  EXPECT_EQ(seen, (std::vector<std::string>{"AllReduce 0-7"}));
}

TEST_F(AllReduceHook, CanMakeACollectiveFail) {
  set_collective_hook(
      [](const Node& node, WorkRange) { throw CommError(cat(node.op().name, " lost")); });
  EXPECT_THROW(compute(reducing_to(0), participants(2, {7})), CommError);
}

}  // namespace all_reduce_test
}  // namespace belfry
