#include "belfry/ops/arithmetic.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace arithmetic_test {

using Binary = Output (*)(Output, Output, At);

Builder of(Binary op) {
  return [op](Inputs x) { return op(x[0], x[1], {}); };
}

Tensor matrix(std::vector<float> values) { return Tensor({2, 3}, values); }
Tensor row(std::vector<float> values) { return Tensor({3}, values); }

TEST(Arithmetic, AddRepeatsARow) {
  EXPECT_EQ(doubles(compute(of(add), {matrix({1, 2, 3, 4, 5, 6}), row({10, 20, 30})})),
            (std::vector<double>{11, 22, 33, 14, 25, 36}));
}

TEST(Arithmetic, SubRepeatsAColumn) {
  EXPECT_EQ(doubles(compute(
                of(sub), {matrix({1, 2, 3, 4, 5, 6}), Tensor({2, 1}, std::vector<float>{1, 4})})),
            (std::vector<double>{0, 1, 2, 0, 1, 2}));
}

TEST(Arithmetic, MulOfAColumnAndARowIsTheirOuterProduct) {
  EXPECT_EQ(doubles(compute(of(mul), {Tensor({2, 1}, std::vector<float>{2, 3}), row({1, 2, 3})})),
            (std::vector<double>{2, 4, 6, 3, 6, 9}));
}

TEST(Arithmetic, DivByAScalar) {
  EXPECT_EQ(doubles(compute(of(div), {row({1, 2, 3}), Tensor(2.f)})),
            (std::vector<double>{0.5, 1, 1.5}));
}

class EveryOperation : public testing::TestWithParam<Binary> {};
INSTANTIATE_TEST_SUITE_P(Arithmetic, EveryOperation,
                         testing::Values<Binary>(&add, &sub, &mul, &div));

TEST_P(EveryOperation, KeepsItsContractForEveryWayToRepeat) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{5, 7}, {5, 7}},    {{5, 7}, {7}},       {{7}, {5, 7}},          {{5, 7}, {}},
      {{}, {5, 7}},        {{5, 7}, {5, 1}},    {{5, 1}, {1, 7}},       {{1, 7}, {5, 1}},
      {{2, 3, 4}, {3, 1}}, {{2, 1, 4}, {3, 1}}, {{2, 3, 4, 5}, {4, 5}}, {{0, 3}, {3}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(cat(a, " and ", b));
    check_op({.build = of(GetParam()),
              .inputs = {random_values(a, 0.5, 2, 1), random_values(b, 0.5, 2, 2)},
              .nan = a.elements() > 0});
  }
}

TEST_P(EveryOperation, RefusesShapesThatDoNotFit) {
  expect_refused(of(GetParam()), {{{2, 3}}, {{2, 4}}},
                 "shapes [2,3] and [2,4] do not fit: their dimensions 3 and 4 must be equal");
}

TEST_P(EveryOperation, RefusesMixedTypesAndSuggestsACast) {
  expect_refused(of(GetParam()), {{{2}, DType::kF32}, {{2}, DType::kF64}}, "cast");
  expect_refused(of(GetParam()), {{{2}, DType::kU8}, {{2}, DType::kU8}}, "no arithmetic on u8");
}

TEST(Arithmetic, UnknownDimensionsFitAnything) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {kUnknownSize, 3, kUnknownSize});
  const Output b = placeholder(graph, "b", DType::kF32, {kUnknownSize, 1, 4});
  EXPECT_EQ(add(a, b).shape(), (Shape{kUnknownSize, 3, 4}));
}

