#include "reduction_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/kernels/half.h"

namespace belfry {
namespace {

constexpr std::int64_t kBlock = 1024;

// Calls f with the type in which a dtype is computed.
template <class F>
auto visit(DType dtype, const F& f) {
  if (is_half(dtype)) return f(float{});
  return dtype == DType::kI32 ? f(std::int32_t{}) : visit_floating(dtype, f);
}

// Converts elements [begin, begin + count) of a tensor to and from the type in which they are
// computed.
template <class T>
void load(const Tensor& from, std::int64_t begin, std::int64_t count, T* values) {
  const std::byte* const bytes =
      from.raw() + static_cast<std::size_t>(begin) * size_of(from.dtype());
  if constexpr (std::is_same_v<T, float>)
    if (is_half(from.dtype()))
      return kernels::half_conversion(from.dtype())
          .widen(reinterpret_cast<const std::uint16_t*>(bytes), values, count);
  std::memcpy(values, bytes, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void store(const T* values, std::int64_t begin, std::int64_t count, Tensor& to) {
  std::byte* const bytes = to.mutable_raw() + static_cast<std::size_t>(begin) * size_of(to.dtype());
  if constexpr (std::is_same_v<T, float>)
    if (is_half(to.dtype()))
      return kernels::half_conversion(to.dtype())
          .narrow(values, reinterpret_cast<std::uint16_t*>(bytes), count);
  std::memcpy(bytes, values, static_cast<std::size_t>(count) * sizeof(T));
}

// Bits that depend on tower and element.
std::uint32_t noise(int tower, std::int64_t element) {
  auto bits = static_cast<std::uint32_t>(element) * 2654435761U +
              static_cast<std::uint32_t>(tower) * 2246822519U;
  bits ^= bits >> 15;
  bits *= 2246822519U;
  return bits ^ bits >> 13;
}

template <class T>
void fill(DType dtype, int tower, std::int64_t begin, std::int64_t count, T* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = noise(tower, begin + i);
    const std::int32_t number = static_cast<std::int32_t>(bits >> 8) - (1 << 23);
    if constexpr (std::is_floating_point_v<T>)
      values[i] = static_cast<T>(number) / static_cast<T>(1 << 23 << (bits & 7));  // exactly
    else
      values[i] = number / 1024;  // sums of 1024 towers do not overflow
  }
  if constexpr (std::is_same_v<T, float>) {
    if (!is_half(dtype)) return;
    const kernels::HalfConversion convert = kernels::half_conversion(dtype);
    std::uint16_t rounded[kBlock];
    convert.narrow(values, rounded, count);
    convert.widen(rounded, values, count);
  }
}

// Sums over towers [first, last) by the canonical tree.
template <class T>
void tree(DType dtype, int first, int last, std::int64_t begin, std::int64_t count, T* sums) {
  if (last - first == 1) return fill(dtype, first, begin, count, sums);
  const int middle = first + (last - first + 1) / 2;
  T right[kBlock];
  tree(dtype, first, middle, begin, count, sums);
  tree(dtype, middle, last, begin, count, right);
  for (std::int64_t i = 0; i < count; ++i) sums[i] += right[i];
}

// The distance from 1 to the next larger number of the dtype.
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return std::ldexp(1, -7);
    case DType::kF16: return std::ldexp(1, -10);
    case DType::kF32: return std::numeric_limits<float>::epsilon();
    default: return std::numeric_limits<double>::epsilon();
  }
}

// Calls f(begin, count) for each block of a tensor.
template <class F>
void each_block(const Tensor& tensor, const F& f) {
  for (std::int64_t at = 0; at < tensor.elements(); at += kBlock)
    f(at, std::min(kBlock, tensor.elements() - at));
}

}  // namespace

ReductionOracle::ReductionOracle(Shape shape, DType dtype, int towers, Reduction reduction)
    : towers_(towers), expected_(std::move(shape), dtype) {
  const bool divides = reduction == Reduction::kMean && towers > 1;
  require(is_floating(dtype) || !divides, "there is no mean of integers");
  visit(dtype, [&]<class T>(T) {
    each_block(expected_, [&](std::int64_t begin, std::int64_t count) {
      T sums[kBlock];
      tree(dtype, 0, towers, begin, count, sums);
      if (divides)
        for (std::int64_t i = 0; i < count; ++i) sums[i] /= static_cast<T>(towers);
      store(sums, begin, count, expected_);
    });
  });
}

Tensor ReductionOracle::input(int tower) const {
  Tensor tensor(expected_.shape(), expected_.dtype());
  visit(tensor.dtype(), [&]<class T>(T) {
    each_block(tensor, [&](std::int64_t begin, std::int64_t count) {
      T values[kBlock];
      fill(tensor.dtype(), tower, begin, count, values);
      store(values, begin, count, tensor);
    });
  });
  return tensor;
}

std::int64_t ReductionOracle::wrong(const Tensor& result, bool canonical) const {
  const DType dtype = expected_.dtype();
  // Each addition rounds a sum of at most `towers_` numbers below 1.
  const double tolerance =
      canonical || !is_floating(dtype) ? -1 : epsilon(dtype) * towers_ * towers_;
  std::int64_t wrong = 0;
  visit(dtype, [&]<class T>(T) {
    each_block(expected_, [&](std::int64_t begin, std::int64_t count) {
      T got[kBlock], wanted[kBlock];
      load(result, begin, count, got);
      load(expected_, begin, count, wanted);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool same = std::memcmp(&got[i], &wanted[i], sizeof(T)) == 0;
        const double difference =
            std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
        wrong += !same && !(difference <= tolerance) ? 1 : 0;
      }
    });
  });
  return wrong;
}

}  // namespace belfry
