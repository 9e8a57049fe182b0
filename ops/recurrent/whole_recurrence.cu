// Whole recurrences by cuDNN, which gets weights in its own order and all times in the order in
// which it reads them; or by our kernels: products by cuBLASLt around the kernel of kLstm or kGru.
#include <algorithm>
#include <memory>

#include "belfry/framework/cuda/kernels/copy_bytes.h"
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/shape_ints.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/recurrent/whole_recurrence_impl.h"
#include "belfry/ops/sum_to.h"

namespace belfry::cuda {
namespace {

using recurrent::InnerPlan;
using recurrent::RestMemory;
using recurrent::Whole;

// to [columns, rows] = the transpose of `from`.
template <class T>
struct TransposeMatrix {
  using Shared = Nothing;
  std::int64_t rows, columns;
  const T* from;
  T* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < rows * columns) to[i] = from[i % rows * columns + i / rows];
    });
  }
};

// A copy of [rows, time, size] with times in reverse order.
template <class T>
struct ReverseTimes {
  using Shared = Nothing;
  std::int64_t rows, time, size;
  const T* from;
  T* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= rows * time * size) return;
      to[i] = from[i + (time - 1 - 2 * (i / size % time)) * size];
    });
  }
};

// Hands out parts of a workspace.
class Parts {
 public:
  // The place of `bytes` more.
  std::int64_t add(std::int64_t bytes) {
    const std::int64_t at = total_;
    total_ += (bytes + 255) / 256 * 256;
    return at;
  }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t total_ = 0;
};

template <class T>
T* part_at(const KernelPointers& p, std::int64_t place) {
  return reinterpret_cast<T*>(p.workspace() + place);
}

// --- by our kernels

// The kernel of an op inside the node.
struct Inner {
  Inner(const Node& node, const Op& op, std::vector<TensorType> in, std::vector<TensorType> out,
        Algorithms& algorithms) {
    InnerPlan inner(node, op, std::move(in), std::move(out));
    range = inner.plan.range();
    run = prepare_gpu_kernel(inner.plan, algorithms);
    workspace_bytes = inner.plan.workspace_bytes();
  }
  void operator()(KernelQueue& queue, std::vector<void*> in, std::vector<void*> out,
                  std::byte* workspace) const {
    run(KernelPointers(in, out, workspace, range, 0), queue);
  }

  QueueRun run;
  std::int64_t workspace_bytes;
  WorkRange range;
};

// c [m, n] = a b, of rows; of the transposes of a or b, if asked for. cuBLASLt sees columns.
struct Product {
  Product(const Whole& w, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
          bool transpose_b, Algorithms& algorithms) {
    const auto matrix = [](std::int64_t rows, std::int64_t columns) -> ColumnMajor {
      return {columns, rows, columns, rows * columns};
    };
    matmul = {.dtype = w.dtype,
              .compute =
                  w.node.origin().tf32 && w.dtype == DType::kF32 ? Compute::kTf32 : Compute::kExact,
              .a = transpose_b ? matrix(n, k) : matrix(k, n),
              .b = transpose_a ? matrix(k, m) : matrix(m, k),
              .c = matrix(m, n),
              .transpose_a = transpose_b,
              .transpose_b = transpose_a};
    algorithm = algorithms.matmul(matmul);
  }
  void operator()(KernelQueue& queue, const void* a, const void* b, void* c,
                  std::byte* workspace) const {
    queue.matmul(
        {.matmul = matmul, .algorithm = algorithm, .a = b, .b = a, .c = c, .workspace = workspace});
  }

  MatMul matmul;
  MatMulAlgorithm algorithm;
};

Inner rest_of(const Whole& w, Algorithms& algorithms) {
  return {w.node, w.rest(), inputs_of_rest(w), outputs_of_rest(w), algorithms};
}

