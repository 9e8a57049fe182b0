// The kernels of batch normalisation on GPUs, for sources that nvcc compiles. X is the type of x
// and all tensors of its shape, including f16 and bf16. Tensors per channel have the type in which
// kernels compute.
#pragma once
#include "belfry/framework/cuda/kernels/row_passes.cuh"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/normalization/spread.h"

namespace belfry::cuda::batch_norm {

using kernels::Spread;

// The moments of groups of 8 rows.
template <class X, int N>
struct MomentLeaf {
  using T = Wide<X>;
  using Value = Spread<T>;
  static constexpr int kChannels = N, kEach = 4;
  const X* x;
  std::int64_t rows, channels;
  T *mean, *variance;
  T* count;         // null: `variance` is the variance; else it is the sum of squares
  const T* weight;  // with `count`; null: 1
  Value* to_parts;  // null in the last launch

  BELFRY_HD static Value neutral() { return {0, 0, 0}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) { return kernels::combined(a, b); }

  BELFRY_HD bool whole(std::int64_t end) const { return end * kLeaf <= rows; }

  // Means are summed as differences from the first row, so a large mean does not swallow them.
  template <bool all>
  BELFRY_HD void term(std::int64_t leaf, std::int64_t channel, Value (&out)[N]) const {
    const X* const from = x + leaf * kLeaf * channels + channel;
    const std::int64_t rest = rows - leaf * kLeaf;
    const std::int64_t number = all || rest > kLeaf ? kLeaf : rest;
    Lanes<X, N> row[kLeaf]{};
    BELFRY_UNROLL
    for (int k = 0; k < kLeaf; ++k)
      row[k] = Lanes<X, N>::load(from + (k < number ? k * channels : 0));
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      T sum = 0, squares = 0;
      const T first = row[0].wide(j);
      BELFRY_UNROLL
      for (int k = 1; k < kLeaf; ++k) sum += row[k].wide(j) - first;
      const T middle = first + (all ? sum * (T(1) / T(kLeaf)) : sum / static_cast<T>(number));
      BELFRY_UNROLL
      for (int k = 0; k < kLeaf; ++k) {
        const T distance = row[k].wide(j) - middle;
        squares += k < number ? distance * distance : T(0);
      }
      out[j] = {static_cast<T>(number), middle, squares};
    }
  }

  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    mean[channel] = total.mean;
    variance[channel] = count ? total.squares : total.squares / static_cast<T>(rows);
    if (count && channel == 0) *count = weight && *weight == 0 ? T(0) : static_cast<T>(rows);
  }
};

template <class T>
struct Products {
  T sum, product;  // of dy, and of dy (x - mean)
};

// Where the gradient g of a batch norm's output comes from.
enum class Gradient {
  kGiven,      // dy, perhaps with an addend and an output y of ReLU: pass 1 stores g if so
  kMaskedByX,  // dy where ReLU of the batch norm is positive: each pass computes that from x
};

// The largest value that rounds to 0 as an X.
template <class X>
constexpr Wide<X> kRoundsToZero = 0;
template <>
inline constexpr float kRoundsToZero<kernels::BF16> = 0x1p-134f;
template <>
inline constexpr float kRoundsToZero<kernels::F16> = 0x1p-25f;

// The gradient of ReLU where its input is a batch norm of x, as Normalise computes it. Only NaN
// takes the way by y.
template <class X>
BELFRY_HD X masked_by_x(X dy, Wide<X> x, Wide<X> middle, Wide<X> scale, Wide<X> shift) {
  using S = Stored<X>;
  const Wide<X> value = (x - middle) * scale + shift, gradient = S::widen(dy);
  if (value == value && gradient == gradient) return value > kRoundsToZero<X> ? dy : S::narrow(0);
  const X y = S::narrow(functors::Relu{}(value));
  return S::narrow(functors::ReluGrad{}(gradient, S::widen(y)));
}

