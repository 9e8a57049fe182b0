// Softmax, its loss and accuracy: a block takes a row. Loss, its gradient and accuracy also read
// logits X of 16 bits; then they compute in T, which is f32. Rows of logits and their gradients may
// be padded: `pitch` is the distance from one to the next.
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pitched_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"

namespace belfry::cuda {
namespace {

using kernels::Add;

// y may be x.
template <class T>
struct SoftmaxRow {
  using Shared = RowShared<T>;
  const T* x;
  RowBlocks<1> by;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T* const from = x + block.index * by.columns;
    T* const to = y + block.index * by.columns;
    find_largest(
        block, shared, [&](std::int64_t i) { return from[i]; }, by.columns);
    fold(block, shared.fold, Add{}, 0, by.columns, [&](std::int64_t i) {
      const T e = math::exp(from[i] - shared.largest);
      to[i] = e;
      return e;
    });
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

// A label that is not a class has loss NaN.
template <class X>
struct LossRow {
  using T = Wide<X>;
  using Shared = RowShared<T>;
  const X* x;
  Indices labels;
  Targets<T> targets;
  std::int64_t classes, pitch;
  T* loss;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    if (targets.ignores(labels[block.index]))
      leave_out(block);
    else
      compute(block, shared, nothing);
  }
  BELFRY_HD void leave_out(const Block& block) const {
    block.each([&](int thread) {
      if (thread == 0) loss[block.index] = 0;
    });
  }
  BELFRY_HD static void nothing(std::uint32_t, T) {}
  // One thread calls chunk(number, sum) for chunks of exponentials.
  template <class Chunk>
  BELFRY_HD void compute(const Block& block, Shared& shared, const Chunk& chunk) const {
    const auto row = [from = x + block.index * pitch](std::int64_t i) {
      return Stored<X>::widen(from[i]);
    };
    T* const y = loss + block.index;
    find_largest(block, shared, row, classes);
    sum_chunks(
        block, shared, classes, [&](std::int64_t i) { return math::exp(row(i) - shared.largest); },
        chunk);
    const T smoothing = targets.smoothing;
    block.each([&](int thread) {
      if (thread > 0) return;
      const std::int64_t label = labels.below(classes, block.index);
      *y = label < 0 ? math::Format<T>::kNan
                     : math::log(shared.sum) - (1 - smoothing) * (row(label) - shared.largest);
    });
    if (smoothing == 0) return;
    sum_chunks(
        block, shared, classes, [&](std::int64_t i) { return row(i) - shared.largest; }, nothing);
    block.each([&](int thread) {
      if (thread == 0) *y -= smoothing * (shared.sum / static_cast<T>(classes));
    });
  }
};

// Reads a row three times, which costs less than to keep its exponentials. dx may be x.
template <class X>
struct LossGradRow {
  using T = Wide<X>;
  using Shared = RowShared<T>;
  const X* x;
  Indices labels;
  Targets<T> targets;
  const T* dy;
  RowBlocks<1> by;
  std::int64_t pitch, pitch_dx;
  X* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t classes = by.columns, label = labels[block.index];
    const X* const from = x + block.index * pitch;
    X* const to = dx + block.index * pitch_dx;
    if (targets.ignores(label)) {
      by.each(block, [&](int, std::int64_t i) { to[i] = Stored<X>::narrow(0); });
      return;
    }
    find_largest(
        block, shared, [&](std::int64_t i) { return Stored<X>::widen(from[i]); }, classes);
    const auto exponential = [&](std::int64_t i) {
      return math::exp(Stored<X>::widen(from[i]) - shared.largest);
    };
    fold(block, shared.fold, Add{}, 0, classes, exponential);
    const T share = targets.smoothing / static_cast<T>(classes);
    by.each(block, [&](int, std::int64_t i) {
      const T target = i == label ? 1 - targets.smoothing + share : share;
      const T p = exponential(i) / shared.fold.total;
      to[i] = Stored<X>::narrow((p - target) * dy[block.index]);  // exact near 1
    });
    block.each([&](int thread) {
      if (thread == 0) labels.below(classes, block.index);  // records it
    });
  }
};

// A loss with its gradient, and whether the label's logit comes first, in one launch. Exponentials
// are summed once; their chunks are added up as in LossRow for the loss, and as in LossGradRow for
// the gradient. dx may be x, as a thread reads each of its logits before it writes there.
template <class X>
struct LossWithGradRow {
  using T = Wide<X>;
  struct Shared : RowShared<T> {
    T levels[32], total, own;   // total: the sum for the gradient; own: the label's logit
    bool before[kFoldThreads];  // whether one of a thread's logits comes before it
  };
  LossRow<X> loss;
  const T* mean_gradient;  // of the mean loss
  T rows;
  X* dx;
  std::uint8_t* correct;  // may be null

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t classes = loss.classes, at = block.index * loss.pitch;
    const std::int64_t label = loss.labels[block.index];
    const bool is_class = label >= 0 && label < classes, ignored = loss.targets.ignores(label);
    const X* const from = loss.x + at;
    const auto level = [&](int k) -> T& { return shared.levels[k]; };
    block.each([&](int thread) {
      if (thread == 0)
        shared.own = is_class ? Stored<X>::widen(from[label]) : math::Format<T>::kNan;
    });
    if (ignored)
      loss.leave_out(block);
    else
      loss.compute(block, shared, [&](std::uint32_t number, T chunk) {
        add_pairwise(Add{}, number, level, chunk);
      });
    block.each([&](int thread) {
      const auto chunks = static_cast<std::uint32_t>((classes + kChunk - 1) / kChunk);
      if (thread == 0 && !ignored) shared.total = pairwise_total(Add{}, chunks, level, T(0));
    });
    block.each([&](int thread) {
      const T share = loss.targets.smoothing / static_cast<T>(classes);
      const T at_label = 1 - loss.targets.smoothing + share, dy = *mean_gradient / rows;
      bool before = false;
      for (std::int64_t i = thread; i < classes; i += kFoldThreads) {
        const T logit = Stored<X>::widen(from[i]);
        before = before || !(i < label ? logit < shared.own : logit <= shared.own);
        const T p = ignored ? T(0) : math::exp(logit - shared.largest) / shared.total;
        dx[at + i] = Stored<X>::narrow(ignored ? T(0) : (p - (i == label ? at_label : share)) * dy);
      }
      shared.before[thread] = before;
    });
    if (!correct) return;
    by_halves(block, kFoldThreads, [&](int to, int other) {
      shared.before[to] = shared.before[to] || shared.before[other];
    });
    block.each([&](int thread) {
      if (thread == 0) correct[block.index] = is_class && !shared.before[0] ? 1 : 0;
    });
  }
};

