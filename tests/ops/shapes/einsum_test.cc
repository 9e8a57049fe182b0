#include "belfry/ops/shapes/einsum.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace einsum_test {

Builder of(const char* equation) {
  return [=](Inputs x) { return einsum(equation, x); };
}

const Tensor kA({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
const Tensor kB({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});

std::vector<double> values(const char* equation, const std::vector<Tensor>& x) {
  return doubles(compute(of(equation), x));
}

TEST(Einsum, MultipliesMatrices) {
  EXPECT_EQ(values("ij,jk->ik", {kA, kB}), (std::vector<double>{22, 28, 49, 64}));
  EXPECT_EQ(values("ij,jk", {kA, kB}), (std::vector<double>{22, 28, 49, 64}));
  EXPECT_EQ(values("ij, jk -> ki", {kA, kB}), (std::vector<double>{22, 49, 28, 64}));
  EXPECT_EQ(values("ji,kj->ik", {kB, kA}), (std::vector<double>{22, 49, 28, 64}));
}

TEST(Einsum, SumsAndTransposesOneOperand) {
  EXPECT_EQ(values("ij->ji", {kA}), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(values("ij->j", {kA}), (std::vector<double>{5, 7, 9}));
  EXPECT_EQ(values("ij->", {kA}), (std::vector<double>{21}));
  EXPECT_EQ(values("ba", {kA}), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST(Einsum, MultipliesElementsAndVectors) {
  EXPECT_EQ(values("ij,ij->ij", {kA, kA}), (std::vector<double>{1, 4, 9, 16, 25, 36}));
  EXPECT_EQ(values("ij,ij->i", {kA, kA}), (std::vector<double>{14, 77}));
  EXPECT_EQ(values("ij,ji->", {kA, kB}), (std::vector<double>{86}));
  const Tensor v({3}, std::vector<float>{1, 0, 2});
  EXPECT_EQ(values("ij,j->i", {kA, v}), (std::vector<double>{7, 16}));
  EXPECT_EQ(values("j,ij->i", {v, kA}), (std::vector<double>{7, 16}));
  EXPECT_EQ(values("i,j->ij", {v, v}), (std::vector<double>{1, 0, 2, 0, 0, 0, 2, 0, 4}));
  EXPECT_EQ(values("ij,k->ki", {kA, v}), (std::vector<double>{6, 15, 0, 0, 12, 30}));
}

// The scores of attention with two heads, by plain loops.
TEST(Einsum, MultipliesHeadsOfAttention) {
  const Tensor q = random_values({2, 3, 2, 4}), k = random_values({2, 5, 2, 4}, -1, 1, 2);
  const std::vector<double> a = doubles(q), b = doubles(k);
  const std::vector<double> scores = values("bqhd,bkhd->bhqk", {q, k});
  ASSERT_EQ(scores.size(), 60u);
  std::size_t at = 0;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 5; ++j) {
          double sum = 0;
          for (std::size_t d = 0; d < 4; ++d)
            sum += a[((n * 3 + i) * 2 + h) * 4 + d] * b[((n * 5 + j) * 2 + h) * 4 + d];
          EXPECT_NEAR(scores[at++], sum, 1e-5);
        }
}

TEST(Einsum, MultipliesThreeFromTheLeft) {
  const Tensor c({2, 2}, std::vector<float>{1, 0, 1, 1});
  EXPECT_EQ(values("ij,jk,kl->il", {kA, kB, c}), (std::vector<double>{50, 28, 113, 64}));
}

TEST(Einsum, HasGradients) {
  const auto check = [](const char* equation, Shape a, Shape b) {
    check_op({.build = of(equation),
              .inputs = {random_values(std::move(a)), random_values(std::move(b), -2, 2, 2)},
              .f32 = 3e-6,
              .library = true,
              .nan = false});
  };
  check("bij,bjk->bik", {4, 2, 3}, {4, 3, 2});
  check("bqhd,bkhd->bhqk", {4, 2, 2, 3}, {4, 3, 2, 3});
  check("bti,io->bto", {4, 2, 3}, {3, 2});
  check("bi,bi->b", {4, 3}, {4, 3});
  check("abc,cbd->da", {4, 2, 3}, {3, 2, 2});
}

TEST(Einsum, NeedsNoCopyForProductsInOrder) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 7, 3});
  const Output w = placeholder(graph, "w", DType::kF32, {5, 3});
  const Output y = einsum("bti,oi->bto", {x, w});
  EXPECT_EQ(y.shape(), (Shape{kUnknownSize, 7, 5}));
  for (std::size_t id = 0; id < graph.size(); ++id)
    EXPECT_STRNE(graph.node(id).op().name, "Transpose");
}

TEST(Einsum, RefusesWrongEquations) {
  const auto refused = [](const char* equation, const std::string& why) {
    expect_refused(of(equation), {{{2, 3}}, {{3, 4}}}, why);
  };
  refused("ij,jk,kl->il", "names 3 operands, but there are 2");
  refused("ij,j->i", "operand 1 is f32[3,4], but 'j' names 1 axes");
  refused("ij,kj->ik", "'j' has sizes 3 and 4");
  refused("ii,jk->k", "operand 0 has 'i' twice; diagonals are not supported");
  refused("ij,jk->il", "no operand has the 'l' of the result");
  refused("ij,jk->ii", "the result has 'i' twice");
  refused("i1,jk->k", "'1' is no letter");
  refused("...j,jk->...k", "has no support for \"...\"");
}

}  // namespace einsum_test
}  // namespace belfry
