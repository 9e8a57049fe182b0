// LSTM and GRU: for each time a product of matrices by cuBLASLt, and one launch for gates and
// states. A thread computes one element of a state, so it alone touches the element.
#include <algorithm>
#include <memory>

#include "belfry/framework/cuda/kernels/copy_bytes.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"
#include "belfry/ops/recurrent/recurrence_impl.h"
#include "belfry/ops/recurrent/recurrence_op_impl.h"
#include "belfry/ops/recurrent/recurrent.h"

namespace belfry::cuda {
namespace {

using kernels::Sequences;

// The lengths of rows, cut to [0, time]: those outside are recorded as faults.
struct RowLengths {
  const std::int32_t* of;
  std::int64_t time;

  BELFRY_HD std::int64_t operator[](std::int64_t row) const {
    if (!of) return time;
    const std::int64_t length = of[row];
    return length < 0 ? 0 : length > time ? time : length;
  }
};

struct CheckLengths {
  using Shared = Nothing;
  const std::int32_t* lengths;
  std::int64_t rows, time;
  Fault* fault;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index * block.threads + thread;
      if (row < rows && (lengths[row] < 0 || lengths[row] > time)) note(fault, row, lengths[row]);
    });
  }
};

// Rows of `columns` elements, which lie `step` apart, one after the other.
template <class T>
struct CopyRowsOfTime {
  using Shared = Nothing;
  std::int64_t rows, columns, step;
  const T* from;
  T* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < rows * columns) to[i] = from[i / columns * step + i % columns];
    });
  }
};

// One time of all rows, forward (LstmStep, GruStep).
template <class Step>
struct StepOfRows {
  using Shared = Nothing;
  Step all;
  Sequences s;
  RowLengths lengths;
  std::int64_t t;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= s.rows * s.hidden) return;
      const std::int64_t row = i / s.hidden, j = i % s.hidden;
      const Step one = all.row(s, row, t);
      if (t < lengths[row])
        one.step(j, s.hidden);
      else
        one.skip(j, s.hidden);
    });
  }
};

// And backward (LstmGradStep, GruGradStep).
template <class Step>
struct GradStepOfRows {
  using Shared = Nothing;
  Step all;
  Sequences s;
  RowLengths lengths;
  std::int64_t t;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= s.rows * s.hidden) return;
      const std::int64_t row = i / s.hidden, j = i % s.hidden, length = lengths[row];
      const Step one = all.row(s, row, t, s.starts(t, length));
      if (t < length)
        one.step(j, s.hidden);
      else
        one.skip(j, s.hidden);
    });
  }
};

// What both directions share: the lengths, the first states and the product.
template <class Step>
class TimeByTime {
 public:
  using T = typename Step::Element;

  TimeByTime(KernelPlan& plan, const Sequences& s)
      : s_(s),
        refusal_(std::make_shared<const Refusal>(
            [&node = plan.node(), time = s.time](std::int64_t row, std::int64_t length) {
              kernels::refuse_length(node, row, length, time);
            })) {
    matmul_.dtype = plan.dtype();
    if (plan.dtype() == DType::kF32 && plan.node().origin().tf32) matmul_.compute = Compute::kTf32;
  }

 protected:
  std::int64_t columns() const { return Step::kGates * s_.hidden; }
  // Hidden weights, as the library sees them: columns as rows.
  ColumnMajor weights() const { return {columns(), s_.hidden, columns(), s_.hidden * columns()}; }
  Grid grid() const { return grid_for(s_.rows * s_.hidden); }

  void choose(Algorithms& algorithms) { algorithm_ = algorithms.matmul(matmul_); }
  void multiply(KernelQueue& queue, const KernelPointers& p, const T* rows, T* product,
                std::byte* workspace) const {
    queue.matmul({.matmul = matmul_,
                  .algorithm = algorithm_,
                  .a = p.input<void>(Step::kHidden),
                  .b = rows,
                  .c = product,
                  .workspace = workspace});
  }
  RowLengths start(KernelQueue& queue, const KernelPointers& p) const {
    const std::int64_t bytes = s_.rows * s_.hidden * static_cast<std::int64_t>(sizeof(T));
    for (const kernels::StateCopy& state : Step::kStates)
      copy_bytes(queue, p.input<T>(state.from), p.output<T>(state.to), bytes);
    if (p.inputs() <= Step::kLengths) return {nullptr, s_.time};
    const auto* const lengths = p.input<std::int32_t>(Step::kLengths);
    launch(queue, CheckLengths{lengths, s_.rows, s_.time, queue.fault(refusal_)},
           grid_for(s_.rows));
    return {lengths, s_.time};
  }

