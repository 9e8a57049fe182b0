#include "belfry/ops/precision.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_transpose.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/softmax.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace precision_test {

int casts(const Graph& graph) {
  int count = 0;
  for (std::size_t id = 0; id < graph.size(); ++id) count += &graph.node(id).op() == &kCast;
  return count;
}

class AutocastTest : public testing::TestWithParam<Precision> {
 protected:
  DType type() const { return autocasting(GetParam()).compute; }
  Output input(const char* name, Shape shape = {4, 4}, DType dtype = DType::kF32) {
    return placeholder(graph_, name, dtype, std::move(shape));
  }

  Graph graph_;
};

TEST_P(AutocastTest, ComputesProductsIn16BitsAndSumsInF32) {
  const Output x = input("x"), w = input("w");
  const AutocastScope scope(graph_, autocasting(GetParam()));
  const Output y = relu(matmul(x, w));
  EXPECT_EQ(y.dtype(), type());
  EXPECT_EQ((y * 0.5).dtype(), type());
  for (const Output full : {softmax(y), reduce_mean(y), reduce_sum(y, {0}), exp(y)})
    EXPECT_EQ(full.dtype(), DType::kF32) << full.node().describe();
  EXPECT_EQ(relu(x).dtype(), DType::kF32);
}

TEST_P(AutocastTest, ComputesConvolutionsIn16BitsInBothDirections) {
  const Output x = input("x", {1, 4, 4, 3}), w = input("w", {3, 3, 3, 3});
  const AutocastScope scope(graph_, autocasting(GetParam()));
  EXPECT_EQ(conv2d(x, w).dtype(), type());
  const Output y = conv2d_transpose(x, w, {.stride = 2});
  EXPECT_EQ(y.dtype(), type());
  const std::vector<Output> grads = gradients(reduce_mean(y), {x, w});
  for (const Output& grad : grads) EXPECT_EQ(grad.dtype(), DType::kF32);
}

TEST_P(AutocastTest, CastsATensorOnceForEachTypeAndReplica) {
  const Output x = input("x"), w = input("w");
  const AutocastScope scope(graph_, autocasting(GetParam()));
  const Output y = matmul(x, w);
  EXPECT_EQ(casts(graph_), 2);
  matmul(w, x);
  EXPECT_EQ(casts(graph_), 2);
  softmax(y);
  reduce_mean(y);
  EXPECT_EQ(casts(graph_), 3);
  const ReplicaScope replica(graph_, "tower1/", 1);
  matmul(x, w);
  EXPECT_EQ(casts(graph_), 5);
}

TEST_P(AutocastTest, WidensWhereTypesMeet) {
  const Output x = input("x");
  const AutocastScope scope(graph_, autocasting(GetParam()));
  const Output y = matmul(x, x);
  EXPECT_EQ((y + x).dtype(), DType::kF32);
  const Variable v = variable(graph_, "v", {4, 4});
  EXPECT_EQ(assign(v, y).input(1).dtype(), DType::kF32);
  EXPECT_EQ(&assign(v, y).input(0).node(), &v.node());
}

TEST_P(AutocastTest, LeavesF64AndIntegersAlone) {
  const Output x = input("x", {4, 4}, DType::kF64);
  const AutocastScope scope(graph_, autocasting(GetParam()));
  EXPECT_EQ(matmul(x, x).dtype(), DType::kF64);
  EXPECT_EQ(casts(graph_), 0);
}

TEST_P(AutocastTest, GivesVariablesGradientsOfTheirType) {
  const Variable v = variable(graph_, "v", {4, 4});
  const Output x = input("x");
  Output loss;
  {
    const AutocastScope scope(graph_, autocasting(GetParam()));
    loss = reduce_mean(relu(matmul(relu(matmul(x, v)), v)));
    const Output inside = gradients(loss, std::vector{v})[0];
    EXPECT_EQ(inside.dtype(), DType::kF32);
  }
  const Output gradient = gradients(loss, std::vector{v})[0];
  EXPECT_EQ(gradient.dtype(), DType::kF32);
  // The plain model gives the same, except for rounding.
  const Tensor vs = random_values({4, 4}, -1, 1, 1), xs = random_values({4, 4}, -1, 1, 2);
  const auto value = [&](Output y) {
    return evaluate(y, std::vector<FeedValue>{{x, xs}, {static_cast<Output>(v), vs}});
  };
  const Output plain =
      gradients(reduce_mean(relu(matmul(relu(matmul(x, v)), v))), std::vector{v})[0];
  EXPECT_LE(difference(value(gradient), value(plain)), type() == DType::kF16 ? 2e-3 : 2e-2);
  EXPECT_GT(difference(value(gradient), value(plain)), 0);
}

TEST_P(AutocastTest, LeavesInitialisersExact) {
  const AutocastScope scope(graph_, autocasting(GetParam()));
  const Variable v = variable(graph_, "v", {2, 2},
                              {.initializer = [](Graph& graph, const Shape& shape, DType dtype) {
                                const Output x = constant(graph, random_values(shape));
                                const Output product = matmul(x, x);
                                EXPECT_EQ(product.dtype(), dtype);
                                return product;
                              }});
  EXPECT_EQ(v.dtype(), DType::kF32);
}

TEST_P(AutocastTest, EndsWithItsScope) {
  const Output x = input("x");
  {
    const AutocastScope scope(graph_, autocasting(GetParam()));
    const AutocastScope inner(graph_, autocasting(Precision::kF32));
    EXPECT_EQ(matmul(x, x).dtype(), DType::kF32);
  }
  EXPECT_EQ(matmul(x, x).dtype(), DType::kF32);
}

INSTANTIATE_TEST_SUITE_P(Types, AutocastTest, testing::Values(Precision::kBf16, Precision::kF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(Precision, Tf32MarksNodesAndTheirGradients) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 2});
  Output y;
  {
    const AutocastScope scope(graph, autocasting(Precision::kTf32));
    y = matmul(x, x);
  }
  EXPECT_FALSE(matmul(x, x).node().origin().tf32);
  EXPECT_TRUE(y.node().origin().tf32);
  EXPECT_EQ(y.dtype(), DType::kF32);
  EXPECT_EQ(casts(graph), 0);
  const std::size_t forward = graph.size();
  gradients(y, {x});
  int products = 0;
  for (std::size_t id = forward; id < graph.size(); ++id)
    if (graph.node(id).op().autocast == Autocast::kCompute) {
      EXPECT_TRUE(graph.node(id).origin().tf32);
      ++products;
    }
  EXPECT_EQ(products, 2);
}

TEST(Precision, IsFoundByName) {
  for (const std::string& name : precision_names()) EXPECT_EQ(name_of(find_precision(name)), name);
  EXPECT_THROW(find_precision("fp16"), InvalidArgument);
}

}  // namespace precision_test
}  // namespace belfry