// Adds up to kMany at most.
struct Ranks {
  static constexpr std::uint32_t kMany = 1u << 30;
  template <class T>
  static constexpr T kNeutral = 0;
  BELFRY_HD std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    return a + b < kMany ? a + b : kMany;
  }
};

// For each row 1 if fewer than k logits come before the label's, else 0.
template <class X, int R>
struct Correct {
  using Shared = RowFolds<std::uint32_t, R>;
  const X* x;
  Indices labels;
  RowBlocks<R> by;
  std::int64_t pitch;
  std::uint32_t k;
  std::uint8_t* correct;

  // Whether logit i comes before the label's; kMany if no label can be correct.
  BELFRY_HD std::uint32_t comes_before(std::int64_t row, std::int64_t i) const {
    const std::int64_t label = labels[row];
    if (label < 0 || label >= by.columns) return Ranks::kMany;
    const X* const from = x + row * pitch;
    const Wide<X> other = Stored<X>::widen(from[i]), own = Stored<X>::widen(from[label]);
    if (other != other) return Ranks::kMany;
    return other > own || (other == own && i < label) ? 1 : 0;
  }
  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t first = by.first(block);
    fold_rows(
        block, shared, Ranks{}, by,
        [&](int row, std::int64_t i) { return comes_before(first + row, i); },
        [&](int row, std::uint32_t before) { correct[first + row] = before < k ? 1 : 0; });
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
    by_halves(block, kThreads, [&](int to, int from) { shared.counts[to] += shared.counts[from]; });
    block.each([&](int thread) {
      if (thread == 0) *share = static_cast<float>(shared.counts[0]) / static_cast<float>(n);
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

// What is known about labels [n] and logits [n, classes] before a run.
struct LabelPlan {
  LabelPlan(const KernelPlan& plan, const Pitches& pitches)
      : rows(plan.input(0).shape[0]),
        classes(plan.input(0).shape[1]),
        pitch(pitches.input(plan, 0)),
        wide(plan.input(1).dtype == DType::kI64),
        refusal(std::make_shared<const Refusal>(
            [&node = plan.node(), count = classes](std::int64_t row, std::int64_t label) {
              kernels::refuse_label(node, row, label, count);
            })) {}
  Indices operator()(const KernelPointers& p, KernelQueue& queue) const {
    return {p.input<void>(1), wide, queue.fault(refusal)};
  }
  Grid grid() const { return {.blocks = rows, .threads = kFoldThreads}; }

  std::int64_t rows, classes, pitch;
  bool wide;
  std::shared_ptr<const Refusal> refusal;
};

const Variant logits_as_stored("cross_entropy.logits_as_stored");

// Calls f with the type of the logits. Empty for logits of 16 bits where all else has 16 bits too,
// or the variant is off: then casts come before f32.
template <class F>
QueueRun visit_logits(const KernelPlan& plan, DType computed, const F& f) {
  const DType logits = plan.input(0).dtype;
  if (is_half(logits) && (computed != DType::kF32 || !logits_as_stored.on())) return {};
  return visit_stored(logits, f);
}

QueueRun loss(KernelPlan& plan, Algorithms&, const Pitches& pitches) {
  return visit_logits(plan, plan.output().dtype, [&]<class X>(X) -> QueueRun {
    const Targets<Wide<X>> targets(plan.options<CrossEntropyOptions>());
    return
        [targets, labels = LabelPlan(plan, pitches)](const KernelPointers& p, KernelQueue& queue) {
          launch(queue,
                 LossRow<X>{p.input<X>(0), labels(p, queue), targets, labels.classes, labels.pitch,
                            p.output<Wide<X>>()},
                 labels.grid());
        };
  });
}

QueueRun loss_grad(KernelPlan& plan, Algorithms&, const Pitches& pitches) {
  return visit_logits(plan, plan.input(2).dtype, [&]<class X>(X) -> QueueRun {
    const Targets<Wide<X>> targets(plan.options<CrossEntropyOptions>());
    return [targets, labels = LabelPlan(plan, pitches), pitch_dx = pitches.output(plan)](
               const KernelPointers& p, KernelQueue& queue) {
      const RowBlocks<1> by{labels.rows, labels.classes};
      launch(queue,
             LossGradRow<X>{p.input<X>(0), labels(p, queue), targets, p.input<Wide<X>>(2), by,
                            labels.pitch, pitch_dx, p.output<X>()},
             labels.grid());
    };
  });
}

// Launches that find which rows have their labels among the k largest logits.
template <class X>
void find_correct(KernelQueue& queue, const KernelPointers& p, const LabelPlan& labels,
                  std::uint32_t k, std::uint8_t* correct) {
  const Indices given{p.input<void>(1), labels.wide, nullptr};  // none is refused
  const auto rank = [&]<int R>(RowBlocks<R> by) {
    launch(queue, Correct<X, R>{p.input<X>(0), given, by, labels.pitch, k, correct}, by.grid());
  };
  if (labels.classes == 0)
    fill_zeros(queue, correct, labels.rows);
  else if (labels.classes <= kShortRowColumns<std::uint32_t>)
    rank(RowBlocks<kWarpsPerBlock>{labels.rows, labels.classes});
  else
    rank(RowBlocks<1>{labels.rows, labels.classes});
}

void find_share(KernelQueue& queue, const std::uint8_t* correct, std::int64_t rows, float* share) {
  launch(queue, ShareOfOnes{correct, rows, share}, {.blocks = 1, .threads = ShareOfOnes::kThreads});
}

QueueRun accuracy(KernelPlan& plan, Algorithms&, const Pitches& pitches) {
  return visit_logits(plan, DType::kF32, [&]<class X>(X) -> QueueRun {
    const LabelPlan labels(plan, pitches);
    plan.workspace(labels.rows);
    return [labels, k = static_cast<std::uint32_t>(plan.options<AccuracyOptions>().k)](
               const KernelPointers& p, KernelQueue& queue) {
      auto* const correct = reinterpret_cast<std::uint8_t*>(p.workspace());
      find_correct<X>(queue, p, labels, k, correct);
      find_share(queue, correct, labels.rows, p.output<float>());
    };
  });
}

const Variant loss_with_gradient("cross_entropy.loss_with_gradient");

// Sets y [n] to *x / n, as BroadcastAlong does.
template <class T>
void share(KernelQueue& queue, const T* x, std::int64_t n, T* y) {
  const Strides repeats(n, {}, false, false);
  launch(queue,
         MapBroadcast<functors::FirstOver<T>, T>{
             {static_cast<T>(n)}, repeats, 0, n, on_16_bytes(y), y, x, x},
         grid_of_packs<T>(n));
}

// With the variant off: one launch after the other. The gradient may overwrite the logits, so it
// comes last.
QueueRun loss_with_grad(KernelPlan& plan, Algorithms&, const Pitches& pitches) {
  return visit_logits(plan, plan.output(1).dtype, [&]<class X>(X) -> QueueRun {
    using T = Wide<X>;
    const Targets<T> targets(plan.options<CrossEntropyOptions>());
    const LabelPlan labels(plan, pitches);
    const bool counts = plan.outputs() > 2;
    plan.workspace(plan.output(1).bytes() + labels.rows);
    return [=, at_once = loss_with_gradient.on()](const KernelPointers& p, KernelQueue& queue) {
      T* const dy = reinterpret_cast<T*>(p.workspace());
      auto* const correct = counts ? reinterpret_cast<std::uint8_t*>(dy + labels.rows) : nullptr;
      const LossRow<X> loss{p.input<X>(0),  labels(p, queue), targets,
                            labels.classes, labels.pitch,     p.output<T>(1)};
      if (at_once) {
        launch(queue,
               LossWithGradRow<X>{loss, p.input<T>(2), static_cast<T>(labels.rows), p.output<X>(),
                                  correct},
               labels.grid());
      } else {
        launch(queue, loss, labels.grid());
        if (counts) find_correct<X>(queue, p, labels, 1, correct);
        share(queue, p.input<T>(2), labels.rows, dy);
        const RowBlocks<1> by{labels.rows, labels.classes};
        launch(queue,
               LossGradRow<X>{loss.x, loss.labels, targets, dy, by, labels.pitch, labels.pitch,
                              p.output<X>()},
               labels.grid());
      }
      if (counts) find_share(queue, correct, labels.rows, p.output<float>(2));
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kSoftmax, softmax},
    {kSoftmaxGrad, softmax_grad},
};
const PitchedKernel pitched_kernels_of_ops[] = {
    {kSparseSoftmaxCrossEntropy, loss},
    {kSparseSoftmaxCrossEntropyGrad, loss_grad},
    {kAccuracy, accuracy},
    {kCrossEntropyWithGradient, loss_with_grad},
};

}  // namespace
}  // namespace belfry::cuda