OwnKernel forward_by_us(const Whole& w, Algorithms& algorithms) {
  const TensorType bias{{w.columns}, w.dtype}, gates{{w.vectors(), w.columns}, w.dtype};
  const auto product = std::make_shared<const Product>(w, w.vectors(), w.columns, w.features, false,
                                                       false, algorithms);
  const auto add_biases = std::make_shared<const Inner>(w.node, kAdd, std::vector{bias, bias},
                                                        std::vector{bias}, algorithms);
  const auto add_bias = std::make_shared<const Inner>(w.node, kAdd, std::vector{gates, bias},
                                                      std::vector{gates}, algorithms);
  const auto rest = std::make_shared<const Inner>(rest_of(w, algorithms));
  Parts parts;
  const std::int64_t sum = parts.add(bias.bytes());
  const std::int64_t scratch =
      parts.add(std::max({product->algorithm.workspace_bytes, add_biases->workspace_bytes,
                          add_bias->workspace_bytes, rest->workspace_bytes}));
  return {.run =
              [=](const KernelPointers& p, KernelQueue& queue) {
                auto* const workspace = part_at<std::byte>(p, scratch);
                const auto in = [&](std::size_t i) { return p.mutable_inputs()[i]; };
                void *of_gates = in(3), *const all = p.output<void>(1);
                if (w.has_c) {  // an LSTM adds both biases at once
                  of_gates = part_at<void>(p, sum);
                  (*add_biases)(queue, {in(3), in(4)}, {of_gates}, workspace);
                }
                (*product)(queue, in(0), in(1), all, workspace);
                (*add_bias)(queue, {all, of_gates}, {all}, workspace);
                const RestMemory memory{.gates = all};
                (*rest)(queue, inputs_of_rest(w, p, memory), outputs_of_rest(w, p, memory),
                        workspace);
              },
          .workspace_bytes = parts.total()};
}

OwnKernel gradient_by_us(const Whole& w, Algorithms& algorithms) {
  const std::int64_t n = w.vectors();
  const TensorType bias{{w.columns}, w.dtype}, gates{{n, w.columns}, w.dtype};
  const auto product = [&](std::int64_t rows, std::int64_t columns, std::int64_t terms,
                           bool transpose_a) {
    return std::make_shared<const Product>(w, rows, columns, terms, transpose_a, !transpose_a,
                                           algorithms);
  };
  const auto to_x = product(n, w.features, w.columns, false);
  const auto to_weights = product(w.features, w.columns, n, true);
  const auto to_hidden = product(w.hidden, w.columns, n, true);
  const auto to_bias = std::make_shared<const Inner>(w.node, kSumTo, std::vector{gates, bias},
                                                     std::vector{bias}, algorithms);
  const auto rest = std::make_shared<const Inner>(rest_of(w, algorithms));
  Parts parts;
  const std::int64_t of_x = parts.add(gates.bytes());
  const std::int64_t of_h = w.has_c ? of_x : parts.add(gates.bytes());
  const std::int64_t before = parts.add(w.bytes(n * w.hidden));
  const std::int64_t scratch = parts.add(std::max(
      {to_x->algorithm.workspace_bytes, to_weights->algorithm.workspace_bytes,
       to_hidden->algorithm.workspace_bytes, to_bias->workspace_bytes, rest->workspace_bytes}));
  return {.run =
              [=](const KernelPointers& p, KernelQueue& queue) {
                auto* const workspace = part_at<std::byte>(p, scratch);
                const auto in = [&](std::size_t i) { return p.mutable_inputs()[i]; };
                void *const grads = part_at<void>(p, of_x), *const hidden = part_at<void>(p, of_h);
                const RestMemory memory{
                    .gates = grads, .hidden_gates = hidden, .before = part_at<void>(p, before)};
                (*rest)(queue, inputs_of_rest(w, p, memory), outputs_of_rest(w, p, memory),
                        workspace);
                (*to_x)(queue, grads, in(1), p.output<void>(0), workspace);
                (*to_weights)(queue, in(0), grads, p.output<void>(1), workspace);
                (*to_hidden)(queue, memory.before, hidden, p.output<void>(2), workspace);
                (*to_bias)(queue, {grads, in(3)}, {p.output<void>(3)}, workspace);
                (*to_bias)(queue, {hidden, in(4)}, {p.output<void>(4)}, workspace);
              },
          .workspace_bytes = parts.total()};
}

// --- by cuDNN

// Empty if cuDNN does not count that far.
std::optional<Recurrence> recurrence_of(const Whole& w) {
  const auto gates = shape_ints({w.rows, w.time, w.columns});
  const auto x = shape_ints({w.rows, w.time, w.features});
  if (!gates || !x || !shape_ints({w.features + w.hidden + 2, w.columns})) return {};
  return Recurrence{
      .cell = w.has_c ? Recurrence::Cell::kLstm : Recurrence::Cell::kGru,
      .dtype = w.dtype,
      .compute = w.node.origin().tf32 && w.dtype == DType::kF32 ? Compute::kTf32 : Compute::kExact,
      .batch = (*x)[0],
      .time = (*x)[1],
      .features = (*x)[2],
      .hidden = static_cast<int>(w.hidden),
      .saved_bytes = w.saved_bytes()};
}