// Only a run shows whether [?,3] was repeated.
TEST(Arithmetic, GradientsOfUnknownShapesSumWhatWasRepeated) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {kUnknownSize, 3});
  const Output b = placeholder(graph, "b", DType::kF32, {kUnknownSize, 3});
  const auto grads = gradients(mul(a, b), {a, b});
  const Tensor once({1, 3}, std::vector<float>{1, 2, 3});
  const Tensor twice = matrix({1, 2, 3, 4, 5, 6});
  const FeedValue repeated[] = {{a, once}, {b, twice}}, equal[] = {{a, twice}, {b, twice}};
  EXPECT_EQ(evaluate(grads[0], repeated), Tensor({1, 3}, std::vector<float>{5, 7, 9}));
  EXPECT_EQ(evaluate(grads[1], repeated), matrix({1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(evaluate(grads[0], equal), twice);
}

// A bias needs no run-time decision: its gradient is one sum over the batch.
TEST(Arithmetic, TheGradientOfABiasIsOneReduceSum) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  const Output bias = placeholder(graph, "bias", DType::kF32, {3});
  const auto grads = gradients(add(x, bias), {x, bias});
  EXPECT_STREQ(grads[0].node().op().name, "FillLike");
  EXPECT_STREQ(grads[1].node().op().name, "ReduceSum");
}

TEST(Arithmetic, IntegersWrapAndQuotientsAreTruncated) {
  constexpr int kMost = std::numeric_limits<int>::max(), kLeast = std::numeric_limits<int>::min();
  const auto ints = [](std::vector<std::int32_t> values) { return Tensor({2}, values); };
  EXPECT_EQ(compute(of(add), {ints({kMost, 2}), ints({1, 3})}), ints({kLeast, 5}));
  EXPECT_EQ(compute(of(sub), {ints({kLeast, 2}), ints({1, 3})}), ints({kMost, -1}));
  EXPECT_EQ(compute(of(mul), {ints({kMost, 2}), ints({2, 3})}), ints({-2, 6}));
  EXPECT_EQ(compute(of(div), {ints({-7, kLeast}), ints({2, -1})}), ints({-3, kLeast}));
}

TEST(Arithmetic, DividingAnIntegerByZeroIsAnErrorWithTheOpAndLine) {
  const Tensor one(std::int64_t{1}), zero(std::int64_t{0});
  try {
    compute(of(div), {one, zero});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("Div 'Div' (built at arithmetic_test.cc"),
              std::string::npos)
        << error.what();
  }
}

TEST(Arithmetic, InfinitiesBehaveAsInC) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(doubles(compute(of(div), {row({1, -1, 0}), row({0, 0, inf})})),
            (std::vector<double>{inf, -inf, 0}));
}

// What stderr gets while x of one shape meets y of another, three times on one line.
std::string warnings(const Shape& x, const Shape& y, SourceLine line) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, x);
  const Output b = placeholder(graph, "b", DType::kF32, y);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) sub(a, b, At(line));
  return testing::internal::GetCapturedStderr();
}

TEST(Arithmetic, WarnsOnceWhereNumbersOfSamplesMeetInPairs) {
  const auto line = [](unsigned number) { return SourceLine{"loss.cc", number}; };
  const std::string text = warnings({8, 1}, {8}, line(1));
  EXPECT_EQ(text,
            "W Sub 'Sub' (built at loss.cc:1): shapes [8,1] and [8] give [8,8], each of one with "
            "all of the other; reshape one to the shape of the other, or, if that is meant, the "
            "vector to [1,8]\n");
  EXPECT_NE(warnings({8}, {8, 1}, line(2)).find("loss.cc:2"), text.npos);
  EXPECT_NE(warnings({kUnknownSize, 1}, {kUnknownSize}, line(3)).find("[?,1] and [?]"), text.npos);
}

TEST(Arithmetic, IsSilentWhereOneSampleOrAllPairsAreMeant) {
  const SourceLine line{"pairs.cc", 1};
  EXPECT_EQ(warnings({1, 1}, {1}, line), "");
  EXPECT_EQ(warnings({8, 1}, {1, 8}, line), "");
  EXPECT_EQ(warnings({8, 1}, {8, 1}, line), "");
  EXPECT_EQ(warnings({8, 4}, {4}, line), "");
  EXPECT_EQ(warnings({8, 1}, {}, line), "");
}

}  // namespace arithmetic_test
}  // namespace belfry