// The sums of g.
template <class X, int N, Gradient from>
struct ProductLeaf {
  using T = Wide<X>;
  using Value = Products<T>;
  static constexpr int kChannels = N, kEach = 4;
  struct Factors {
    T middle[N], scale[N], shift[N];
  };
  const X *dy, *x, *addend, *y;  // the last two may be null
  X* g;                          // the result g, if there is one of them; may be dy
  const T *mean, *variance;
  T epsilon;
  std::int64_t rows, channels;
  T *products, *dgamma, *dbeta;
  const T *gamma, *beta;
  T *dmean, *dvariance;  // null if moments are x's own
  Value* to_parts;

  BELFRY_HD static Value neutral() { return {0, 0}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) {
    return {a.sum + b.sum, a.product + b.product};
  }

  BELFRY_HD bool whole(std::int64_t end) const { return end * kLeaf <= rows; }

  template <bool all>
  BELFRY_HD void term(std::int64_t leaf, std::int64_t channel, Value (&out)[N]) const {
    Factors f{};
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      const std::int64_t c = channel + j;
      f.middle[j] = mean[c];
      if constexpr (from == Gradient::kMaskedByX) {
        f.scale[j] = gamma[c] / math::sqrt(variance[c] + epsilon);
        f.shift[j] = beta[c];
      }
      out[j] = neutral();
    }
    BELFRY_ROLL
    for (int k = 0; k < kLeaf; k += kAtOnce) add_rows<all>(leaf * kLeaf + k, channel, f, out);
  }

  template <bool all>
  BELFRY_HD void add_rows(std::int64_t first, std::int64_t channel, const Factors& f,
                          Value (&out)[N]) const {
    Lanes<X, N> g_of[kAtOnce]{}, x_of[kAtOnce]{}, y_of[kAtOnce]{}, more[kAtOnce]{};
    BELFRY_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (!all && first + k >= rows) break;
      const std::int64_t at = (first + k) * channels + channel;
      g_of[k] = Lanes<X, N>::load(dy + at);
      x_of[k] = Lanes<X, N>::load(x + at);
      if constexpr (from == Gradient::kGiven) {
        if (addend) more[k] = Lanes<X, N>::load(addend + at);
        if (y) y_of[k] = Lanes<X, N>::load(y + at);
      }
    }
    BELFRY_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      if (!all && first + k >= rows) break;
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) find_g(g_of[k], x_of[k], more[k], y_of[k], f, j);
      if (from == Gradient::kGiven && (addend || y))
        g_of[k].store(g + (first + k) * channels + channel);
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) {
        out[j].sum += g_of[k].wide(j);
        out[j].product += g_of[k].wide(j) * (x_of[k].wide(j) - f.middle[j]);
      }
    }
  }

  // Element j of g, in place of that of dy. Rounds to X where the graph does.
  BELFRY_HD void find_g(Lanes<X, N>& g_of, const Lanes<X, N>& x_of, const Lanes<X, N>& more,
                        const Lanes<X, N>& y_of, const Factors& f, int j) const {
    using S = Stored<X>;
    if constexpr (from == Gradient::kMaskedByX) {
      g_of.at[j] = masked_by_x(g_of.at[j], x_of.wide(j), f.middle[j], f.scale[j], f.shift[j]);
    } else {
      if (addend) g_of.at[j] = S::narrow(g_of.wide(j) + more.wide(j));
      if (y) g_of.at[j] = S::narrow(functors::ReluGrad{}(g_of.wide(j), y_of.wide(j)));
    }
  }

  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    dbeta[channel] = total.sum;
    products[channel] = total.product;
    const T spread = variance[channel] + epsilon;
    const T own = total.product / math::sqrt(spread);
    dgamma[channel] = own;
    if (!dmean) return;
    dmean[channel] = -(total.sum * gamma[channel] / math::sqrt(spread));
    dvariance[channel] = own * gamma[channel] / spread * T(-0.5);
  }
};

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, then the sum with a shortcut, if there
// is one, then ReLU, if requested. y may be x. Rounds to X where the graph does.
template <class X, int N>
struct Normalise {
  using T = Wide<X>;
  static constexpr int kChannels = N;
  struct Factors {
    T scale[kMostLanes * N], shift[kMostLanes * N], middle[kMostLanes * N];
  };
  struct Row {
    Lanes<X, N> x, shortcut;
  };
  const X *x, *shortcut;
  const T *mean, *variance, *gamma, *beta;
  T epsilon;
  bool relu;
  X* y;

