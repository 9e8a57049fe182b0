// Kernels give the same bits for padded rows, and never read the padding.
#include "belfry/framework/cuda/kernels/pitched_kernel.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace pitched_kernel_test {

constexpr std::byte kSpoiled{0xff};  // two of them are NaN in f16 and bf16

// Elements after each row. Rows of whole fours keep their alignment, as in plans.
std::int64_t padding_of(const TensorType& type) { return type.shape.back() % 4 == 0 ? 4 : 5; }

bool is_padded(const TensorType& type) { return is_half(type.dtype) && type.shape.rank() > 1; }

// The bytes of a tensor whose rows may have spoiled padding after them.
class Rows {
 public:
  Rows(const TensorType& type, bool padded) : type_(type) {
    const std::size_t element = size_of(type.dtype);
    row_ = padded ? static_cast<std::size_t>(type.shape.back()) * element
                  : static_cast<std::size_t>(type.bytes());
    pitch_ = padded ? row_ + static_cast<std::size_t>(padding_of(type)) * element : row_;
    memory_.assign(row_ == 0 ? 0 : static_cast<std::size_t>(type.bytes()) / row_ * pitch_,
                   kSpoiled);
  }
  void* memory() { return memory_.data(); }
  void set(const Tensor& values) {
    const auto* const from = static_cast<const std::byte*>(values.raw());
    for (std::size_t r = 0; r * pitch_ < memory_.size(); ++r)
      std::copy_n(from + r * row_, row_, memory_.begin() + static_cast<std::ptrdiff_t>(r * pitch_));
  }
  std::vector<std::byte> dense() const {
    std::vector<std::byte> all;
    for (std::size_t at = 0; at < memory_.size(); at += pitch_)
      all.insert(all.end(), memory_.begin() + static_cast<std::ptrdiff_t>(at),
                 memory_.begin() + static_cast<std::ptrdiff_t>(at + row_));
    return all;
  }

 private:
  TensorType type_;
  std::size_t row_, pitch_;
  std::vector<std::byte> memory_;
};

// Each output, without padding.
std::vector<std::vector<std::byte>> run(const Node& node, const std::vector<Tensor>& values,
                                        const std::vector<TensorType>& outputs, bool padded) {
  std::vector<TensorType> inputs;
  std::vector<Rows> rows;
  std::vector<std::int64_t> pitches;
  const auto add = [&](const TensorType& type) {
    const bool pads = padded && is_padded(type);
    rows.emplace_back(type, pads);
    pitches.push_back(pads ? type.shape.back() + padding_of(type) : 0);
  };
  for (const Tensor& value : values) {
    inputs.push_back({value.shape(), value.dtype()});
    add(inputs.back());
    rows.back().set(value);
  }
  for (const TensorType& type : outputs) add(type);
  std::vector<void*> in, out;
  for (std::size_t i = 0; i < rows.size(); ++i)
    (i < values.size() ? in : out).push_back(rows[i].memory());
  HostAlgorithms algorithms(false);
  const WorkRange range = whole_range(node.op(), 0, inputs, outputs);
  KernelPlan plan(node, inputs, outputs, range);
  const QueueRun kernel = prepare_gpu_kernel(plan, algorithms, {pitches});
  Tensor workspace(Shape{plan.workspace_bytes()}, DType::kU8);
  HostQueue queue;
  kernel(KernelPointers(in, out, workspace.mutable_raw(), range, 0), queue);
  std::vector<std::vector<std::byte>> results;
  for (std::size_t i = values.size(); i < rows.size(); ++i) results.push_back(rows[i].dense());
  return results;
}

class PitchedKernels : public ::testing::Test {
 protected:
  void TearDown() override { Variant::set({}); }
  const Node& node_of(const Op& op, const std::vector<TensorType>& inputs, NodeOptions options) {
    std::vector<Output> placed;
    for (const TensorType& type : inputs)
      placed.push_back(placeholder(graph, cat("input", names_++), type.dtype, type.shape));
    return graph.add(op, placed, {}, std::move(options));
  }
  void expect_same(const Op& op, const std::vector<Tensor>& values,
                   const std::vector<TensorType>& outputs, const NodeOptions& options) {
    std::vector<TensorType> types;
    // Where inputs have both types, the plan has narrowed some of a node of f32.
    const bool of_f32 =
        std::ranges::any_of(values, [](const Tensor& v) { return v.dtype() == DType::kF32; });
    for (const Tensor& value : values)
      types.push_back(
          {value.shape(), of_f32 && is_half(value.dtype()) ? DType::kF32 : value.dtype()});
    const Node& node = node_of(op, types, options);
    EXPECT_TRUE(takes_pitches(op));
    EXPECT_TRUE(run(node, values, outputs, true) == run(node, values, outputs, false)) << op.name;
  }
  Graph graph;

 private:
  int names_ = 0;
};

TEST_F(PitchedKernels, OfProductsReadNoPadding) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto of = [&](const Shape& shape) { return numbers(shape, dtype); };
    const TensorType out{{4, 3}, dtype}, two{{2, 4, 3}, dtype};
    expect_same(kMatMul, {of({4, 7}), of({7, 3})}, {out}, NodeOptions(MatMulOptions{}));
    expect_same(kMatMul, {of({4, 7}), of({3, 7})}, {out},
                NodeOptions(MatMulOptions{.transpose_b = true}));
    expect_same(kMatMul, {of({2, 4, 7}), of({2, 7, 3})}, {two}, NodeOptions(MatMulOptions{}));
    expect_same(kMatMulTransposeA, {of({7, 4}), of({7, 3})}, {out},
                NodeOptions(MatMulOptions{.transpose_a = true}));
    expect_same(kBroadcastMatMul, {of({2, 1, 4, 7}), of({1, 3, 7, 3})}, {{{2, 3, 4, 3}, dtype}},
                NodeOptions(MatMulOptions{}));
    expect_same(kMatMul, {of({4, 0}), of({0, 3})}, {out}, NodeOptions(MatMulOptions{}));
  }
}

