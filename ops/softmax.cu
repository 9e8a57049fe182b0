// Softmax, its loss and accuracy: a block takes a row.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"

namespace belfry::cuda {
namespace {

using kernels::Add;
using kernels::Max;

template <class T>
struct RowShared {
  FoldShared<T> fold;
  T largest, sum;
};

// Sets shared.largest to the largest of x.
template <class T>
BELFRY_HD void find_largest(const Block& block, RowShared<T>& shared, const T* x, std::int64_t n) {
  fold(block, shared.fold, Max{}, 0, n, [&](std::int64_t i) { return x[i]; });
  block.each([&](int thread) {
    if (thread == 0) shared.largest = shared.fold.total;
  });
}

// y = e^(x - largest), its sum in shared.fold.total; y may be x.
template <class T>
BELFRY_HD void exponentials(const Block& block, RowShared<T>& shared, const T* x, std::int64_t n,
                            T* y) {
  find_largest(block, shared, x, n);
  fold(block, shared.fold, Add{}, 0, n, [&](std::int64_t i) {
    const T e = math::exp(x[i] - shared.largest);
    y[i] = e;
    return e;
  });
}

template <class T>
struct SoftmaxRow {
  using Shared = RowShared<T>;
  const T* x;
  RowBlocks<1> by;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t at = block.index * by.columns;
    T* const to = y + at;
    exponentials(block, shared, x + at, by.columns, to);
    by.each(block, [&](int, std::int64_t i) { to[i] /= shared.fold.total; });
  }
};

template <class T>
struct SoftmaxGradRow {
  using Shared = FoldShared<T>;
  const T *dy, *y;
  RowBlocks<1> by;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t at = block.index * by.columns;
    fold(block, shared, Add{}, 0, by.columns,
         [&](std::int64_t i) { return dy[at + i] * y[at + i]; });
    by.each(block,
            [&](int, std::int64_t i) { dx[at + i] = y[at + i] * (dy[at + i] - shared.total); });
  }
};

// CrossEntropyOptions in type T.
template <class T>
struct Targets {
  explicit Targets(const CrossEntropyOptions& options)
      : smoothing(static_cast<T>(options.smoothing)), ignored(options.ignored) {}
  BELFRY_HD bool ignores(std::int64_t label) const { return label == ignored && label != kNoLabel; }

  T smoothing;
  std::int64_t ignored;
};

// Sums of chunks are added one after the other, as on hosts. A label that is not a class has loss
// NaN.
template <class T>
struct LossRow {
  using Shared = RowShared<T>;
  const T* x;
  Indices labels;
  Targets<T> targets;
  std::int64_t classes;
  T* loss;

  // Adds value(i) of all classes to shared.sum.
  template <class Value>
  BELFRY_HD void sum_up(const Block& block, Shared& shared, const Value& value) const {
    block.each([&](int thread) {
      if (thread == 0) shared.sum = 0;
    });
    for (std::int64_t first = 0; first < classes; first += kChunk) {
      fold(block, shared.fold, Add{}, first, first + kChunk < classes ? first + kChunk : classes,
           value);
      block.each([&](int thread) {
        if (thread == 0) shared.sum += shared.fold.total;
      });
    }
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T* const row = x + block.index * classes;
    T* const y = loss + block.index;
    if (targets.ignores(labels[block.index])) {
      block.each([&](int thread) {
        if (thread == 0) *y = 0;
      });
      return;
    }
    find_largest(block, shared, row, classes);
    sum_up(block, shared, [&](std::int64_t i) { return math::exp(row[i] - shared.largest); });
    const T smoothing = targets.smoothing;
    block.each([&](int thread) {
      if (thread > 0) return;
      const std::int64_t label = labels.below(classes, block.index);
      *y = label < 0 ? math::Format<T>::kNan
                     : math::log(shared.sum) - (1 - smoothing) * (row[label] - shared.largest);
    });
    if (smoothing == 0) return;
    sum_up(block, shared, [&](std::int64_t i) { return row[i] - shared.largest; });
    block.each([&](int thread) {
      if (thread == 0) *y -= smoothing * (shared.sum / static_cast<T>(classes));
    });
  }
};

template <class T>
struct LossGradRow {
  using Shared = RowShared<T>;
  const T* x;
  Indices labels;
  Targets<T> targets;
  const T* dy;
  RowBlocks<1> by;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t classes = by.columns;
    const std::int64_t at = block.index * classes, label = labels[block.index];
    T* const to = dx + at;
    if (targets.ignores(label)) {
      by.each(block, [&](int, std::int64_t i) { to[i] = 0; });
      return;
    }
    exponentials(block, shared, x + at, classes, to);
    const T share = targets.smoothing / static_cast<T>(classes);
    by.each(block, [&](int, std::int64_t i) {
      const T target = i == label ? 1 - targets.smoothing + share : share;
      to[i] = (to[i] / shared.fold.total - target) * dy[block.index];  // exact near 1
    });
    block.each([&](int thread) {
      if (thread == 0) labels.below(classes, block.index);  // records it
    });
  }
};

