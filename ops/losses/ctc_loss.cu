// The CTC loss: a block takes the logits of one step of time, or the lattice of one sample.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/ops/losses/ctc_impl.h"

namespace belfry::cuda {
namespace {

using ctc::Batch;
using ctc::kNever;
using ctc::Sizes;
using ctc::States;
using kernels::Add;

// For all samples: logarithms of sums of exponentials [n, time], of probabilities of all paths [n],
// of paths to each state [n, time, states], and for gradients on to the end [n, 2, states].
struct Tables {
  Tables(const Sizes& s, std::byte* workspace)
      : states(s.most_states()),
        time(s.time),
        log_sums(reinterpret_cast<double*>(workspace)),
        log_all(log_sums + s.rows * s.time),
        alpha(log_all + s.rows),
        beta(alpha + s.rows * s.time * states) {}
  static std::int64_t bytes(const Sizes& s) {
    return 8 * s.rows * (s.time + 1 + (s.time + 2) * s.most_states());
  }
  BELFRY_HD double* paths_to(std::int64_t row, std::int64_t t) const {
    return alpha + (row * time + t) * states;
  }
  BELFRY_HD double* paths_on(std::int64_t row, std::int64_t t) const {
    return beta + (row * 2 + t % 2) * states;
  }

  std::int64_t states, time;
  double *log_sums, *log_all, *alpha, *beta;
};

// Blocks: steps of time of all samples. y = softmax(x) if there is a y.
template <class T>
struct LogSums {
  using Shared = RowShared<T>;
  const T* x;
  std::int64_t classes;
  double* log_sums;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T* const from = x + block.index * classes;
    find_largest(
        block, shared, [&](std::int64_t i) { return from[i]; }, classes);
    fold(block, shared.fold, Add{}, 0, classes,
         [&](std::int64_t i) { return math::exp(from[i] - shared.largest); });
    block.each([&](int thread) {
      if (thread == 0)
        log_sums[block.index] =
            static_cast<double>(shared.largest) + math::log(static_cast<double>(shared.fold.total));
      if (y == nullptr) return;
      for (std::int64_t i = thread; i < classes; i += block.threads)
        y[block.index * classes + i] = math::exp(from[i] - shared.largest) / shared.fold.total;
    });
  }
};

// What a thread needs to know of the sample of its block.
template <class T>
struct Lattice {
  BELFRY_HD Lattice(const Batch& batch, const Tables& tables_of_all, const T* x,
                    std::int64_t of_row)
      : row(of_row),
        steps(batch.logit_lengths[row]),
        states(batch.states(row)),
        tables(tables_of_all),
        logits(x + row * batch.sizes.time * batch.sizes.classes),
        classes(batch.sizes.classes) {}
  BELFRY_HD double emitted(std::int64_t t, std::int64_t s) const {
    return static_cast<double>(logits[t * classes + states.symbol(s)]) -
           tables.log_sums[row * tables.time + t];
  }
  BELFRY_HD double forward(std::int64_t t, std::int64_t s) const {
    if (t == 0) return s < 2 ? emitted(0, s) : kNever;
    const double* const before = tables.paths_to(row, t - 1);
    const double never = kNever;  // GPUs have no address of the constant
    return emitted(t, s) + ctc::log_add(before[s], s > 0 ? before[s - 1] : never,
                                        states.skips(s) ? before[s - 2] : never);
  }
  BELFRY_HD double back(std::int64_t t, std::int64_t s) const {
    const std::int64_t size = states.size();
    if (t == steps - 1) return s >= size - 2 ? 0.0 : kNever;
    const double* const beta = tables.paths_on(row, t + 1);
    const auto later = [&](std::int64_t to) { return beta[to] + emitted(t + 1, to); };
    return ctc::log_add(later(s), s + 1 < size ? later(s + 1) : kNever,
                        s + 2 < size && states.skips(s + 2) ? later(s + 2) : kNever);
  }
  BELFRY_HD double all() const {
    const std::int64_t size = states.size();
    if (steps == 0) return size == 1 ? 0 : kNever;
    const double* const last = tables.paths_to(row, steps - 1);
    const double never = kNever;
    return ctc::log_add(last[size - 1], size > 1 ? last[size - 2] : never, kNever);
  }
  template <class F>
  BELFRY_HD void each_state(const Block& block, const F& f) const {
    block.each([&](int thread) {
      for (std::int64_t s = thread; s < states.size(); s += block.threads) f(s);
    });
  }

