// Shared by the kernels of batch normalisation, whole and in shards.
#pragma once
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

// Host kernels of batch norms, alone or fused with nodes around them (fused_batch_norm.cc). A node
// may lack the shortcut, or y.
KernelRun train_on_host(KernelPlan& plan);
template <bool trained>
KernelRun gradient_on_host(KernelPlan& plan);

}  // namespace belfry