  BELFRY_HD void find(Factors& f, int column, std::int64_t channel) const {
    f.scale[column] = gamma[channel] / math::sqrt(variance[channel] + epsilon);
    f.shift[column] = beta[channel];
    f.middle[column] = mean[channel];
  }
  BELFRY_HD Row load(std::int64_t at) const {
    Row row{};
    row.x = Lanes<X, N>::load(x + at);
    if (shortcut) row.shortcut = Lanes<X, N>::load(shortcut + at);
    return row;
  }
  BELFRY_HD void store(std::int64_t at, const Row& row, const Factors& f, int column) const {
    Lanes<X, N> out{};
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      const int c = column + j;
      T value = (row.x.wide(j) - f.middle[c]) * f.scale[c] + f.shift[c];
      if (shortcut) value = Stored<X>::widen(Stored<X>::narrow(value)) + row.shortcut.wide(j);
      // Rounding moves no value across 0.
      out.at[j] = Stored<X>::narrow(relu ? functors::Relu{}(value) : value);
    }
    out.store(y + at);
  }
};

// dx = scale (g - offset - (x - mean) slope); offset and slope are 0 for given moments. `g` may be
// dx. If g is masked by x, it is dy here.
template <class X, int N, bool trained, Gradient from>
struct InputGradient {
  using T = Wide<X>;
  static constexpr int kChannels = N;
  static constexpr bool kMasks = from == Gradient::kMaskedByX;
  struct Factors {
    T scale[kMostLanes * N], offset[kMostLanes * N], slope[kMostLanes * N], middle[kMostLanes * N];
    T shift[kMasks ? kMostLanes * N : 1];
  };
  struct Row {
    Lanes<X, N> g, x;
  };
  std::int64_t rows;
  const X *g, *x;
  const T *mean, *variance, *gamma, *beta;
  T epsilon;
  const T *sums, *products;
  X* dx;

  BELFRY_HD void find(Factors& f, int column, std::int64_t channel) const {
    const T spread = variance[channel] + epsilon;
    f.scale[column] = gamma[channel] / math::sqrt(spread);
    f.offset[column] = sums[channel] / static_cast<T>(rows);
    f.slope[column] = products[channel] / static_cast<T>(rows) / spread;
    f.middle[column] = mean[channel];
    if constexpr (kMasks) f.shift[column] = beta[channel];
  }
  BELFRY_HD Row load(std::int64_t at) const {
    Row row{};
    row.g = Lanes<X, N>::load(g + at);
    if (trained || kMasks) row.x = Lanes<X, N>::load(x + at);
    return row;
  }
  BELFRY_HD void store(std::int64_t at, const Row& row, const Factors& f, int column) const {
    Lanes<X, N> out{};
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      const int c = column + j;
      X g_of = row.g.at[j];
      if constexpr (kMasks)
        g_of = masked_by_x(g_of, row.x.wide(j), f.middle[c], f.scale[c], f.shift[c]);
      const T g_wide = Stored<X>::widen(g_of);
      const T value =
          trained ? f.scale[c] * (g_wide - f.offset[c] - (row.x.wide(j) - f.middle[c]) * f.slope[c])
                  : f.scale[c] * g_wide;
      out.at[j] = Stored<X>::narrow(value);
    }
    out.store(dx + at);
  }
};

