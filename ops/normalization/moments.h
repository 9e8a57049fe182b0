// Sums over the rows of x [rows, channels], per channel, as batch normalisation needs them. Rows
// are cut into blocks of moment_block(channels); the results of blocks are combined by a balanced
// tree, split at ceil(n / 2). f32 and f64.
#pragma once
#include <cstdint>

#include "belfry/framework/base/dtype.h"

namespace belfry::kernels {

std::int64_t moment_block(std::int64_t channels);

// Elements of T of scratch memory that the functions below need.
std::int64_t moment_scratch(std::int64_t rows, std::int64_t channels);
// The same in bytes.
inline std::int64_t moment_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype) {
  return moment_scratch(rows, channels) * static_cast<std::int64_t>(size_of(dtype));
}

// Means, and the sums of squared differences from them, each [channels]. rows >= 1.
template <class T>
void moments(const T* x, std::int64_t rows, std::int64_t channels, T* mean, T* squares, T* scratch);

// sum(dy) and sum(dy (x - mean)), each [channels].
template <class T>
void gradient_sums(const T* dy, const T* x, const T* mean, std::int64_t rows, std::int64_t channels,
                   T* sum, T* product, T* scratch);

// The same sums for g, which is dy where y, an output of ReLU, is positive, else 0 (ReluGrad).
// Writes g, which may be dy, in the same pass.
template <class T>
void relu_gradient_sums(const T* dy, const T* y, const T* x, const T* mean, std::int64_t rows,
                        std::int64_t channels, T* g, T* sum, T* product, T* scratch);

extern template void moments(const float*, std::int64_t, std::int64_t, float*, float*, float*);
extern template void moments(const double*, std::int64_t, std::int64_t, double*, double*, double*);
extern template void gradient_sums(const float*, const float*, const float*, std::int64_t,
                                   std::int64_t, float*, float*, float*);
extern template void gradient_sums(const double*, const double*, const double*, std::int64_t,
                                   std::int64_t, double*, double*, double*);
extern template void relu_gradient_sums(const float*, const float*, const float*, const float*,
                                        std::int64_t, std::int64_t, float*, float*, float*, float*);
extern template void relu_gradient_sums(const double*, const double*, const double*, const double*,
                                        std::int64_t, std::int64_t, double*, double*, double*,
                                        double*);

}  // namespace belfry::kernels