// Threads convert four neighbours at once where rows are aligned.
TEST_F(PitchedKernels, OfCastsReadNoPadding) {
  for (const std::int64_t columns : {3, 7, 60, 1501})
    for (const auto& [from, to] : {std::pair(DType::kF32, DType::kBF16),
                                   {DType::kBF16, DType::kF32},
                                   {DType::kBF16, DType::kF16},
                                   {DType::kF16, DType::kI32}}) {
      SCOPED_TRACE(cat(name_of(from), " to ", name_of(to), ", ", columns, " columns"));
      expect_same(kCast, {numbers({2, 3, columns}, from)}, {{{2, 3, columns}, to}},
                  NodeOptions(CastOptions{to}));
    }
}

// Rows have one chunk of exponentials, or three. Without the variants, other kernels compute them.
TEST_F(PitchedKernels, OfLossesReadNoPadding) {
  for (const char* off : {"", "cross_entropy.loss_with_gradient", "cross_entropy.logits_as_stored"})
    for (const DType dtype : {DType::kBF16, DType::kF16})
      for (const std::int64_t classes : {67, 2500}) {
        SCOPED_TRACE(cat(off, " off, ", name_of(dtype), ", ", classes, " classes"));
        Variant::set({});
        if (*off != '\0') Variant::set({{off, false}});
        const NodeOptions options(CrossEntropyOptions{.smoothing = 0.1, .ignored = 2});
        const TensorType logits{{9, classes}, dtype}, losses{{9}, DType::kF32},
            one{{}, DType::kF32};
        const Tensor x = numbers(logits.shape, dtype),
                     labels({9}, std::vector<std::int32_t>{0, 1, 2, 3, 66, 5, 2, 7, 0});
        const Tensor of_all = numbers({9}, DType::kF32), of_mean = numbers({}, DType::kF32);
        expect_same(kSparseSoftmaxCrossEntropy, {x, labels}, {losses}, options);
        expect_same(kSparseSoftmaxCrossEntropy, {x, labels}, {{{9}, dtype}}, options);
        expect_same(kSparseSoftmaxCrossEntropyGrad, {x, labels, of_all}, {logits}, options);
        expect_same(kCrossEntropyWithGradient, {x, labels, of_mean}, {logits, losses, one},
                    options);
        for (const int k : {1, 5})
          expect_same(kAccuracy, {x, labels}, {one}, NodeOptions(AccuracyOptions{.k = k}));
      }
}

// Notes calls of cuBLASLt, and reads nothing.
class NotingQueue final : public KernelQueue {
 public:
  void launch(const KernelLaunch&) override {}
  void matmul(const MatMulCall& call) override { calls.push_back(call); }
  void convolve(const ConvolutionCall&) override {}
  void pool(const PoolingCall&) override {}
  void attend(const AttentionCall&) override {}
  void recur(const RecurrenceCall&) override {}
  void recur_back(const RecurrenceGradCall&) override {}
  Fault* fault(const std::shared_ptr<const Refusal>&) override { return nullptr; }
  const std::uint64_t* step() const override { return nullptr; }

  std::vector<MatMulCall> calls;
};

// Two products of 2 x 25,000 rows of 50,257 columns each: both offset and step are beyond 2^32
// bytes, or 2^31 elements.
TEST_F(PitchedKernels, FindMatricesBeyond4GiB) {
  const std::int64_t rows = 25000, columns = 50257, pitch = 50264;
  const std::vector<TensorType> inputs{{{2, 1, rows, 64}, DType::kBF16},
                                       {{1, 2, 64, columns}, DType::kBF16}},
      outputs{{{2, 2, rows, columns}, DType::kBF16}};
  const Node& node = node_of(kBroadcastMatMul, inputs, NodeOptions(MatMulOptions{}));
  NotedAlgorithms algorithms;
  KernelPlan plan(node, inputs, outputs, {0, 1});
  const std::int64_t pitches[] = {0, pitch, pitch};
  const QueueRun kernel = prepare_gpu_kernel(plan, algorithms, {pitches});
  // Addresses that nobody reads.
  char* const base = reinterpret_cast<char*>(std::uintptr_t{1} << 40);
  void* in[] = {base, base};
  void* out[] = {base};
  NotingQueue queue;
  kernel(KernelPointers(in, out, nullptr, {0, 1}, 0), queue);
  ASSERT_EQ(queue.calls.size(), 2u);
  const ColumnMajor& c = queue.calls[1].matmul.c;
  EXPECT_EQ(c, (ColumnMajor{columns, rows, pitch, rows * pitch}));
  EXPECT_EQ(static_cast<char*>(queue.calls[1].c) - base, 4 * rows * pitch);
  EXPECT_EQ(queue.calls[1].matmul.a, (ColumnMajor{columns, 64, pitch, 64 * pitch}));
  EXPECT_EQ(static_cast<const char*>(queue.calls[1].b) - base, 2 * rows * 64);
}

}  // namespace pitched_kernel_test
}  // namespace belfry::cuda