  Sequences s_;
  MatMul matmul_;
  MatMulAlgorithm algorithm_;

 private:
  std::shared_ptr<const Refusal> refusal_;
};

template <class Step>
class Forward : TimeByTime<Step> {
  using Base = TimeByTime<Step>;
  using T = typename Step::Element;

 public:
  Forward(KernelPlan& plan, Algorithms& algorithms, const Sequences& s) : Base(plan, s) {
    this->matmul_.a = this->weights();
    this->matmul_.b = {s.hidden, s.rows, s.hidden, s.rows * s.hidden};
    this->matmul_.c = {this->columns(), s.rows, this->columns(), s.rows * this->columns()};
    this->choose(algorithms);
    product_bytes_ =
        (s.rows * this->columns() * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
    plan.workspace(product_bytes_ + this->algorithm_.workspace_bytes);
  }

  void operator()(const KernelPointers& p, KernelQueue& queue) const {
    const RowLengths lengths = this->start(queue, p);
    T* const product = reinterpret_cast<T*>(p.workspace());
    Step all = Step::of(p);
    all.product = product;
    for (std::int64_t step = 0; step < this->s_.time; ++step) {
      this->multiply(queue, p, all.h, product, p.workspace() + product_bytes_);
      launch(queue, StepOfRows<Step>{all, this->s_, lengths, this->s_.time_of_step(step)},
             this->grid());
    }
  }

 private:
  std::int64_t product_bytes_;
};

// The product of each time is added to dh. cuBLASLt takes memory that is aligned to 64 bytes, which
// the gradients of a time are only if those of one row are; otherwise it gets a copy of them.
template <class Step>
class Backward : TimeByTime<Step> {
  using Base = TimeByTime<Step>;
  using T = typename Step::Element;

 public:
  Backward(KernelPlan& plan, Algorithms& algorithms, const Sequences& s) : Base(plan, s) {
    const std::int64_t columns = this->columns(), element = sizeof(T);
    copied_ = columns * element % 64 != 0;
    this->matmul_.a = this->weights();
    this->matmul_.transpose_a = true;
    const std::int64_t step = copied_ ? columns : std::max<std::int64_t>(s.time, 1) * columns;
    this->matmul_.b = {columns, s.rows, step, s.rows * step};
    this->matmul_.c = {s.hidden, s.rows, s.hidden, s.rows * s.hidden};
    this->matmul_.added = true;
    this->choose(algorithms);
    if (copied_) copy_bytes_ = (s.rows * columns * element + 255) / 256 * 256;
    plan.workspace(copy_bytes_ + this->algorithm_.workspace_bytes);
  }

  void operator()(const KernelPointers& p, KernelQueue& queue) const {
    const RowLengths lengths = this->start(queue, p);
    const Step all = Step::of(p);
    T* const copy = reinterpret_cast<T*>(p.workspace());
    const std::int64_t rows = this->s_.rows, columns = this->columns();
    for (std::int64_t step = this->s_.time - 1; step >= 0; --step) {
      const std::int64_t t = this->s_.time_of_step(step);
      launch(queue, GradStepOfRows<Step>{all, this->s_, lengths, t}, this->grid());
      const T* grads = all.multiplied() + t * columns;
      if (copied_) {
        launch(queue, CopyRowsOfTime<T>{rows, columns, this->s_.time * columns, grads, copy},
               grid_for(rows * columns));
        grads = copy;
      }
      this->multiply(queue, p, grads, all.dh, p.workspace() + copy_bytes_);
    }
  }

 private:
  bool copied_;
  std::int64_t copy_bytes_ = 0;
};

// Output `vectors` has the sizes. 16 bits are computed in f32.
template <template <class> class Run, template <class> class Step, std::size_t vectors>
QueueRun prepare_recurrence(KernelPlan& plan, Algorithms& algorithms) {
  if (is_half(plan.dtype())) return {};
  const Sequences s = recurrent::sequences_of(plan, vectors);
  if (s.rows == 0) return [](const KernelPointers&, KernelQueue&) {};
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) -> QueueRun { return Run<Step<T>>(plan, algorithms, s); });
}

const GpuKernel kernels_of_recurrences[] = {
    {kLstm, prepare_recurrence<Forward, kernels::LstmStep, 1>},
    {kLstmGrad, prepare_recurrence<Backward, kernels::LstmGradStep, 1>},
    {kGru, prepare_recurrence<Forward, kernels::GruStep, 1>},
    {kGruGrad, prepare_recurrence<Backward, kernels::GruGradStep, 2>},
};

}  // namespace
}  // namespace belfry::cuda
