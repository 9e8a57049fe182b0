#include "belfry/trainers/reduction_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace belfry {
namespace {

constexpr std::int64_t kBlock = 1024;

template <class F>
auto visit(DType dtype, const F& f) {
  return dtype == DType::kI32 ? f(std::int32_t{}) : visit_floating(dtype, f);
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
void fill(int tower, std::int64_t begin, std::int64_t count, T* values) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = noise(tower, begin + i);
    const std::int32_t number = static_cast<std::int32_t>(bits >> 8) - (1 << 23);
    if constexpr (std::is_floating_point_v<T>)
      values[i] = static_cast<T>(number) / static_cast<T>(1 << 23 << (bits & 7));  // exactly
    else
      values[i] = number / 1024;  // sums of 1024 towers do not overflow
  }
}

// The canonical tree over towers [first, last).
template <class T>
void tree(int first, int last, std::int64_t begin, std::int64_t count, T* sums) {
  if (last - first == 1) return fill(first, begin, count, sums);
  const int middle = first + (last - first + 1) / 2;
  T right[kBlock];
  tree(first, middle, begin, count, sums);
  tree(middle, last, begin, count, right);
  for (std::int64_t i = 0; i < count; ++i) sums[i] += right[i];
}

template <class T>
std::int64_t count_wrong(const Tensor& result, const Tensor& expected, double tolerance) {
  const auto got = result.data<T>(), wanted = expected.data<T>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = std::memcmp(&got[i], &wanted[i], sizeof(T)) == 0;
    const double difference =
        std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i]));
    wrong += !same && !(difference <= tolerance) ? 1 : 0;
  }
  return wrong;
}

}  // namespace

ReductionOracle::ReductionOracle(Shape shape, DType dtype, int towers, Reduction reduction)
    : towers_(towers), expected_(std::move(shape), dtype) {
  visit(dtype, [&]<class T>(T) {
    const auto values = expected_.mutable_data<T>();
    for (std::int64_t at = 0; at < std::ssize(values); at += kBlock)
      tree(0, towers, at, std::min(kBlock, std::ssize(values) - at), values.data() + at);
    if (reduction == Reduction::kSum || towers == 1) return;
    require(std::is_floating_point_v<T>, "there is no mean of integers");
    for (T& value : values) value /= static_cast<T>(towers);
  });
}

Tensor ReductionOracle::input(int tower) const {
  Tensor tensor(expected_.shape(), expected_.dtype());
  visit(tensor.dtype(), [&]<class T>(T) {
    const auto values = tensor.mutable_data<T>();
    fill(tower, 0, std::ssize(values), values.data());
  });
  return tensor;
}

std::int64_t ReductionOracle::wrong(const Tensor& result, bool canonical) const {
  return visit(expected_.dtype(), [&]<class T>(T) {
    double tolerance = -1;
    // Each of the additions rounds a sum of at most `towers_` numbers below 1.
    if constexpr (std::is_floating_point_v<T>)
      if (!canonical)
        tolerance = static_cast<double>(std::numeric_limits<T>::epsilon()) * towers_ * towers_;
    return count_wrong<T>(result, expected_, tolerance);
  });
}

}  // namespace belfry