// The pointers of a batch norm whose moments are known.
template <class X>
struct Forward {
  const X *x, *shortcut;
  const Wide<X>*gamma, *beta, *mean, *variance;
  X* y;
};

template <class X>
void find_moments(KernelQueue& queue, const RowsOf& e, const X* x, Wide<X>* mean, Wide<X>* variance,
                  Wide<X>* count, const Wide<X>* weight, std::byte* workspace) {
  visit_lanes<X>(e.channels, {x}, [&]<int N>(std::integral_constant<int, N>) {
    over_rows(queue, e,
              MomentLeaf<X, N>{x, e.rows, e.channels, mean, variance, count, weight, nullptr},
              workspace);
  });
}

template <class X>
void normalise(KernelQueue& queue, const RowsOf& e, const Forward<X>& p, double epsilon,
               bool relu) {
  visit_lanes<X>(e.channels, {p.x, p.shortcut, p.y}, [&]<int N>(std::integral_constant<int, N>) {
    over_each_row(queue, e,
                  Normalise<X, N>{p.x, p.shortcut, p.mean, p.variance, p.gamma, p.beta,
                                  static_cast<Wide<X>>(epsilon), relu, p.y});
  });
}

// The pointers of a gradient. With `addend`, it is first added to dy. With `y`, that goes through
// ReLU. With either, `g` gets the result. With `beta`, ReLU's output is found from x: then there is
// no addend, and y and g are not used. `dmean` and `dvariance` are null if moments are x's own.
template <class X>
struct Backward {
  const X *dy, *x, *addend, *y;
  X *g, *dx;
  const Wide<X>*gamma, *beta, *mean, *variance;
  Wide<X>*dgamma, *dbeta, *dmean, *dvariance;
};

template <class X>
std::int64_t gradient_workspace(const RowsOf& x) {
  return parts_bytes<Products<Wide<X>>>(x) +
         x.channels * static_cast<std::int64_t>(sizeof(Wide<X>));
}

template <Gradient from, int N, class X>
void find_gradient_from(KernelQueue& queue, const RowsOf& e, const Backward<X>& p, Wide<X> epsilon,
                        std::byte* workspace) {
  using T = Wide<X>;
  T* const products = reinterpret_cast<T*>(workspace + parts_bytes<Products<T>>(e));
  over_rows(queue, e,
            ProductLeaf<X, N, from>{p.dy, p.x, p.addend, p.y, p.g, p.mean, p.variance, epsilon,
                                    e.rows, e.channels, products, p.dgamma, p.dbeta, p.gamma,
                                    p.beta, p.dmean, p.dvariance, nullptr},
            workspace);
  const bool stored = from == Gradient::kGiven && (p.addend || p.y);
  const auto find_dx = [&]<bool trained>(std::bool_constant<trained>) {
    over_each_row(
        queue, e,
        InputGradient<X, N, trained, from>{e.rows, stored ? p.g : p.dy, p.x, p.mean, p.variance,
                                           p.gamma, p.beta, epsilon, p.dbeta, products, p.dx});
  };
  if (p.dmean)
    find_dx(std::false_type{});
  else
    find_dx(std::true_type{});
}

template <class X>
void find_gradient(KernelQueue& queue, const RowsOf& e, const Backward<X>& p, double epsilon,
                   std::byte* workspace) {
  const auto small = static_cast<Wide<X>>(epsilon);
  visit_lanes<X>(e.channels, {p.dy, p.x, p.addend, p.y, p.g, p.dx},
                 [&]<int N>(std::integral_constant<int, N>) {
                   if (p.beta)
                     find_gradient_from<Gradient::kMaskedByX, N>(queue, e, p, small, workspace);
                   else
                     find_gradient_from<Gradient::kGiven, N>(queue, e, p, small, workspace);
                 });
}

}  // namespace belfry::cuda::batch_norm
