#include "belfry/ops/losses/ctc_loss.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/kernels/exp_less.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/losses/ctc_impl.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/maximum.h"

namespace belfry {
namespace ctc {

void refuse(const Node& node, const Sizes& sizes, std::int64_t row, Found found) {
  const auto refusal = [&](const auto&... parts) {
    return InvalidArgument(cat(node.describe(), ": ", parts..., " (row ", row, ")"));
  };
  if (found.mistake == Mistake::kLogitLength)
    throw refusal("logit length ", found.value, " is not in [0, ", sizes.time, "]");
  if (found.mistake == Mistake::kLabelLength)
    throw refusal("label length ", found.value, " is not in [0, ", sizes.most_labels, "]");
  if (found.value == sizes.blank)
    throw refusal("label ", found.value, " is the blank; no label may be");
  throw refusal("label ", found.value, " is not one of the ", sizes.classes, " classes [0, ",
                sizes.classes, ")");
}

namespace {

void require_integers(const ShapeContext& c, std::size_t i, const char* what, std::size_t rank) {
  c.require(c.dtype(i) == DType::kI32 || c.dtype(i) == DType::kI64, what, " are ",
            name_of(c.dtype(i)), ", but must be i32 or i64");
  c.require_rank(i, rank);
  c.require(Shape{c.input(0)[0]}.compatible(Shape{c.input(i)[0]}), "logits ", c.input(0), " and ",
            what, " ", c.input(i), " differ in number");
}

OutputTypes shape_of_losses(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 3);
  require_integers(c, 1, "labels", 2);
  require_integers(c, 2, "logit lengths", 1);
  require_integers(c, 3, "label lengths", 1);
  const std::int64_t blank = c.options<CtcOptions>().blank, classes = c.input(0)[2];
  c.require(blank >= 0 && (classes == kUnknownSize || blank < classes), "the blank is class ",
            blank, ", but there are the classes [0, ", classes, ")");
  std::int64_t rows = c.input(0)[0];
  for (std::size_t i = 1; i < 4 && rows == kUnknownSize; ++i) rows = c.input(i)[0];
  return {Shape{rows}};
}

OutputTypes shape_of_gradient(const ShapeContext& c) {
  shape_of_losses(c);
  c.require_rank(4, 1);
  c.require(c.dtype(4) == c.dtype(0) && c.input(4).compatible(Shape{c.input(0)[0]}), "logits are ",
            c.type(0), ", but the gradient is ", c.type(4));
  return {c.type(0)};
}

std::vector<Output> gradient_of_losses(const Node& node, std::span<const Output> grads) {
  const Output inputs[] = {node.input(0), node.input(1), node.input(2), node.input(3), grads[0]};
  return {node.graph().add(kCtcLossGrad, inputs, {}, node.raw_options()).output(), {}, {}, {}};
}

// Each row of a table has two elements more in front, and one that goes backwards two behind, so
// that the loops need no branches.
constexpr std::int64_t kMargin = 2;

// What the paths of one sample need, in a workspace.
struct Tables {
  Tables(const Sizes& sizes, std::byte* workspace) : width(sizes.most_states() + kMargin) {
    auto* next = reinterpret_cast<double*>(workspace);
    const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
    alpha = take(sizes.time * width) + kMargin;
    skips = take(width);
    emitted = take(width);
    beta = take(width);
    later = take(width);
    log_sums = take(sizes.time);
    occupancy = take(sizes.classes);
    symbols = reinterpret_cast<std::int64_t*>(take(width));
  }
  static std::int64_t bytes(const Sizes& sizes) {
    const std::int64_t width = sizes.most_states() + kMargin;
    return 8 * ((sizes.time + 5) * width + sizes.time + sizes.classes);
  }
  double* row(std::int64_t t) const { return alpha + t * width; }

