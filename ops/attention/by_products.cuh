// Attention by products of matrices, which tensor cores compute: for 16 bits and tf32, whose
// inputs are rounded anyway. Heads are moved apart, to [batch * heads, time, head_dim]. Then one
// block of queries of all heads at a time is multiplied by the keys that it may see, so memory
// grows only with the time. Heads that share keys have copies of them. Scores and sums over blocks
// are f32; weights have the type of the tensors.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/attention/query_blocks.cuh"

namespace belfry::cuda::by_products {

// Matrices of all heads, row after row.
struct RowMajor {
  std::int64_t rows, columns, leading, step;

  ColumnMajor transposed() const { return {columns, rows, leading, step}; }
};

// c = op(a) op(b) for each head.
struct Product {
  MatMul matmul;
  MatMulAlgorithm algorithm;

  void enqueue(KernelQueue& queue, const void* a, const void* b, void* c,
               std::byte* workspace) const {
    queue.matmul({.matmul = matmul,
                  .algorithm = algorithm,
                  .a = b,  // as in matmul.cu, the library computes the transpose of c
                  .b = a,
                  .c = c,
                  .workspace = workspace});
  }
};

// Parts of the workspace, at multiples of 256 bytes.
class Layout {
 public:
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

// Shared by both passes. T is the type of the tensors.
template <class T>
class ByProducts {
 public:
  ByProducts(KernelPlan& plan, Algorithms& algorithms, const SightPlan& sight)
      : sight_(sight),
        shape_(sight.shape()),
        queries_(rows_of_queries(shape_)),
        results_(rows_of_results(shape_)),
        keys_(rows_of_keys(shape_)),
        scale_(static_cast<float>(shape_.scale)),
        blocks_(query_blocks(shape_)),
        algorithms_(algorithms) {
    matmul_.dtype = plan.dtype();
    matmul_.compute = is_half(plan.dtype()) ? Compute::kExact : Compute::kTf32;
    matmul_.count = count();
  }

 protected:
  static constexpr std::int64_t kFloat = sizeof(float);

  // Of all heads and samples.
  std::int64_t count() const { return shape_.batch * shape_.heads; }
  // The first rows of each head of a tensor.
  static RowMajor rows_of(const HeadRows& of, std::int64_t rows) {
    return {rows, of.columns, of.columns, of.time * of.columns};
  }
  static RowMajor scores_of(const QueryBlock& of) {
    return {of.rows, of.keys, of.leading, of.rows * of.leading};
  }
  Product product(const RowMajor& a, bool transpose_a, const RowMajor& b, bool transpose_b,
                  const RowMajor& c) {
    MatMul matmul = matmul_;
    matmul.a = b.transposed();
    matmul.b = a.transposed();
    matmul.c = c.transposed();
    matmul.transpose_a = transpose_b;
    matmul.transpose_b = transpose_a;
    return chosen(matmul);
  }
  // The product in f32, which `added` adds to the present values.
  Product in_f32(Product of, bool added = false) {
    of.matmul.wide = is_half(of.matmul.dtype);
    of.matmul.added = added;
    return chosen(of.matmul);
  }
  Product times_transposed(const QueryBlock& of) {  // e.g. queries with keys
    return in_f32(
        product(rows_of(queries_, of.rows), false, rows_of(keys_, of.keys), true, scores_of(of)));
  }
  Product times(const QueryBlock& of) {  // e.g. weights with values
    return product(scores_of(of), false, rows_of(keys_, of.keys), false,
                   rows_of(queries_, of.rows));
  }
  // Parts of the workspace: tensors with heads apart; f32 scores, and their results in T, in the
  // same place if T is f32; last, the library's workspace.
  template <class Element>
  std::int64_t add_heads(const HeadRows& heads) {
    return layout_.add(heads.elements() * static_cast<std::int64_t>(sizeof(Element)));
  }
  std::pair<std::int64_t, std::int64_t> add_scores() {
    std::int64_t most = 0;
    for (const QueryBlock& of : blocks_) most = std::max(most, count() * of.rows * of.leading);
    const std::int64_t wide = layout_.add(most * kFloat);
    return {wide, std::is_same_v<T, float>
                      ? wide
                      : layout_.add(most * static_cast<std::int64_t>(sizeof(T)))};
  }
  void finish(KernelPlan& plan) {
    library_ = layout_.add(library_bytes_);
    plan.workspace(layout_.bytes());
  }
  // Elements of a head, in tensors with heads apart, before a block of queries.
  std::int64_t before(const QueryBlock& of) const { return of.first * shape_.head_dim; }

