// What the kernels of batch normalisation share, whole and in shards. For their sources.
#pragma once
#include <cmath>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

struct BatchNormExtent {
  explicit BatchNormExtent(const Shape& x) : rows(x.product(0, x.rank() - 1)), channels(x.back()) {}
  std::int64_t rows, channels;
};

// sum(dy) and sum(dy (x - mean) / spread) of channel c: plainly, in f64.
struct PlainGradientSums {
  template <class T>
  PlainGradientSums(const T* dy, const T* x, const BatchNormExtent& e, std::int64_t c, double mean,
                    double spread) {
    for (std::int64_t i = c; i < e.rows * e.channels; i += e.channels) {
      sum += dy[i];
      product += dy[i] * ((x[i] - mean) / spread);
    }
  }
  double sum = 0, product = 0;
};

// Of given moments, their gradients, too: y = gamma (x - mean) / sqrt(variance + epsilon) + beta.
template <class T>
void moments_gradients(const Pointers& p, std::int64_t channels, T epsilon) {
  const T *const gamma = p.input<T>(2), *const variance = p.input<T>(4);
  const T *const dgamma = p.output<T>(1), *const dbeta = p.output<T>(2);
  for (std::int64_t c = 0; c < channels; ++c) {
    const T spread = variance[c] + epsilon;
    p.output<T>(3)[c] = -(dbeta[c] * gamma[c] / std::sqrt(spread));
    p.output<T>(4)[c] = dgamma[c] * gamma[c] / spread * T(-0.5);
  }
}

}  // namespace belfry