  std::int64_t width;
  double *alpha, *skips, *emitted, *beta, *later, *log_sums, *occupancy;
  std::int64_t* symbols;
};

void list_states(const States& states, const Tables& tables) {
  for (std::int64_t s = 0; s < states.size(); ++s) {
    tables.symbols[s] = states.symbol(s);
    tables.skips[s] = states.skips(s) ? 0 : kNever;
  }
  for (std::int64_t s = 0; s < kMargin; ++s) tables.skips[states.size() + s] = kNever;
}

// The logarithms of the probabilities of the symbols of all states; `x`: logits of one time.
template <class T>
void emit(const T* x, double log_sum, const std::int64_t* symbols, std::int64_t states,
          double* emitted) {
  for (std::int64_t s = 0; s < states; ++s)
    emitted[s] = static_cast<double>(x[symbols[s]]) - log_sum;
}

BELFRY_KERNEL void step_forward(const double* before, const double* skips, const double* emitted,
                                std::int64_t states, double* alpha) {
  BELFRY_INDEPENDENT
  for (std::int64_t s = 0; s < states; ++s)
    alpha[s] = emitted[s] + log_add(before[s], before[s - 1], before[s - 2] + skips[s]);
}

BELFRY_KERNEL void step_back(const double* later, const double* skips, std::int64_t states,
                             double* beta) {
  BELFRY_INDEPENDENT
  for (std::int64_t s = 0; s < states; ++s)
    beta[s] = log_add(later[s], later[s + 1], later[s + 2] + skips[s + 2]);
}

BELFRY_KERNEL void add_to_each(const double* a, const double* b, std::int64_t n, double* c) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

// y = e^(a + b - log_all).
BELFRY_KERNEL void posteriors(const double* a, const double* b, double log_all, std::int64_t n,
                              double* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = math::exp((a[i] + b[i]) - log_all);
}

// y = (y / sum - target) dy.
template <class T>
BELFRY_KERNEL void finish(const double* target, T sum, T dy, std::int64_t n, T* y) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<T>(static_cast<double>(y[i] / sum) - target[i]) * dy;
}

// y = e^(x - largest) -> their sum; `log_sum`: the logarithm of the sum of e^x.
template <class T>
T exponentials(const T* x, std::int64_t n, T* y, double& log_sum) {
  const T largest = kernels::largest_of_row(x, n);
  kernels::exp_less(x, largest, n, y);
  const T sum = kernels::sum(y, n);
  log_sum = static_cast<double>(largest) + math::log(static_cast<double>(sum));
  return sum;
}

// Sets alpha: logarithms of the probabilities of all paths from the beginning to a state. Returns
// that of all paths to an end.
template <class T>
double go_forward(const T* logits, std::int64_t classes, std::int64_t steps, std::int64_t states,
                  const Tables& tables) {
  if (steps == 0) return states == 1 ? 0 : kNever;
  for (std::int64_t t = 0; t < steps; ++t) {
    double* const alpha = tables.row(t);
    std::fill_n(alpha - kMargin, kMargin, kNever);
    emit(logits + t * classes, tables.log_sums[t], tables.symbols, states, tables.emitted);
    if (t == 0) {
      std::fill_n(alpha, states, kNever);
      std::copy_n(tables.emitted, std::min<std::int64_t>(states, 2), alpha);
    } else {
      step_forward(tables.row(t - 1), tables.skips, tables.emitted, states, alpha);
    }
  }
  const double* const last = tables.row(steps - 1) + states;
  return log_add(last[-1], last[-2], kNever);
}

template <class T>
void loss_of_row(const Batch& batch, std::int64_t row, const T* logits, T* buffer,
                 const Tables& tables, T* loss) {
  const States states = batch.states(row);
  const std::int64_t classes = batch.sizes.classes, steps = batch.logit_lengths[row];
  list_states(states, tables);
  for (std::int64_t t = 0; t < steps; ++t)
    exponentials(logits + t * classes, classes, buffer, tables.log_sums[t]);
  *loss = static_cast<T>(batch.loss(go_forward(logits, classes, steps, states.size(), tables)));
}

// Subtracts the probabilities that paths of the sample have of each class, from the last time to
// the first. dx has e^(logits - largest), whose sums are `sums`.
template <class T>
void go_back(const T* logits, std::int64_t classes, std::int64_t steps, std::int64_t states,
             double log_all, const T* sums, T dy, const Tables& tables, T* dx) {
  std::fill_n(tables.beta, states, kNever);
  std::fill_n(tables.beta + std::max<std::int64_t>(states - 2, 0),
              std::min<std::int64_t>(states, 2), 0.0);
  std::fill_n(tables.later + states, kMargin, kNever);
  for (std::int64_t t = steps - 1; t >= 0; --t) {
    double* const probabilities = tables.row(t);
    posteriors(probabilities, tables.beta, log_all, states, probabilities);
    std::fill_n(tables.occupancy, classes, 0.0);
    for (std::int64_t s = 0; s < states; ++s)
      tables.occupancy[tables.symbols[s]] += probabilities[s];
    finish(tables.occupancy, sums[t], dy, classes, dx + t * classes);
    if (t == 0) return;
    emit(logits + t * classes, tables.log_sums[t], tables.symbols, states, tables.emitted);
    add_to_each(tables.beta, tables.emitted, states, tables.later);
    step_back(tables.later, tables.skips, states, tables.beta);
  }
}

template <class T>
void grad_of_row(const Batch& batch, std::int64_t row, const T* logits, T* sums, T dy,
                 const Tables& tables, T* dx) {
  const States states = batch.states(row);
  const std::int64_t classes = batch.sizes.classes, steps = batch.logit_lengths[row];
  list_states(states, tables);
  for (std::int64_t t = 0; t < steps; ++t)
    sums[t] = exponentials(logits + t * classes, classes, dx + t * classes, tables.log_sums[t]);
  const double log_all = go_forward(logits, classes, steps, states.size(), tables);
  std::fill_n(dx + steps * classes, (batch.sizes.time - steps) * classes, T(0));
  if (batch.has_lattice_gradient(log_all))
    go_back(logits, classes, steps, states.size(), log_all, sums, dy, tables, dx);
  else
    std::fill_n(dx, steps * classes, batch.other_gradient<T>(log_all) * dy);
}

// The paths of a sample in plain loops, begun anew for each step of time. Probabilities are
// logarithms.
class PlainPaths {
 public:
  template <class T>
  PlainPaths(const Batch& batch, std::int64_t row, const T* logits)
      : states_(batch.states(row)),
        classes_(batch.sizes.classes),
        steps_(batch.logit_lengths[row]) {
    for (std::int64_t i = 0; i < steps_ * classes_; ++i)
      log_probabilities_.push_back(static_cast<double>(logits[i]));
    for (std::int64_t t = 0; t < steps_; ++t) {
      double sum = 0, most = kNever;
      for (std::int64_t k = 0; k < classes_; ++k) most = std::fmax(most, at(t, k));
      for (std::int64_t k = 0; k < classes_; ++k) sum += std::exp(at(t, k) - most);
      for (std::int64_t k = 0; k < classes_; ++k) at(t, k) -= most + std::log(sum);
    }
  }