  SightPlan sight_;
  AttentionShape shape_;
  HeadRows queries_, results_, keys_;
  float scale_;
  std::vector<QueryBlock> blocks_;
  Layout layout_;
  std::int64_t library_ = 0;  // the offset of the library's workspace

 private:
  Product chosen(const MatMul& matmul) {
    const MatMulAlgorithm algorithm = algorithms_.matmul(matmul);
    library_bytes_ = std::max(library_bytes_, algorithm.workspace_bytes);
    return {matmul, algorithm};
  }

  Algorithms& algorithms_;  // used only while the kernel is prepared
  MatMul matmul_;
  std::int64_t library_bytes_ = 0;
};

template <class T>
class Attention final : public ByProducts<T> {
  using Base = ByProducts<T>;
  using Base::blocks_, Base::queries_, Base::results_, Base::keys_, Base::library_;

 public:
  Attention(KernelPlan& plan, Algorithms& algorithms, const SightPlan& sight)
      : Base(plan, algorithms, sight) {
    for (const QueryBlock& of : blocks_)
      products_.push_back({this->times_transposed(of), this->times(of)});
    for (std::size_t i = 0; i < 4; ++i) apart_[i] = this->template add_heads<T>(heads(i));
    std::tie(scores_, weights_) = this->add_scores();
    this->finish(plan);
  }

  void run(const KernelPointers& p, KernelQueue& queue) const {
    std::byte* const memory = p.workspace();
    T* apart[4];  // q, k, v, y
    for (int i = 0; i < 4; ++i) apart[i] = reinterpret_cast<T*>(memory + apart_[i]);
    auto* const scores = reinterpret_cast<float*>(memory + scores_);
    auto* const weights = reinterpret_cast<T*>(memory + weights_);
    const auto in = input_heads<T>(p, this->shape_, 0);
    for (std::size_t i = 0; i < 3; ++i) move_heads<true>(queue, heads(i), in[i], apart[i]);
    const Sight<T> sight = this->sight_.template sight<T>(p, queue);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const QueryBlock& of = blocks_[i];
      const std::int64_t first = this->before(of);
      products_[i][0].enqueue(queue, apart[0] + first, apart[1], scores, memory + library_);
      launch(queue, WeighQueries<T>{sight, of, this->scale_, scores, weights, p.output<float>(1)},
             of.grid(this->count()));
      products_[i][1].enqueue(queue, weights, apart[2], apart[3] + first, memory + library_);
    }
    move_heads<false>(queue, results_, apart[3], p.output<T>(0));
  }

 private:
  // Of q, k, v, y.
  const HeadRows& heads(std::size_t i) const {
    return i == 0 ? queries_ : i == 3 ? results_ : keys_;
  }

  std::vector<std::array<Product, 2>> products_;
  std::int64_t apart_[4], scores_, weights_;
};

template <class T>
class AttentionGrad final : public ByProducts<T> {
  using Base = ByProducts<T>;
  using Base::blocks_, Base::queries_, Base::results_, Base::keys_, Base::kFloat, Base::layout_,
      Base::library_;

 public:
  AttentionGrad(KernelPlan& plan, Algorithms& algorithms, const SightPlan& sight)
      : Base(plan, algorithms, sight) {
    std::ranges::reverse(blocks_);  // the first block writes all rows of dk and dv, others add
    for (const QueryBlock& of : blocks_) {
      const RowMajor scores = Base::scores_of(of), rows = Base::rows_of(queries_, of.rows);
      const Product sums =
          this->in_f32(this->product(scores, true, rows, false, Base::rows_of(keys_, of.keys)),
                       !products_.empty());
      products_.push_back({this->times_transposed(of), this->times(of), sums});
    }
    for (std::size_t i = 0; i < 5; ++i) apart_[i] = this->template add_heads<T>(heads(i));
    for (std::int64_t& part : sums_) part = this->template add_heads<float>(keys_);
    row_products_ = layout_.add(this->count() * queries_.time * kFloat);
    if (plan.outputs() > d_mask_at()) masked_ = plan.output(d_mask_at()).shape.elements();
    if (!std::is_same_v<T, float>) d_mask_ = layout_.add(masked_ * kFloat);
    for (int i = 0; i < 2; ++i) std::tie(wide_[i], narrow_[i]) = this->add_scores();
    this->finish(plan);
  }

