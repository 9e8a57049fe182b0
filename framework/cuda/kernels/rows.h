// Blocks that take a row of the last axis each, as those of softmax and layer normalisation do.
#pragma once
#include "belfry/framework/base/shape.h"
#include "belfry/framework/cuda/kernels/fold.h"

namespace belfry::cuda {

// f(i) for i < n, by the threads of a block.
template <class F>
BELFRY_HD void for_each(const Block& block, std::int64_t n, const F& f) {
  block.each([&](int thread) {
    for (std::int64_t i = thread; i < n; i += block.threads) f(i);
  });
}

// A block for each row, with the threads that fold() takes.
inline Grid rows_of(const Shape& shape) {
  return {.blocks = shape.elements() == 0 ? 0 : shape.elements() / shape.back(),
          .threads = kFoldThreads};
}

}  // namespace belfry::cuda
