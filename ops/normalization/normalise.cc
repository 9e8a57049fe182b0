#include "belfry/ops/normalization/normalise.h"

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::kernels {
namespace {

// Channels are taken in blocks whose factors fit on the stack.
constexpr std::int64_t kBlock = 256;

template <bool adds, bool relu, class T>
BELFRY_KERNEL void normalise_rows(const T* x, std::int64_t rows, std::int64_t channels,
                                  const Channels<T>& by, const T* beta, const T* shortcut, T* y) {
  for (std::int64_t first = 0; first < channels; first += kBlock) {
    const std::int64_t count = channels - first < kBlock ? channels - first : kBlock;
    T scale[kBlock], shift[kBlock], middle[kBlock];
    for (std::int64_t c = 0; c < count; ++c) {
      scale[c] = by.gamma[first + c] / math::sqrt(by.variance[first + c] + by.epsilon);
      shift[c] = beta[first + c];
      middle[c] = by.mean[first + c];
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + first;
      BELFRY_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) {
        const T normal = (x[at + c] - middle[c]) * scale[c] + shift[c];
        const T sum = adds ? normal + shortcut[at + c] : normal;
        y[at + c] = relu ? functors::Relu{}(sum) : sum;
      }
    }
  }
}

// dx = scale (dy - offset - (x - mean) slope); offset and slope are 0 for given moments.
template <bool trained, class T>
BELFRY_KERNEL void input_gradient(const T* dy, const T* x, std::int64_t rows, std::int64_t channels,
                                  const Channels<T>& by, const T* sum, const T* product, T all,
                                  T* dx) {
  for (std::int64_t first = 0; first < channels; first += kBlock) {
    const std::int64_t count = channels - first < kBlock ? channels - first : kBlock;
    T scale[kBlock], offset[kBlock], slope[kBlock], middle[kBlock];
    for (std::int64_t c = 0; c < count; ++c) {
      const T spread = by.variance[first + c] + by.epsilon;
      scale[c] = by.gamma[first + c] / math::sqrt(spread);
      if (!trained) continue;
      offset[c] = sum[first + c] / all;
      slope[c] = product[first + c] / all / spread;
      middle[c] = by.mean[first + c];
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t at = r * channels + first;
      BELFRY_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c)
        dx[at + c] = trained
                         ? scale[c] * (dy[at + c] - offset[c] - (x[at + c] - middle[c]) * slope[c])
                         : scale[c] * dy[at + c];
    }
  }
}

template <class T>
BELFRY_KERNEL void scale_rows(const T* x, std::int64_t rows, std::int64_t channels, const T* mean,
                              const T* slope, const T* offset, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* const from = x + r * channels;
    T* const to = y + r * channels;
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c) to[c] = (from[c] - mean[c]) * slope[c] + offset[c];
  }
}

}  // namespace

template <class T>
void normalise(const T* x, std::int64_t rows, std::int64_t channels, const Channels<T>& by,
               const T* beta, T* y, const Following<T>& then) {
  const auto run = [&](auto kernel) { kernel(x, rows, channels, by, beta, then.shortcut, y); };
  if (then.shortcut)
    run(then.relu ? normalise_rows<true, true, T> : normalise_rows<true, false, T>);
  else
    run(then.relu ? normalise_rows<false, true, T> : normalise_rows<false, false, T>);
}

template <class T>
void given_input_gradient(const T* dy, std::int64_t rows, std::int64_t channels,
                          const Channels<T>& by, T* dx) {
  const T* const none = nullptr;
  input_gradient<false>(dy, none, rows, channels, by, none, none, T(1), dx);
}

template <class T>
void trained_input_gradient(const T* dy, const T* x, std::int64_t rows, std::int64_t channels,
                            const Channels<T>& by, const T* sum, const T* product, T all, T* dx) {
  input_gradient<true>(dy, x, rows, channels, by, sum, product, all, dx);
}

template <class T>
void scale_distance(const T* x, std::int64_t rows, std::int64_t channels, const T* mean,
                    const T* slope, const T* offset, T* y) {
  scale_rows(x, rows, channels, mean, slope, offset, y);
}

BELFRY_NORMALISE_OF(, float)
BELFRY_NORMALISE_OF(, double)

}  // namespace belfry::kernels