  // Of all paths from each state at time t to an end, without what that state emits.
  std::vector<double> to_end(std::int64_t t) const {
    std::vector<double> beta(size(), kNever);
    for (std::size_t s = size() < 2 ? 0 : size() - 2; s < size(); ++s) beta[s] = 0;
    for (std::int64_t later = steps_ - 1; later > t; --later) {
      std::vector<double> sums(size(), kNever);
      for (std::size_t s = 0; s < size(); ++s)
        for (std::size_t to = s; to < size() && to <= s + 2; ++to)
          if (may(s, to)) sums[s] = sum(sums[s], beta[to] + emitted(later, to));
      beta = sums;
    }
    return beta;
  }
  // Of all paths from the beginning to each state at time t.
  std::vector<double> from_begin(std::int64_t t) const {
    std::vector<double> alpha(size(), kNever);
    for (std::size_t s = 0; s < size() && s < 2; ++s) alpha[s] = emitted(0, s);
    for (std::int64_t now = 1; now <= t; ++now) {
      std::vector<double> sums(size(), kNever);
      for (std::size_t to = 0; to < size(); ++to) {
        for (std::size_t s = to < 2 ? 0 : to - 2; s <= to; ++s)
          if (may(s, to)) sums[to] = sum(sums[to], alpha[s]);
        sums[to] += emitted(now, to);
      }
      alpha = sums;
    }
    return alpha;
  }
  double all() const {
    if (steps_ == 0) return size() == 1 ? 0 : kNever;
    const std::vector<double> alpha = from_begin(steps_ - 1);
    return size() == 1 ? alpha[0] : sum(alpha[size() - 2], alpha[size() - 1]);
  }
  // The probability of class k at time t, less its share of the paths.
  std::vector<double> gradient(std::int64_t t, double log_all) const {
    std::vector<double> result;
    for (std::int64_t k = 0; k < classes_; ++k) result.push_back(std::exp(at(t, k)));
    const std::vector<double> alpha = from_begin(t), beta = to_end(t);
    for (std::size_t s = 0; s < size(); ++s)
      result[static_cast<std::size_t>(states_.symbol(static_cast<std::int64_t>(s)))] -=
          std::exp(alpha[s] + beta[s] - log_all);
    return result;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(states_.size()); }
  bool may(std::size_t from, std::size_t to) const {
    return to - from < 2 || states_.skips(static_cast<std::int64_t>(to));
  }
  double& at(std::int64_t t, std::int64_t k) {
    return log_probabilities_[static_cast<std::size_t>(t * classes_ + k)];
  }
  double at(std::int64_t t, std::int64_t k) const {
    return log_probabilities_[static_cast<std::size_t>(t * classes_ + k)];
  }
  double emitted(std::int64_t t, std::size_t s) const {
    return at(t, states_.symbol(static_cast<std::int64_t>(s)));
  }
  static double sum(double a, double b) {
    if (a == kNever) return b;
    return b == kNever ? a : std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
  }

