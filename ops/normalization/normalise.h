// The passes of batch normalisation over x [rows, channels], once moments or sums per channel are
// known. f32 and f64. Outputs may be the first input.
#pragma once
#include <cstdint>

namespace belfry::kernels {

// Factors per channel, each [channels].
template <class T>
struct Channels {
  const T *mean, *variance, *gamma;
  T epsilon;
};

// Later steps of the same pass: adds a tensor of x's shape, unless it is null, then applies ReLU.
template <class T>
struct Following {
  const T* shortcut = nullptr;
  bool relu = false;
};

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, then the later steps.
template <class T>
void normalise(const T* x, std::int64_t rows, std::int64_t channels, const Channels<T>& by,
               const T* beta, T* y, const Following<T>& then = {});

// dx = dy * gamma / sqrt(variance + epsilon), for given moments.
template <class T>
void given_input_gradient(const T* dy, std::int64_t rows, std::int64_t channels,
                          const Channels<T>& by, T* dx);

// dx for moments that are x's own. `sum` is of dy and `product` of dy (x - mean), over `all` rows,
// of which these may be a part.
template <class T>
void trained_input_gradient(const T* dy, const T* x, std::int64_t rows, std::int64_t channels,
                            const Channels<T>& by, const T* sum, const T* product, T all, T* dx);

// y = (x - mean) slope + offset.
template <class T>
void scale_distance(const T* x, std::int64_t rows, std::int64_t channels, const T* mean,
                    const T* slope, const T* offset, T* y);

#define BELFRY_NORMALISE_OF(linkage, T)                                                          \
  linkage template void normalise(const T*, std::int64_t, std::int64_t, const Channels<T>&,      \
                                  const T*, T*, const Following<T>&);                            \
  linkage template void given_input_gradient(const T*, std::int64_t, std::int64_t,               \
                                             const Channels<T>&, T*);                            \
  linkage template void trained_input_gradient(const T*, const T*, std::int64_t, std::int64_t,   \
                                               const Channels<T>&, const T*, const T*, T, T*);   \
  linkage template void scale_distance(const T*, std::int64_t, std::int64_t, const T*, const T*, \
                                       const T*, T*);
BELFRY_NORMALISE_OF(extern, float)
BELFRY_NORMALISE_OF(extern, double)

}  // namespace belfry::kernels
