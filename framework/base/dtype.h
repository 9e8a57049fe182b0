// Element types of tensors. There is no promotion: mixed types throw and suggest `cast`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "belfry/framework/base/error.h"

namespace belfry {

enum class DType : std::uint8_t { kF16, kBF16, kF32, kF64, kI32, kI64, kU8, kBool };

// "f32", "i64", ...
std::string_view name_of(DType dtype);

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kBool: return 1;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF64:
    case DType::kI64: return 8;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) { return dtype <= DType::kF64; }
// f16 or bf16.
constexpr bool is_half(DType dtype) { return dtype <= DType::kBF16; }

// The DType whose elements a C++ `T` holds. 16-bit floats have no C++ type on hosts.
template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::kBool;
}

// Calls f(T{}) with the C++ type of a floating dtype and returns its result. Host kernels compute
// in f32 and f64; other types throw InvalidArgument.
template <class F>
auto visit_floating(DType dtype, F&& f) {
  if (dtype == DType::kF32) return f(float{});
  detail::require(dtype == DType::kF64, "no host kernel for ", name_of(dtype),
                  "; cast to f32 or f64");
  return f(double{});
}

// Like visit_floating(), over every type that hosts have: f32 f64 i32 i64 u8 bool.
template <class F>
auto visit_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI32: return f(std::int32_t{});
    case DType::kI64: return f(std::int64_t{});
    case DType::kU8: return f(std::uint8_t{});
    case DType::kBool: return f(bool{});
    default: return visit_floating(dtype, f);
  }
}

}  // namespace belfry
