// What the kernels of batch normalisation share, whole and in shards. For their sources.
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

// Kernels of hosts: of a batch norm, which also serve one that is fused with what is around it
// (fused_batch_norm.cc). A node without shortcut, or y, has none.
KernelRun train_on_host(KernelPlan& plan);
template <bool trained>
KernelRun gradient_on_host(KernelPlan& plan);

}  // namespace belfry