  // dy, q, k, v, y, logarithms of sums -> dq, dk, dv, and the gradient of an added mask.
  void run(const KernelPointers& p, KernelQueue& queue) const {
    std::byte* const memory = p.workspace();
    const auto narrow = [&](std::int64_t at) { return reinterpret_cast<T*>(memory + at); };
    const auto wide = [&](std::int64_t at) { return reinterpret_cast<float*>(memory + at); };
    T *const dy = narrow(apart_[0]), *const q = narrow(apart_[1]), *const k = narrow(apart_[2]),
             *const v = narrow(apart_[3]), *const dq = narrow(apart_[4]);
    const auto in = input_heads<T>(p, this->shape_, 1);
    const auto out = output_heads<T>(p, this->shape_);
    const std::size_t y = 1 + this->shape_.tensors();  // among the inputs
    move_heads<true>(queue, results_, p.input<T>(0), dy);
    for (std::size_t i = 0; i < 3; ++i)
      move_heads<true>(queue, heads(i + 1), in[i], narrow(apart_[i + 1]));
    const std::int64_t rows = this->count() * queries_.time;
    launch(queue, RowProducts<T>{results_, p.input<T>(y), p.input<T>(0), wide(row_products_)},
           {.blocks = (rows + kRows - 1) / kRows, .threads = kRows * kLanes});
    const Sight<T> sight = this->sight_.template sight<T>(p, queue);
    float* d_mask = nullptr;
    if (masked_ > 0) {
      if constexpr (std::is_same_v<T, float>)
        d_mask = p.output<float>(d_mask_at());
      else
        d_mask = wide(d_mask_);
      fill_zeros(queue, d_mask, masked_ * kFloat);
    }
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const QueryBlock& of = blocks_[i];
      const auto& [times_transposed, times, sums] = products_[i];
      const auto multiply = [&](const Product& product, const void* a, const void* b, void* c) {
        product.enqueue(queue, a, b, c, memory + library_);
      };
      const std::int64_t first = this->before(of);
      multiply(times_transposed, q + first, k, wide(wide_[0]));
      multiply(times_transposed, dy + first, v, wide(wide_[1]));
      const ScoreInputs scores{.scores = wide(wide_[0]),
                               .grads = wide(wide_[1]),
                               .log_sums = p.input<float>(y + 1),
                               .products = wide(row_products_),
                               .scale = this->scale_};
      if (d_mask) {
        const AddToMask<T> add{sight, of, scores, d_mask};
        launch(queue, add, grid_for(add.elements()));
      }
      launch(queue, ScoreGradients<T>{sight, of, scores, narrow(narrow_[0]), narrow(narrow_[1])},
             of.grid(this->count()));
      multiply(times, narrow(narrow_[1]), k, dq + first);
      multiply(sums, narrow(narrow_[1]), q + first, wide(sums_[0]));
      multiply(sums, narrow(narrow_[0]), dy + first, wide(sums_[1]));
    }
    move_heads<false>(queue, queries_, dq, out[0]);
    for (std::size_t i = 0; i < 2; ++i) sum_groups(queue, keys_, wide(sums_[i]), out[i + 1]);
    if constexpr (!std::is_same_v<T, float>)
      if (masked_ > 0)  // a tensor of one head
        move_heads<false>(queue, HeadRows{1, masked_, 1, 1, 1, 1}, d_mask,
                          p.output<T>(d_mask_at()));
  }

 private:
  // Of dy, q, k, v, dq.
  const HeadRows& heads(std::size_t i) const { return i == 2 || i == 3 ? keys_ : queries_; }
  // The output that is the gradient of the mask.
  std::size_t d_mask_at() const { return this->shape_.tensors(); }

  std::vector<std::array<Product, 3>> products_;
  std::int64_t apart_[5], sums_[2], row_products_, wide_[2], narrow_[2];
  std::int64_t masked_ = 0, d_mask_ = 0;  // elements; the offset of f32 sums of 16-bit tensors
};

// Kernel is one of the two above.
template <template <class> class Kernel>
QueueRun prepare(KernelPlan& plan, Algorithms& algorithms, const SightPlan& sight) {
  if (plan.output().shape.elements() == 0) {  // no queries: zero gradients of keys and values
    std::vector<std::int64_t> bytes;
    for (std::size_t i = 0; i < plan.outputs(); ++i) bytes.push_back(plan.output(i).bytes());
    return [bytes](const KernelPointers& p, KernelQueue& queue) {
      for (std::size_t i = 0; i < bytes.size(); ++i) fill_zeros(queue, p.output<void>(i), bytes[i]);
    };
  }
  const auto made = [&]<class T>(T) -> QueueRun {
    return [kernel = std::make_shared<const Kernel<T>>(plan, algorithms, sight)](
               const KernelPointers& p, KernelQueue& queue) { kernel->run(p, queue); };
  };
  return kernels::visit_half_or(
      plan.dtype(), [](DType, const auto& f) { return f(float()); }, made);
}

}  // namespace belfry::cuda::by_products
