#include <algorithm>
#include <memory>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/gemm.h"
#include "belfry/ops/kernels/onednn_gemm.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"

namespace belfry::kernels {
namespace {

// The product of one time, of all rows, into the workspace.
template <class T>
class StepProduct {
 public:
  StepProduct(KernelPlan& plan, const GemmShape& shape) : shape_(shape) {
#if BELFRY_ONEDNN
    constexpr std::int64_t kTiny = 16 * 16 * 16;  // as in matmul.cc
    if constexpr (std::is_same_v<T, float>)
      if (shape.m * shape.n * shape.k > kTiny) library_ = std::make_shared<OneDnnGemm>(plan, shape);
#endif
    scratch_ = (shape.m * shape.n * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    plan.workspace(scratch_ + plan.workspace_bytes());
  }

  // Where it is.
  static T* of(const KernelPointers& p) { return reinterpret_cast<T*>(p.workspace()); }

  void operator()(const T* a, const T* b, std::byte* workspace) const {
    T* const c = reinterpret_cast<T*>(workspace);
#if BELFRY_ONEDNN
    if constexpr (std::is_same_v<T, float>)
      if (library_) return library_->run(a, b, c, workspace + scratch_);
#endif
    gemm(shape_, a, b, c);
  }

 private:
  GemmShape shape_;
  std::int64_t scratch_;  // bytes of the product; the library's memory follows
#if BELFRY_ONEDNN
  std::shared_ptr<OneDnnGemm> library_;
#endif
};

template <class Step>
BELFRY_KERNEL void step_row(const Step of, std::int64_t n) {
  BELFRY_INDEPENDENT
  for (std::int64_t j = 0; j < n; ++j) of.step(j, n);
}

template <class Step>
BELFRY_KERNEL void skip_row(const Step of, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) of.skip(j, n);
}

template <class T>
BELFRY_KERNEL void add_product(const T* product, std::int64_t count, T* sum) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) sum[i] += product[i];
}

template <class Step>
void copy_states(const Sequences& s, const KernelPointers& p) {
  using T = typename Step::Element;
  for (const StateCopy& state : Step::kStates)
    std::copy_n(p.input<T>(state.from), s.rows * s.hidden, p.output<T>(state.to));
}

bool any_reaches(const Sequences& s, const Lengths& lengths, std::int64_t t) {
  for (std::int64_t row = 0; row < s.rows; ++row)
    if (t < lengths[row]) return true;
  return false;
}

}  // namespace

template <class Step>
KernelRun recurrence(KernelPlan& plan, const Sequences& s) {
  using T = typename Step::Element;
  const StepProduct<T> product(plan, {.m = s.rows,
                                      .n = Step::kGates * s.hidden,
                                      .k = s.hidden,
                                      .row_a = s.hidden,
                                      .row_b = Step::kGates * s.hidden});
  return [s, product, &node = plan.node()](const KernelPointers& p) {
    const Lengths lengths = checked_lengths(node, s, p, Step::kLengths);
    copy_states<Step>(s, p);
    Step all = Step::of(p);
    all.product = StepProduct<T>::of(p);
    for (std::int64_t step = 0; step < s.time; ++step) {
      const std::int64_t t = s.time_of_step(step);
      if (any_reaches(s, lengths, t)) product(all.h, p.input<T>(Step::kHidden), p.workspace());
      for (std::int64_t row = 0; row < s.rows; ++row) {
        if (t < lengths[row])
          step_row(all.row(s, row, t), s.hidden);
        else
          skip_row(all.row(s, row, t), s.hidden);
      }
    }
  };
}

template <class Step>
KernelRun recurrence_grad(KernelPlan& plan, const Sequences& s) {
  using T = typename Step::Element;
  const StepProduct<T> product(plan, {.m = s.rows,
                                      .n = s.hidden,
                                      .k = Step::kGates * s.hidden,
                                      .transpose_b = true,
                                      .row_a = s.time * Step::kGates * s.hidden,
                                      .row_b = Step::kGates * s.hidden});
  return [s, product, &node = plan.node()](const KernelPointers& p) {
    const Lengths lengths = checked_lengths(node, s, p, Step::kLengths);
    copy_states<Step>(s, p);
    const Step all = Step::of(p);
    for (std::int64_t step = s.time - 1; step >= 0; --step) {
      const std::int64_t t = s.time_of_step(step);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const Step one = all.row(s, row, t, s.starts(t, lengths[row]));
        if (t < lengths[row])
          step_row(one, s.hidden);
        else
          skip_row(one, s.hidden);
      }
      if (!any_reaches(s, lengths, t)) continue;
      product(all.multiplied() + t * Step::kGates * s.hidden, p.input<T>(Step::kHidden),
              p.workspace());
      add_product(StepProduct<T>::of(p), s.rows * s.hidden, all.dh);
    }
  };
}

void refuse_length(const Node& node, std::int64_t length, std::int64_t time) {
  throw InvalidArgument(cat(node.describe(), ": length ", length, " is not in [0, ", time, "]"));
}

Lengths checked_lengths(const Node& node, const Sequences& s, const KernelPointers& p,
                        std::size_t i) {
  const Lengths lengths{i < p.inputs() ? p.input<std::int32_t>(i) : nullptr, s.time};
  for (std::int64_t row = 0; row < s.rows; ++row)
    if (lengths[row] < 0 || lengths[row] > s.time) refuse_length(node, lengths[row], s.time);
  return lengths;
}

#define BELFRY_RECURRENCES_OF(T)                                                      \
  template KernelRun recurrence<LstmStep<T>>(KernelPlan&, const Sequences&);          \
  template KernelRun recurrence<GruStep<T>>(KernelPlan&, const Sequences&);           \
  template KernelRun recurrence_grad<LstmGradStep<T>>(KernelPlan&, const Sequences&); \
  template KernelRun recurrence_grad<GruGradStep<T>>(KernelPlan&, const Sequences&);
BELFRY_RECURRENCES_OF(float)
BELFRY_RECURRENCES_OF(double)

}  // namespace belfry::kernels