  States states_;
  std::int64_t classes_, steps_;
  std::vector<double> log_probabilities_;
};

template <class T>
void plain_grad_of_row(const Batch& batch, std::int64_t row, const T* logits, T dy, T* dx) {
  const std::int64_t classes = batch.sizes.classes, steps = batch.logit_lengths[row];
  const PlainPaths paths(batch, row, logits);
  const double log_all = paths.all();
  for (std::int64_t i = 0; i < batch.sizes.time * classes; ++i)
    dx[i] = i < steps * classes ? batch.other_gradient<T>(log_all) * dy : T(0);
  if (!batch.has_lattice_gradient(log_all)) return;
  for (std::int64_t t = 0; t < steps; ++t) {
    const std::vector<double> gradient = paths.gradient(t, log_all);
    for (std::int64_t k = 0; k < classes; ++k)
      dx[t * classes + k] = static_cast<T>(gradient[static_cast<std::size_t>(k)]) * dy;
  }
}

// Calls run(T{}, batch, row, logits of the row, pointers) for each row that a run takes.
template <class Run>
KernelRun kernel_of_rows(const KernelPlan& plan, Run run) {
  const Node* const node = &plan.node();
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [node, sizes = Sizes(plan), run](const KernelPointers& p) {
      const Batch batch(sizes, p);
      for (std::int64_t row = p.begin(); row < p.end(); ++row) {
        const Found found = batch.check(row);
        if (found.mistake != Mistake::kNone) refuse(*node, sizes, p.first_row() + row, found);
        run(T{}, batch, row, p.input<T>(0) + row * sizes.time * sizes.classes, p);
      }
    };
  });
}