  std::int64_t row, steps;
  States states;
  Tables tables;
  const T* logits;
  std::int64_t classes;
};

// Blocks: samples. A sample that is refused has probability NaN.
template <class T>
struct Forward {
  struct Shared {
    bool refused;
  };
  const T* x;
  Batch batch;
  Tables tables;
  Fault* fault;
  T* loss;  // none for gradients

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t row = block.index;
    block.each([&](int thread) {
      if (thread > 0) return;
      const ctc::Found found = batch.check(row);
      shared.refused = found.mistake != ctc::Mistake::kNone;
      if (!shared.refused) return;
      note(fault, row * ctc::kMistakes + static_cast<std::int64_t>(found.mistake), found.value);
      tables.log_all[row] = math::Format<double>::kNan;
      if (loss != nullptr) loss[row] = math::Format<T>::kNan;
    });
    if (shared.refused) return;
    const Lattice<T> lattice(batch, tables, x, row);
    for (std::int64_t t = 0; t < lattice.steps; ++t)
      lattice.each_state(
          block, [&](std::int64_t s) { tables.paths_to(row, t)[s] = lattice.forward(t, s); });
    block.each([&](int thread) {
      if (thread > 0) return;
      tables.log_all[row] = lattice.all();
      if (loss != nullptr) loss[row] = static_cast<T>(batch.loss(tables.log_all[row]));
    });
  }
};

// Blocks: samples. Makes of alpha the probability that a path of the sample is in a state.
template <class T>
struct Backward {
  using Shared = Nothing;
  const T* x;
  Batch batch;
  Tables tables;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const double log_all = tables.log_all[block.index];
    if (!batch.has_lattice_gradient(log_all)) return;
    const Lattice<T> lattice(batch, tables, x, block.index);
    for (std::int64_t t = lattice.steps - 1; t >= 0; --t)
      lattice.each_state(block, [&](std::int64_t s) {
        const double beta = lattice.back(t, s);
        double& alpha = tables.paths_to(lattice.row, t)[s];
        tables.paths_on(lattice.row, t)[s] = beta;
        alpha = math::exp((alpha + beta) - log_all);
      });
  }
};

// Blocks: steps of time of all samples. dx has softmax(logits).
template <class T>
struct Finish {
  using Shared = Nothing;
  Batch batch;
  Tables tables;
  const T* dy;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    const std::int64_t row = block.index / tables.time, t = block.index % tables.time;
    const std::int64_t classes = batch.sizes.classes;
    const double log_all = tables.log_all[row];
    const bool after_end = t >= batch.logit_lengths[row];
    const bool has_paths = !after_end && batch.has_lattice_gradient(log_all);
    const T otherwise = after_end ? T(0) : batch.template other_gradient<T>(log_all) * dy[row];
    const States states = batch.states(row);
    const double* const probabilities = tables.paths_to(row, t);
    block.each([&](int thread) {
      for (std::int64_t k = thread; k < classes; k += block.threads) {
        T& y = dx[block.index * classes + k];
        double occupancy = 0;
        for (std::int64_t s = 0; has_paths && s < states.size(); ++s)
          if (states.symbol(s) == k) occupancy += probabilities[s];
        y = has_paths ? static_cast<T>(static_cast<double>(y) - occupancy) * dy[row] : otherwise;
      }
    });
  }
};

std::shared_ptr<const Refusal> refusal_of(const Node& node, const Sizes& sizes) {
  return std::make_shared<const Refusal>([&node, sizes](std::int64_t element, std::int64_t value) {
    ctc::refuse(node, sizes, element / ctc::kMistakes,
                {static_cast<ctc::Mistake>(element % ctc::kMistakes), value});
  });
}

Grid times_of(const Sizes& sizes) {
  return {.blocks = sizes.rows * sizes.time, .threads = kFoldThreads};
}
Grid samples_of(const Sizes& sizes) { return {.blocks = sizes.rows, .threads = kFoldThreads}; }

QueueRun loss(KernelPlan& plan) {
  const Sizes sizes(plan);
  plan.workspace(Tables::bytes(sizes));
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [sizes, refusal = refusal_of(plan.node(), sizes)](const KernelPointers& p,
                                                             KernelQueue& queue) {
      const Tables tables(sizes, p.workspace());
      const T* const x = p.input<T>(0);
      launch(queue, LogSums<T>{x, sizes.classes, tables.log_sums, nullptr}, times_of(sizes));
      launch(queue, Forward<T>{x, Batch(sizes, p), tables, queue.fault(refusal), p.output<T>()},
             samples_of(sizes));
    };
  });
}

QueueRun grad(KernelPlan& plan) {
  const Sizes sizes(plan);
  plan.workspace(Tables::bytes(sizes));
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [sizes, refusal = refusal_of(plan.node(), sizes)](const KernelPointers& p,
                                                             KernelQueue& queue) {
      const Tables tables(sizes, p.workspace());
      const Batch batch(sizes, p);
      const T* const x = p.input<T>(0);
      launch(queue, LogSums<T>{x, sizes.classes, tables.log_sums, p.output<T>()}, times_of(sizes));
      launch(queue, Forward<T>{x, batch, tables, queue.fault(refusal), nullptr}, samples_of(sizes));
      launch(queue, Backward<T>{x, batch, tables}, samples_of(sizes));
      launch(queue, Finish<T>{batch, tables, p.input<T>(4), p.output<T>()}, times_of(sizes));
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kCtcLoss, loss},
    {kCtcLossGrad, grad},
};

}  // namespace
}  // namespace belfry::cuda