// For each row 1 if fewer than k logits come before the label's, else 0.
template <class T>
struct Correct {
  using Shared = Nothing;
  const T* x;
  Indices labels;
  std::int64_t rows, classes;
  int k;
  std::uint8_t* correct;

  BELFRY_HD bool is_correct(const T* row, std::int64_t label) const {
    if (label < 0 || label >= classes) return false;
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < classes; ++i) {
      if (row[i] != row[i]) return false;
      before += row[i] > row[label] || (row[i] == row[label] && i < label) ? 1 : 0;
    }
    return before < k;
  }
  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index * block.threads + thread;
      if (row < rows) correct[row] = is_correct(x + row * classes, labels[row]) ? 1 : 0;
    });
  }
};

// The fraction of ones, computed by one block.
struct ShareOfOnes {
  static constexpr int kThreads = 256;
  struct Shared {
    std::int64_t counts[kThreads];
  };
  const std::uint8_t* x;
  std::int64_t n;
  float* share;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) {
      std::int64_t count = 0;
      for (std::int64_t i = thread; i < n; i += kThreads) count += x[i];
      shared.counts[thread] = count;
    });
    block.each([&](int thread) {
      if (thread > 0) return;
      std::int64_t count = 0;
      for (int k = 0; k < kThreads; ++k) count += shared.counts[k];
      *share = static_cast<float>(count) / static_cast<float>(n);
    });
  }
};

QueueRun softmax(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [by = rows_of(plan.output().shape)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, SoftmaxRow<T>{p.input<T>(0), by, p.output<T>()}, by.grid());
    };
  });
}

QueueRun softmax_grad(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [by = rows_of(plan.output().shape)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, SoftmaxGradRow<T>{p.input<T>(0), p.input<T>(1), by, p.output<T>()}, by.grid());
    };
  });
}

// What is known about labels [n] for logits [n, classes] before a run.
struct LabelPlan {
  explicit LabelPlan(const KernelPlan& plan)
      : rows(plan.input(0).shape[0]),
        classes(plan.input(0).shape[1]),
        wide(plan.input(1).dtype == DType::kI64),
        refusal(std::make_shared<const Refusal>(
            [&node = plan.node(), count = classes](std::int64_t row, std::int64_t label) {
              kernels::refuse_label(node, row, label, count);
            })) {}
  Indices operator()(const KernelPointers& p, KernelQueue& queue) const {
    return {p.input<void>(1), wide, queue.fault(refusal)};
  }
  Grid grid() const { return {.blocks = rows, .threads = kFoldThreads}; }

  std::int64_t rows, classes;
  bool wide;
  std::shared_ptr<const Refusal> refusal;
};

QueueRun loss(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const Targets<T> targets(plan.options<CrossEntropyOptions>());
    return [targets, labels = LabelPlan(plan)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue,
             LossRow<T>{p.input<T>(0), labels(p, queue), targets, labels.classes, p.output<T>()},
             labels.grid());
    };
  });
}

QueueRun loss_grad(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const Targets<T> targets(plan.options<CrossEntropyOptions>());
    return [targets, labels = LabelPlan(plan)](const KernelPointers& p, KernelQueue& queue) {
      const RowBlocks<1> by{labels.rows, labels.classes};
      launch(queue,
             LossGradRow<T>{p.input<T>(0), labels(p, queue), targets, p.input<T>(2), by,
                            p.output<T>()},
             labels.grid());
    };
  });
}

QueueRun accuracy(KernelPlan& plan) {
  const LabelPlan labels(plan);
  plan.workspace(labels.rows);
  return visit_floating(plan.input(0).dtype, [&]<class T>(T) -> QueueRun {
    return [rows = labels.rows, classes = labels.classes, wide = labels.wide,
            k = plan.options<AccuracyOptions>().k](const KernelPointers& p, KernelQueue& queue) {
      auto* const correct = reinterpret_cast<std::uint8_t*>(p.workspace());
      const Indices given{p.input<void>(1), wide, nullptr};  // none is refused
      launch(queue, Correct<T>{p.input<T>(0), given, rows, classes, k, correct}, grid_for(rows));
      launch(queue, ShareOfOnes{correct, rows, p.output<float>()},
             {.blocks = 1, .threads = ShareOfOnes::kThreads});
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kSoftmax, softmax},
    {kSoftmaxGrad, softmax_grad},
    {kSparseSoftmaxCrossEntropy, loss},
    {kSparseSoftmaxCrossEntropyGrad, loss_grad},
    {kAccuracy, accuracy},
};

}  // namespace
}  // namespace belfry::cuda