// The workspace has tables, and so many elements of the logits' type behind them.
void plan_tables(KernelPlan& plan, std::int64_t elements) {
  plan.workspace(Tables::bytes(Sizes(plan)) +
                 elements * static_cast<std::int64_t>(size_of(plan.dtype())));
}
template <class T>
T* behind_tables(const Sizes& sizes, const KernelPointers& p) {
  return reinterpret_cast<T*>(p.workspace() + Tables::bytes(sizes));
}

KernelRun loss_cpu(KernelPlan& plan) {
  plan_tables(plan, plan.input(0).shape[2]);
  return kernel_of_rows(plan, []<class T>(T, const Batch& batch, std::int64_t row, const T* logits,
                                          const KernelPointers& p) {
    loss_of_row(batch, row, logits, behind_tables<T>(batch.sizes, p),
                Tables(batch.sizes, p.workspace()), p.output<T>() + row);
  });
}

KernelRun loss_reference(KernelPlan& plan) {
  return kernel_of_rows(plan, []<class T>(T, const Batch& batch, std::int64_t row, const T* logits,
                                          const KernelPointers& p) {
    p.output<T>()[row] = static_cast<T>(batch.loss(PlainPaths(batch, row, logits).all()));
  });
}

KernelRun grad_cpu(KernelPlan& plan) {
  plan_tables(plan, plan.input(0).shape[1]);
  return kernel_of_rows(plan, []<class T>(T, const Batch& batch, std::int64_t row, const T* logits,
                                          const KernelPointers& p) {
    grad_of_row(batch, row, logits, behind_tables<T>(batch.sizes, p), p.input<T>(4)[row],
                Tables(batch.sizes, p.workspace()),
                p.output<T>() + row * batch.sizes.time * batch.sizes.classes);
  });
}

KernelRun grad_reference(KernelPlan& plan) {
  return kernel_of_rows(plan, []<class T>(T, const Batch& batch, std::int64_t row, const T* logits,
                                          const KernelPointers& p) {
    plain_grad_of_row(batch, row, logits, p.input<T>(4)[row],
                      p.output<T>() + row * batch.sizes.time * batch.sizes.classes);
  });
}

}  // namespace
}  // namespace ctc

const Op kCtcLoss{.name = "CtcLoss",
                  .inputs = 4,
                  .shape = ctc::shape_of_losses,
                  .gradient = ctc::gradient_of_losses,
                  .split = WorkSplit::kRows,
                  .heavy = true,
                  .shards = by_rows<0b1111>,
                  .cpu = ctc::loss_cpu,
                  .reference = ctc::loss_reference,
                  .autocast = Autocast::kFull};

const Op kCtcLossGrad{.name = "CtcLossGrad",
                      .inputs = 5,
                      .shape = ctc::shape_of_gradient,
                      .no_gradient = "ctc_loss has no second derivative, as in PyTorch",
                      .split = WorkSplit::kRows,
                      .heavy = true,
                      .shards = by_rows<0b11111>,
                      .cpu = ctc::grad_cpu,
                      .reference = ctc::grad_reference};
const StoredOptions<CtcOptions> kStoredCtcLoss(kCtcLoss, kCtcLossGrad);

Output ctc_loss(Output logits, Output labels, Output logit_lengths, Output label_lengths,
                CtcOptions options, At at) {
  SiteScope site(logits.graph(), at.site);
  const Output losses =
      logits.graph()
          .add(kCtcLoss, {logits, labels, logit_lengths, label_lengths},
               options.reduction == LossReduction::kNone ? at : At(at.site), NodeOptions(options))
          .output();
  if (options.reduction != LossReduction::kMean)
    return reduce_losses(losses, options.reduction, at);
  const Output divisor = maximum(cast(label_lengths, losses.dtype()), 1.0);
  return reduce_losses(losses / divisor, options.reduction, at);
}

}  // namespace belfry
