#include "belfry/framework/graph/op_work.h"

#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"

namespace belfry {
namespace op_work_test {

// The multiply-adds of all nodes of a graph, by op.
std::map<std::string, double> counted(const Graph& graph) {
  std::map<std::string, double> result;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (const double work = work_of(graph.node(id)).multiply_adds; work > 0)
      result[graph.node(id).op().name] += work;
  return result;
}

using Counts = std::map<std::string, double>;

TEST(OpWork, OfProductsIsElementsTimesTheInnerDimension) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {8, 5});
  const Output b = placeholder(graph, "b", DType::kF32, {5, 3});
  const Output c = placeholder(graph, "c", DType::kF32, {8, 3});
  matmul(a, b);
  EXPECT_EQ(counted(graph), (Counts{{"MatMul", 120}}));
  matmul(a, c, {.transpose_a = true});
  const Counts both = counted(graph);
  double sum = 0;
  for (const auto& [op, work] : both) sum += work;
  EXPECT_EQ(sum, 240);
}

TEST(OpWork, OfConvolutionsIsTheSameForwardAndForEachGradient) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 6, 6, 3});
  const Output filter = placeholder(graph, "filter", DType::kF32, {4, 3, 3, 3});
  const Output y = conv2d(relu(x), filter, {.stride = 2});
  gradients(reduce_mean(y), {x, filter});
  const double work = 2 * 3 * 3 * 4 * (3 * 3 * 3);
  EXPECT_EQ(counted(graph),
            (Counts{{"Conv2d", work}, {"Conv2dGradFilter", work}, {"Conv2dGradInput", work}}));
}

// A dilated filter has no more taps than others; a group sees only its own channels.
TEST(OpWork, OfGroupedConvolutionsIsThatOfAllGroups) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 6, 6, 8});
  const Output filter = placeholder(graph, "filter", DType::kF32, {4, 3, 3, 2});
  const Output y = conv2d(relu(x), filter, {.dilation = 2, .groups = 4});
  gradients(reduce_mean(y), {x, filter});
  const double work = 2 * 6 * 6 * 4 * (3 * 3 * 2);
  EXPECT_EQ(counted(graph),
            (Counts{{"Conv2d", work}, {"Conv2dGradFilter", work}, {"Conv2dGradInput", work}}));
}

// Each pixel of the smaller image meets every tap.
TEST(OpWork, OfTransposedConvolutionsCountsTheSmallerImage) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 6, 6, 8});
  const Output filter = placeholder(graph, "filter", DType::kF32, {8, 3, 3, 3});
  const Output y = conv2d_transpose(relu(x), filter, {.stride = 2, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 12, 12, 6}));
  gradients(reduce_mean(y), {x, filter});
  const double work = 2 * 6 * 6 * 8 * (3 * 3 * 3);
  EXPECT_EQ(counted(graph),
            (Counts{{"Conv2d", work}, {"Conv2dGradFilter", work}, {"Conv2dGradInput", work}}));
}

// Two products forward, five backward, of all pairs of positions.
TEST(OpWork, OfAttentionCountsAllPairs) {
  Graph graph;
  const Output q = placeholder(graph, "q", DType::kF32, {2, 7, 6});
  const Output y = causal_attention(q, q, q, {.heads = 3});
  gradients(reduce_mean(y), {q});
  EXPECT_EQ(counted(graph),
            (Counts{{"Attention", 2 * 2 * 7 * 7 * 6}, {"AttentionGrad", 5 * 2 * 7 * 7 * 6}}));
}

// One product of the state forward, and one of the gradients of gates backward; the products with
// input weights and the gradients of weights are of other ops.
TEST(OpWork, OfRecurrencesCountsTheirProductsAndTheWeightsThatTheyReadAgain) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {3, 7, 5});
  const auto weights = [&](const char* name, std::int64_t rows, std::int64_t gates) {
    return placeholder(graph, name, DType::kF32, {rows, gates * 6});
  };
  const Output y = lstm(x, {weights("w", 5, 4), weights("u", 6, 4)}).y;
  const Output z = gru(y, {weights("v", 6, 3), weights("t", 6, 3)}).y;
  gradients(reduce_mean(z), {x});
  Counts counts = counted(graph);
  for (const char* const op : {"Lstm", "LstmGrad"}) EXPECT_EQ(counts[op], 3 * 7 * 6 * 4 * 6) << op;
  for (const char* const op : {"Gru", "GruGrad"}) EXPECT_EQ(counts[op], 3 * 7 * 6 * 3 * 6) << op;
  EXPECT_EQ(work_of(y.node()).rereads, 6 * 6 * 4 * 6) << "at six times after the first";
  EXPECT_EQ(work_of(z.node()).rereads, 6 * 6 * 3 * 6);
}

TEST(OpWork, TakesUnknownSizesAs1) {
  Graph graph;
  matmul(placeholder(graph, "a", DType::kF32, {kUnknownSize, 5}),
         placeholder(graph, "b", DType::kF32, {5, 3}));
  EXPECT_EQ(counted(graph), (Counts{{"MatMul", 15}}));
}

}  // namespace op_work_test
}  // namespace belfry
