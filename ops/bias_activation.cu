// A bias and an activation in one pass, and their gradients.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/row_passes.cuh"
#include "belfry/framework/kernels/fold8.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::cuda {
namespace {

using kernels::Add;

// y = f(x + bias). Rounds to X where the graph does. y may be x.
template <class F, class X, int N>
struct BiasThen {
  using T = Wide<X>;
  static constexpr int kChannels = N;
  struct Factors {
    T bias[kMostLanes * N];
  };
  using Row = Lanes<X, N>;
  const X *x, *bias;
  X *y, *sum;  // sum: null if x + bias is not wanted

  BELFRY_HD void find(Factors& f, int column, std::int64_t channel) const {
    f.bias[column] = Stored<X>::widen(bias[channel]);
  }
  BELFRY_HD Row load(std::int64_t at) const { return Row::load(x + at); }
  BELFRY_HD void store(std::int64_t at, const Row& row, const Factors& f, int column) const {
    Row total{}, out{};
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      total.at[j] = Stored<X>::narrow(row.wide(j) + f.bias[column + j]);
      out.at[j] = Stored<X>::narrow(F{}(total.wide(j)));
    }
    if (sum) total.store(sum + at);
    out.store(y + at);
  }
};

// g = f(dy, read), and its sums over groups of 8 rows, as by fold8(). g may be dy or read.
template <class F, class X, int N>
struct BiasGradientLeaf {
  using Value = Wide<X>;
  static constexpr int kChannels = N, kEach = 2;
  const X *dy, *read;
  X* g;
  std::int64_t rows, channels;
  X* dbias;
  Value* to_parts;  // null in the last launch

  BELFRY_HD static Value neutral() { return Add::kNeutral<Value>; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) { return a + b; }

  BELFRY_HD bool whole(std::int64_t end) const { return end * kLeaf <= rows; }

  template <bool all>
  BELFRY_HD void term(std::int64_t leaf, std::int64_t channel, Value (&out)[N]) const {
    // fold8() adds these halves last. g may be an input, so all rows of a half are read first.
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) out[j] = neutral();
    BELFRY_ROLL
    for (int half = 0; half < 2; ++half) {
      Value sums[N];
      add_half<all>(leaf * kLeaf + half, channel, sums);
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) out[j] = out[j] + sums[j];
    }
  }

  // Adds (first + fifth) + (third + seventh) row from `first` on; leaves out missing rows.
  template <bool all>
  BELFRY_HD void add_half(std::int64_t first, std::int64_t channel, Value (&sums)[N]) const {
    constexpr int kRows = kLeaf / 2, kOrder[kRows] = {0, 4, 2, 6};
    Lanes<X, N> dy_of[kRows]{}, read_of[kRows]{};
    const auto exists = [&](int k) { return all || first + kOrder[k] < rows; };
    const auto at = [&](int k) { return (first + kOrder[k]) * channels + channel; };
    BELFRY_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (!exists(k)) continue;
      dy_of[k] = Lanes<X, N>::load(dy + at(k));
      read_of[k] = Lanes<X, N>::load(read + at(k));
    }
    Value terms[kRows][N];
    BELFRY_UNROLL
    for (int k = 0; k < kRows; ++k) {
      Lanes<X, N> own{};
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) {
        own.at[j] = Stored<X>::narrow(F{}(dy_of[k].wide(j), read_of[k].wide(j)));
        terms[k][j] = exists(k) ? own.wide(j) : neutral();
      }
      if (exists(k)) own.store(g + at(k));
    }
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) sums[j] = (terms[0][j] + terms[1][j]) + (terms[2][j] + terms[3][j]);
  }

  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    if (to_parts)
      to_parts[group * channels + channel] = total;
    else
      dbias[channel] = Stored<X>::narrow(total);
  }
};

template <class F>
QueueRun bias_then(KernelPlan& plan) {
  return visit_stored(plan.dtype(), [rows = RowsOf(plan.output().shape)]<class X>(X) -> QueueRun {
    return [rows](const KernelPointers& p, KernelQueue& queue) {
      const X* const x = p.input<X>(0);
      X *const y = p.output<X>(), *const sum = p.outputs() > 1 ? p.output<X>(1) : nullptr;
      visit_lanes<X>(rows.channels, {x, y, sum}, [&]<int N>(std::integral_constant<int, N>) {
        over_each_row(queue, rows, BiasThen<F, X, N>{x, p.input<X>(1), y, sum});
      });
    };
  });
}

template <class F>
QueueRun gradient_then_sum(KernelPlan& plan) {
  const RowsOf rows(plan.output().shape);
  return visit_stored(plan.dtype(), [&]<class X>(X) -> QueueRun {
    plan.workspace(parts_bytes<Wide<X>>(rows));
    return [rows](const KernelPointers& p, KernelQueue& queue) {
      const X *const dy = p.input<X>(0), *const read = p.input<X>(1);
      X* const g = p.output<X>();
      visit_lanes<X>(rows.channels, {dy, read, g}, [&]<int N>(std::integral_constant<int, N>) {
        over_rows(queue, rows,
                  BiasGradientLeaf<F, X, N>{dy, read, g, rows.rows, rows.channels, p.output<X>(1),
                                            nullptr},
                  p.workspace());
      });
    };
  });
}

template <GpuPrepare exact, GpuPrepare by_tanh>
QueueRun of_gelu_form(KernelPlan& plan) {
  return plan.options<GeluOptions>().form == GeluForm::kExact ? exact(plan) : by_tanh(plan);
}

const GpuKernel kernels_of_ops[] = {
    {kBiasRelu, bias_then<functors::Relu>, kTakesHalf},
    {kBiasGelu, of_gelu_form<bias_then<functors::Gelu>, bias_then<functors::GeluTanh>>, kTakesHalf},
    {kBiasSilu, bias_then<functors::Silu>, kTakesHalf},
    {kBiasReluGrad, gradient_then_sum<functors::ReluGrad>, kTakesHalf},
    {kBiasGeluGrad,
     of_gelu_form<gradient_then_sum<functors::GeluGrad>, gradient_then_sum<functors::GeluTanhGrad>>,
     kTakesHalf},
    {kBiasSiluGrad, gradient_then_sum<functors::SiluGrad>, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