// Weights, or their gradients, in cuDNN's order.
template <class T>
struct PackedWeights {
  PackedWeights(const Whole& w, T* start)
      : of_x(start),
        of_h(of_x + w.columns * w.features),
        bias_of_x(of_h + w.columns * w.hidden),
        bias_of_h(bias_of_x + w.columns) {}

  T *of_x, *of_h, *bias_of_x, *bias_of_h;
};

template <class T>
void transpose_matrix(KernelQueue& queue, std::int64_t rows, std::int64_t columns, const T* from,
                      T* to) {
  launch(queue, TransposeMatrix<T>{rows, columns, from, to}, grid_for(rows * columns));
}

// A call of cuDNN and the copies around it. Copies are in the workspace.
class ByCudnn {
 public:
  ByCudnn(const Whole& w, const Recurrence& recurrence, const CudnnAlgorithm& algorithm)
      : w_(w), recurrence_(recurrence), algorithm_(algorithm) {
    const std::int64_t weights = w.bytes(recurrence.weights());
    lengths_ = parts_.add(w.rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
    weights_ = parts_.add(weights);
    if (w.reverse) {
      x_ = parts_.add(w.bytes(w.vectors() * w.features));
      y_ = parts_.add(w.bytes(w.vectors() * w.hidden));
    }
    if (w.gradient) {
      saved_ = parts_.add(w.saved_bytes());
      dweights_ = parts_.add(weights);
      if (w.reverse) {
        dx_ = parts_.add(w.bytes(w.vectors() * w.features));
        dy_ = parts_.add(w.bytes(w.vectors() * w.hidden));
      }
    }
    scratch_ = parts_.add(algorithm.workspace_bytes);
  }

  std::int64_t workspace_bytes() const { return parts_.total(); }

  template <class T>
  void run(const KernelPointers& p, KernelQueue& queue) const {
    if (w_.gradient)
      run_back<T>(p, queue);
    else
      run_forward<T>(p, queue);
  }

 private:
  template <class T>
  void run_forward(const KernelPointers& p, KernelQueue& queue) const {
    RecurrenceCall call{.recurrence = recurrence_,
                        .algorithm = algorithm_,
                        .tensors = tensors<T>(p, queue),
                        .y = w_.reverse ? part_at<T>(p, y_) : p.output<T>(0),
                        .last_h = p.output<T>(2),
                        .last_c = w_.has_c ? p.output<T>(3) : nullptr,
                        .workspace = part_at<std::byte>(p, scratch_)};
    call.tensors.saved = p.output<T>(1);
    queue.recur(call);
    if (w_.reverse) turn<T>(queue, w_.hidden, part_at<T>(p, y_), p.output<T>(0));
  }

  template <class T>
  void run_back(const KernelPointers& p, KernelQueue& queue) const {
    T* const dweights = part_at<T>(p, dweights_);
    fill_zeros(queue, dweights, w_.bytes(recurrence_.weights()));
    T* const saved = part_at<T>(p, saved_);  // the call overwrites it
    copy_bytes(queue, p.input<T>(w_.saved()), saved, w_.saved_bytes());
    RecurrenceGradCall call{.recurrence = recurrence_,
                            .algorithm = algorithm_,
                            .tensors = tensors<T>(p, queue),
                            .y = in_order<T>(p, queue, w_.y(), w_.hidden, y_),
                            .dy = in_order<T>(p, queue, w_.dy(), w_.hidden, dy_),
                            .dlast_h = p.input<T>(w_.dh()),
                            .dlast_c = w_.has_c ? p.input<T>(w_.dh() + 1) : nullptr,
                            .dx = w_.reverse ? part_at<T>(p, dx_) : p.output<T>(0),
                            .dh = p.output<T>(5),
                            .dc = w_.has_c ? p.output<T>(6) : nullptr,
                            .dweights = dweights,
                            .workspace = part_at<std::byte>(p, scratch_)};
    call.tensors.saved = saved;
    queue.recur_back(call);
    if (w_.reverse) turn<T>(queue, w_.features, part_at<T>(p, dx_), p.output<T>(0));
    const PackedWeights<T> packed(w_, dweights);
    transpose_matrix(queue, w_.columns, w_.features, packed.of_x, p.output<T>(1));
    transpose_matrix(queue, w_.columns, w_.hidden, packed.of_h, p.output<T>(2));
    copy_bytes(queue, packed.bias_of_x, p.output<T>(3), w_.bytes(w_.columns));
    copy_bytes(queue, packed.bias_of_h, p.output<T>(4), w_.bytes(w_.columns));
  }

  // What both passes read, without `saved`.
  template <class T>
  RecurrenceTensors tensors(const KernelPointers& p, KernelQueue& queue) const {
    fill_lengths(queue, part_at<std::int32_t>(p, lengths_));
    const PackedWeights<T> packed(w_, part_at<T>(p, weights_));
    transpose_matrix(queue, w_.features, w_.columns, p.input<T>(1), packed.of_x);
    transpose_matrix(queue, w_.hidden, w_.columns, p.input<T>(2), packed.of_h);
    copy_bytes(queue, p.input<T>(3), packed.bias_of_x, w_.bytes(w_.columns));
    copy_bytes(queue, p.input<T>(4), packed.bias_of_h, w_.bytes(w_.columns));
    return {.lengths = part_at<std::int32_t>(p, lengths_),
            .x = in_order<T>(p, queue, 0, w_.features, x_),
            .weights = packed.of_x,
            .h = p.input<T>(5),
            .c = w_.has_c ? p.input<T>(6) : nullptr,
            .saved = nullptr};
  }

  void fill_lengths(KernelQueue& queue, std::int32_t* lengths) const {
    Pack<std::uint8_t> pattern{};
    for (int i = 0; i < 4; ++i) std::memcpy(pattern.at + 4 * i, &recurrence_.time, 4);
    fill_bytes(queue, pattern, lengths, 4 * w_.rows);
  }

  // Input `i` of vectors of `size` elements, in the order in which times are read.
  template <class T>
  const T* in_order(const KernelPointers& p, KernelQueue& queue, std::size_t i, std::int64_t size,
                    std::int64_t place) const {
    if (!w_.reverse) return p.input<T>(i);
    turn<T>(queue, size, p.input<T>(i), part_at<T>(p, place));
    return part_at<T>(p, place);
  }
  template <class T>
  void turn(KernelQueue& queue, std::int64_t size, const T* from, T* to) const {
    launch(queue, ReverseTimes<T>{w_.rows, w_.time, size, from, to}, grid_for(w_.vectors() * size));
  }

  Whole w_;
  Recurrence recurrence_;
  CudnnAlgorithm algorithm_;
  Parts parts_;
  std::int64_t lengths_, weights_, scratch_;                                 // places
  std::int64_t x_ = 0, y_ = 0, saved_ = 0, dweights_ = 0, dx_ = 0, dy_ = 0;  // where needed
};

// --- the choice

OwnKernel kernel_of(Whole w, bool gradient, const std::optional<Recurrence>& recurrence,
                    const std::optional<CudnnAlgorithm>& algorithm, Algorithms& algorithms) {
  w.gradient = gradient;
  if (!algorithm) return gradient ? gradient_by_us(w, algorithms) : forward_by_us(w, algorithms);
  const ByCudnn call(w, *recurrence, *algorithm);
  return {.run = visit_floating(w.dtype,
                                [&]<class T>(T) -> QueueRun {
                                  return [call](const KernelPointers& p, KernelQueue& queue) {
                                    call.run<T>(p, queue);
                                  };
                                }),
          .workspace_bytes = call.workspace_bytes()};
}

// A batch without rows has gradients of weights, which are 0.
QueueRun zero_gradients(const KernelPlan& plan, bool gradient) {
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 1; gradient && i < 5; ++i) bytes.push_back(plan.output(i).bytes());
  return [bytes](const KernelPointers& p, KernelQueue& queue) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      fill_zeros(queue, p.output<void>(i + 1), bytes[i]);
  };
}

QueueRun prepare_whole(KernelPlan& plan, Algorithms& algorithms) {
  const Whole w(plan);
  if (w.rows == 0) return zero_gradients(plan, w.gradient);
  const std::optional<Recurrence> recurrence = recurrence_of(w);
  const auto make = [&](const std::optional<CudnnAlgorithm>& by) -> RecurrenceKernels {
    return {kernel_of(w, false, recurrence, by, algorithms),
            kernel_of(w, true, recurrence, by, algorithms)};
  };
  std::optional<CudnnAlgorithm> algorithm;
  if (recurrence) algorithm = algorithms.recurrence(*recurrence, make);
  const OwnKernel kernel = kernel_of(w, w.gradient, recurrence, algorithm, algorithms);
  plan.workspace(kernel.workspace_bytes);
  return kernel.run;
}

const GpuKernel kernels_of_whole_recurrences[] = {
    {kWholeLstm, prepare_whole},
    {kWholeLstmGrad, prepare_whole},
    {kWholeGru, prepare_whole},
    {kWholeGruGrad, prepare_whole},
};

}  // namespace
}  // namespace belfry::cuda
