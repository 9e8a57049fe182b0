// Conversions of elements between types.
#pragma once
#include "belfry/framework/base/dtype.h"
#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

// y[i] = x[i] as another type, for begin <= i < end. Any two types.
void cast(KernelQueue& queue, DType from, const void* x, DType to, void* y, std::int64_t begin,
          std::int64_t end);

// Rows of `columns` elements, in memory that is `pitch` elements apart.
struct CastRows {
  std::int64_t rows, columns, pitch_x, pitch_y;
};
// The same for rows that may be padded.
void cast(KernelQueue& queue, DType from, const void* x, DType to, void* y, const CastRows& of);

}  // namespace belfry::cuda
