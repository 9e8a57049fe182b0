// Elements of tensors of f16, bf16, f32 and f64, for kernels that compute in f32 or f64.
#pragma once
#include <cstdint>
#include <optional>

#include "belfry/framework/base/dtype.h"
#include "belfry/framework/kernels/half.h"

namespace belfry::kernels {

// Calls f(T{}) with the type in which kernels compute with elements of `dtype`.
template <class F>
auto visit_computed(DType dtype, const F& f) {
  return visit_floating(is_half(dtype) ? DType::kF32 : dtype, f);
}

// Loads and stores elements for kernels that compute in T, f32 or f64. 16 bits are widened to f32,
// and rounded once.
template <class T>
class StoredElements {
 public:
  explicit StoredElements(DType dtype) {
    if (is_half(dtype)) half_ = half_conversion(dtype);
  }
  void load(const void* x, std::int64_t at, std::int64_t count, T* to) const;
  void store(const T* from, std::int64_t count, void* x, std::int64_t at) const;
  // Rounds x [count] as storing and loading it does.
  void round(T* x, std::int64_t count) const;

 private:
  std::optional<HalfConversion> half_;
};

}  // namespace belfry::kernels
