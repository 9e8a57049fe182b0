#include "belfry/ops/matmul.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/plan_kernels/host_kernel.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/kernels/gemm.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace matmul_test {

Builder product(MatMulOptions options = {}) {
  return [=](Inputs x) { return matmul(x[0], x[1], options); };
}

void check_product(MatMulOptions options, Shape a, Shape b) {
  check_op({.build = product(options),
            .inputs = {random_values(a), random_values(b, -2, 2, 2)},
            .f32 = 2e-6,
            .library = true,
            .nan = true});
}

TEST(MatMul, MultipliesMatrices) {
  const Tensor a({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Tensor b({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(doubles(compute(product(), {a, b})), (std::vector<double>{22, 28, 49, 64}));
}

TEST(MatMul, TransposesEitherFactor) {
  const Tensor a({3, 2}, std::vector<float>{1, 4, 2, 5, 3, 6});
  const Tensor b({2, 3}, std::vector<float>{1, 3, 5, 2, 4, 6});
  EXPECT_EQ(doubles(compute(product({.transpose_a = true, .transpose_b = true}), {a, b})),
            (std::vector<double>{22, 28, 49, 64}));
}

TEST(MatMul, TheFormOfWeightGradientsIsAnOpOfItsOwn) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  const Output dy = placeholder(graph, "dy", DType::kF32, {kUnknownSize, 2});
  const Output dw = matmul(x, dy, {.transpose_a = true});
  EXPECT_EQ(&dw.node().op(), &kMatMulTransposeA);
  EXPECT_EQ(dw.shape(), (Shape{3, 2}));
}

TEST(MatMul, MultipliesEachMatrixOfABatch) {
  const Tensor a({2, 1, 2}, std::vector<float>{1, 2, 3, 4});
  const Tensor b({2, 2, 1}, std::vector<float>{5, 6, 7, 8});
  EXPECT_EQ(doubles(compute(product(), {a, b})), (std::vector<double>{17, 53}));
}

// Queries times keys, head by head: [2,1,3] rows against [2,2,3] rows.
TEST(MatMul, TransposesEachMatrixOfABatch) {
  const Tensor q({2, 1, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Tensor k({2, 2, 3}, std::vector<float>{1, 0, 1, 0, 1, 0, 2, 0, 0, 0, 0, 2});
  EXPECT_EQ(doubles(compute(product({.transpose_b = true}), {q, k})),
            (std::vector<double>{4, 2, 8, 12}));
  const Tensor columns({2, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(doubles(compute(product({.transpose_a = true, .transpose_b = true}), {columns, k})),
            (std::vector<double>{4, 2, 8, 12}));
}

TEST(MatMul, KeepsItsContractForTinyMatrices) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      check_product({ta, tb}, ta ? Shape{4, 5} : Shape{5, 4}, tb ? Shape{3, 4} : Shape{4, 3});
}

TEST(MatMul, KeepsItsContractForTheMatricesOfTheLibrary) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      check_product({ta, tb}, ta ? Shape{37, 21} : Shape{21, 37},
                    tb ? Shape{70, 37} : Shape{37, 70});
  check_product({}, {33, 130}, {130, 10});
}

TEST(MatMul, KeepsItsContractForBatchesOfMatrices) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      check_product({ta, tb}, ta ? Shape{3, 2, 4, 5} : Shape{3, 2, 5, 4},
                    tb ? Shape{3, 2, 3, 4} : Shape{3, 2, 4, 3});
  check_product({.transpose_b = true}, {3, 20, 17}, {3, 20, 17});
}

TEST(MatMul, RefusesInnerDimensionsThatDiffer) {
  expect_refused(product(), {{{64, 784}}, {{800, 10}}},
                 "inner dimensions differ: [64,784] x [800,10]");
}

TEST(MatMul, RefusesBatchesOfDifferentSizes) {
  expect_refused(product(), {{{2, 6, 4, 5}}, {{2, 3, 5, 4}}},
                 "leading dimension 1 differs: [2,6,4,5] x [2,3,5,4]");
  expect_refused(product(), {{{6, 4, 5}}, {{2, 3, 5, 4}}},
                 "leading dimensions 6 and 3 must be equal, or one of them 1");
}

// matmul() chooses the op, so these are seen only by who adds one.
TEST(MatMul, RefusesRanksOfOtherOps) {
  const auto added = [](const Op& op) {
    return [&op](Inputs x) {
      return x[0].graph().add(op, x, {}, NodeOptions(MatMulOptions())).output();
    };
  };
  expect_refused(added(kMatMul), {{{2, 4, 5}}, {{5, 4}}},
                 "needs two tensors of one rank, 2 or more, not [2,4,5] x [5,4]");
  expect_refused(added(kBroadcastMatMul), {{{4}}, {{4, 3}}}, "needs matrices, not [4] x [4,3]");
}

TEST(MatMul, TakesVectorsAsRowsAndColumns) {
  const Tensor v({2}, std::vector<float>{1, 2}), m({2, 2}, std::vector<float>{1, 2, 3, 4});
  const Tensor batch({2, 2, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(compute(product(), {v, m}), Tensor({2}, std::vector<float>{7, 10}));
  EXPECT_EQ(compute(product(), {m, v}), Tensor({2}, std::vector<float>{5, 11}));
  EXPECT_EQ(compute(product(), {v, v}), Tensor(5.f));
  EXPECT_EQ(compute(product(), {v, batch}), Tensor({2, 2}, std::vector<float>{7, 10, 19, 22}));
  EXPECT_EQ(compute(product(), {batch, v}), Tensor({2, 2}, std::vector<float>{5, 11, 17, 23}));
  expect_refused(product(), {{{}}, {{4, 3}}}, "has a scalar; multiply by *");
}

// Each matrix of the broadcast batch by itself.
TEST(BroadcastMatMul, RepeatsLeadingDimensions) {
  const Tensor a({2, 1, 1, 2}, std::vector<float>{1, 2, 3, 4});
  const Tensor b({3, 2, 1}, std::vector<float>{1, 1, 1, 0, 0, 1});
  EXPECT_EQ(compute(product(), {a, b}), Tensor({2, 3, 1, 1}, std::vector<float>{3, 1, 2, 7, 3, 4}));
  EXPECT_EQ(compute(product({.transpose_a = true, .transpose_b = true}), {b, a}),
            Tensor({2, 3, 1, 1}, std::vector<float>{3, 1, 2, 7, 3, 4}));
}

TEST(BroadcastMatMul, KeepsItsContract) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const auto check = [&](std::vector<std::int64_t> a, std::vector<std::int64_t> b) {
        const std::int64_t m = 4, k = 3, n = 2;
        for (const std::int64_t dim : {ta ? k : m, ta ? m : k}) a.push_back(dim);
        for (const std::int64_t dim : {tb ? n : k, tb ? k : n}) b.push_back(dim);
        check_product({ta, tb}, Shape(a), Shape(b));
      };
      check({5, 1}, {1, 3});
      check({5}, {});
      check({}, {3});
      check({5, 2}, {2});
      check({2}, {3, 1});
    }
}

// Runs the node's kernel on random inputs, part by part, each of `rows` rows.
Tensor product_in_parts(const Node& node, std::int64_t rows) {
  std::vector<TensorType> inputs;
  std::vector<Tensor> tensors;
  for (const Output& input : node.inputs()) {
    inputs.push_back(input.type());
    tensors.push_back(random_values(input.shape(), -1, 1, static_cast<unsigned>(inputs.size())));
  }
  const TensorType output = node.output_type(0);
  Tensor product(output.shape, output.dtype);
  KernelPlan plan(node, inputs, {&output, 1}, {0, output.shape[0]});
  const KernelRun run = prepare_kernel(plan, false);
  Tensor workspace({plan.workspace_bytes()}, DType::kU8);
  void* const read[] = {tensors[0].mutable_raw(), tensors[1].mutable_raw()};
  void* const written[] = {product.mutable_raw()};
  for (std::int64_t row = 0; row < output.shape[0]; row += rows)
    run(KernelPointers(read, written, workspace.mutable_raw(),
                       {row, std::min(row + rows, output.shape[0])}, 0));
  return product;
}

TEST(MatMul, PartsHaveTheBitsOfTheWhole) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      Graph graph;
      // oneDNN computes whole products of this depth with other bits than blocks of rows.
      constexpr std::int64_t kRows = 300, kColumns = 1'024, kDepth = 1'000;
      const Output a =
          placeholder(graph, "a", DType::kF32, ta ? Shape{kDepth, kRows} : Shape{kRows, kDepth});
      const Output b = placeholder(graph, "b", DType::kF32,
                                   tb ? Shape{kColumns, kDepth} : Shape{kDepth, kColumns});
      const Output c = matmul(a, b, {.transpose_a = ta, .transpose_b = tb});
      const std::int64_t rows = rows_of_product_part(c.shape());
      EXPECT_EQ(rows, 128);
      EXPECT_EQ(product_in_parts(c.node(), rows), product_in_parts(c.node(), kRows)) << ta << tb;
      EXPECT_EQ(product_in_parts(c.node(), 2 * rows), product_in_parts(c.node(), kRows));
    }
}

TEST(MatMul, FewRowsOrColumnsAreNotDivided) {
  EXPECT_EQ(rows_of_product_part({256, 64}), 128);
  EXPECT_EQ(rows_of_product_part({128, 64}), 128);
  EXPECT_EQ(rows_of_product_part({257, 64}), 257);
  EXPECT_EQ(rows_of_product_part({256, 63}), 256);
  EXPECT_EQ(rows_of_product_part({256, 300, 64}), 256);
  EXPECT_EQ(rows_of_product_part({50'257, 768}), 3'200) << "at most 16 parts";
  EXPECT_EQ(rows_of_product_part({0, 64}), 1);
  EXPECT_EQ(rows_of_product_part({}), 1);
}

TEST(BroadcastMatMul, KeepsItsContractForTheMatricesOfTheLibrary) {
  check_product({}, {3, 1, 20, 17}, {2, 17, 21});
  check_product({.transpose_b = true}, {3, 20, 17}, {21, 17});
}

TEST(MatMul, RowsOfAllMatricesTimesOneAreOneProduct) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 7, 3});
  const Output w = placeholder(graph, "w", DType::kF32, {3, 2});
  const Output y = matmul(x, w);
  EXPECT_EQ(y.shape(), (Shape{kUnknownSize, 7, 2}));
  EXPECT_EQ(&y.node().input(0).node().op(), &kMatMul);
  const Output open = placeholder(graph, "open", DType::kF32, {kUnknownSize, kUnknownSize, 3});
  EXPECT_EQ(&matmul(open, w).node().op(), &kBroadcastMatMul);
  EXPECT_EQ(matmul(open, w).shape(), (Shape{kUnknownSize, kUnknownSize, 2}));
}

TEST(MatMul, RefusesMixedTypes) {
  expect_refused(product(), {{{2, 4}, DType::kF32}, {{4, 3}, DType::kF64}}, "cast");
}

TEST(Gemm, RowsDoNotDependOnTheNumberOfRows) {
  constexpr std::int64_t kRows = 7, kColumns = 37, kDepth = 300;
  const Tensor a = random_values({kRows, kDepth}), b = random_values({kDepth, kColumns});
  std::vector<float> whole(kRows * kColumns), part(kRows * kColumns);
  kernels::GemmShape shape{
      .m = kRows, .n = kColumns, .k = kDepth, .row_a = kDepth, .row_b = kColumns};
  kernels::gemm(shape, a.data<float>().data(), b.data<float>().data(), whole.data());
  shape.m = 3;
  kernels::gemm(shape, a.data<float>().data() + 2 * kDepth, b.data<float>().data(), part.data());
  for (std::int64_t i = 0; i < 3 * kColumns; ++i) EXPECT_EQ(part[i], whole[2 * kColumns + i]) << i;
}

}  // namespace matmul_test
}  // namespace belfry
