#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/gemm.h"
#include "belfry/ops/kernels/onednn.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"

namespace belfry::kernels {
// Not unnamed: kernels that other sources name hold its types.
inline namespace host_recurrence {

#if BELFRY_ONEDNN
// Products of oneDNN with the same weights, which it packs once for all times. With few rows a
// product takes the time to read the weights, which must not be read twice.
class PackedProduct {
 public:
  PackedProduct(const KernelPlan& plan, const GemmShape& s) {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const memory::desc a({s.m, s.k}, f32, memory::dims{s.row_a, 1});
    const memory::desc plain({s.k, s.n}, f32,
                             s.transpose_b ? memory::dims{1, s.row_b} : memory::dims{s.row_b, 1});
    const memory::desc any({s.k, s.n}, f32, memory::format_tag::any);
    const memory::desc c({s.m, s.n}, f32, memory::dims{s.n, 1});
    const std::string node = plan.node().describe();
    product_ = onednn::guarded(plan, [&] {
      const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, any, c),
                                                onednn::user_scratchpad(), onednn::engine());
      onednn::report(plan, chosen);
      if (chosen.weights_desc() != plain) {
        weight_bytes_ = onednn::round_to_64(chosen.weights_desc().get_size());
        pack_ = onednn::reorder(node, plain, chosen.weights_desc());
      }
      return onednn::Primitive(node, dnnl::matmul(chosen), chosen,
                               {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
    });
  }

  std::int64_t workspace_bytes() const {
    const std::int64_t packing = pack_ ? pack_->scratch_bytes() : 0;
    return weight_bytes_ + std::max(packing, product_->scratch_bytes());
  }
  // Packs the weights into the workspace.
  void start(const float* weights, std::byte* workspace) const {
    if (pack_)
      pack_->run({{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, workspace}}, workspace + weight_bytes_);
  }
  void run(const float* a, const float* weights, float* c, std::byte* workspace) const {
    const void* const packed = pack_ ? static_cast<const void*>(workspace) : weights;
    product_->run({{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, c}},
                  workspace + weight_bytes_);
  }

 private:
  std::int64_t weight_bytes_ = 0;  // of packed weights; the library's memory follows
  std::optional<onednn::Primitive> pack_, product_;
};
#endif

// The product of one time, of all rows, into the workspace.
template <class T>
class StepProduct {
 public:
  StepProduct(KernelPlan& plan, const GemmShape& shape) : shape_(shape) {
    bytes_ = (shape.m * shape.n * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    std::int64_t library = 0;
#if BELFRY_ONEDNN
    constexpr std::int64_t kTiny = 16 * 16 * 16;  // as in matmul.cc
    if constexpr (std::is_same_v<T, float>)
      if (shape.m * shape.n * shape.k > kTiny) {
        library_ = std::make_shared<const PackedProduct>(plan, shape);
        library = library_->workspace_bytes();
      }
#endif
    plan.workspace(bytes_ + library);
  }

  // Where it is.
  static T* of(const KernelPointers& p) { return reinterpret_cast<T*>(p.workspace()); }

  // Before the first time.
  void start([[maybe_unused]] const T* weights, [[maybe_unused]] std::byte* workspace) const {
#if BELFRY_ONEDNN
    if constexpr (std::is_same_v<T, float>)
      if (library_) library_->start(weights, workspace + bytes_);
#endif
  }
  void operator()(const T* a, const T* weights, std::byte* workspace) const {
    T* const c = reinterpret_cast<T*>(workspace);
#if BELFRY_ONEDNN
    if constexpr (std::is_same_v<T, float>)
      if (library_) return library_->run(a, weights, c, workspace + bytes_);
#endif
    gemm(shape_, a, weights, c);
  }

 private:
  GemmShape shape_;
  std::int64_t bytes_;  // of the product; the library's memory follows
#if BELFRY_ONEDNN
  std::shared_ptr<const PackedProduct> library_;
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

}  // namespace host_recurrence

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
    product.start(p.input<T>(Step::kHidden), p.workspace());
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
    product.start(p.input<T>(Step::kHidden), p.workspace());
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

void refuse_length(const Node& node, std::int64_t row, std::int64_t length, std::int64_t time) {
  throw InvalidArgument(
      cat(node.describe(), ": length ", length, " is not in [0, ", time, "] (row ", row, ")"));
}

Lengths checked_lengths(const Node& node, const Sequences& s, const KernelPointers& p,
                        std::size_t i) {
  const Lengths lengths{i < p.inputs() ? p.input<std::int32_t>(i) : nullptr, s.time};
  for (std::int64_t row = 0; row < s.rows; ++row)
    if (lengths[row] < 0 || lengths[row] > s.time)
      refuse_length(node, p.first_row() + row, lengths[row], s.time);
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
