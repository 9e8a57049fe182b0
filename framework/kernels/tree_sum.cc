#include <cstring>
#include <type_traits>

#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

// Elements that are summed before they are copied to the other outputs, while still in cache.
constexpr std::int64_t kChunk = 1024;

template <class T>
BELFRY_HD T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  } else {
    return a + b;
  }
}

template <int n, class T>
BELFRY_HD T tree(const T* const* inputs, std::int64_t i) {
  if constexpr (n == 1) {
    return inputs[0][i];
  } else {
    constexpr int kLeft = (n + 1) / 2;
    return add(tree<kLeft>(inputs, i), tree<n - kLeft>(inputs + kLeft, i));
  }
}

template <int n, class T>
BELFRY_HD void sum_unrolled(const void* const* inputs, std::int64_t begin, std::int64_t count,
                            T* out) {
  const T* x[n];
  for (int k = 0; k < n; ++k) x[k] = static_cast<const T*>(inputs[k]) + begin;
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) out[i] = tree<n>(x, i);
}

// out[i] = tree over inputs[..][begin + i], for i < count <= kChunk. All inputs are read before
// `out` is written, as it may be any of them.
template <class T>
BELFRY_KERNEL void sum_chunk(const void* const* inputs, int n, std::int64_t begin,
                             std::int64_t count, T* out) {
  switch (n) {
    case 1: return sum_unrolled<1>(inputs, begin, count, out);
    case 2: return sum_unrolled<2>(inputs, begin, count, out);
    case 3: return sum_unrolled<3>(inputs, begin, count, out);
    case 4: return sum_unrolled<4>(inputs, begin, count, out);
    case 5: return sum_unrolled<5>(inputs, begin, count, out);
    case 6: return sum_unrolled<6>(inputs, begin, count, out);
    case 7: return sum_unrolled<7>(inputs, begin, count, out);
    case 8: return sum_unrolled<8>(inputs, begin, count, out);
    default: break;
  }
  T left[kChunk];
  T right[kChunk];
  const int middle = (n + 1) / 2;
  sum_chunk(inputs, middle, begin, count, left);
  sum_chunk(inputs + middle, n - middle, begin, count, right);
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) out[i] = add(left[i], right[i]);
}

template <class T>
BELFRY_KERNEL void divide(T* x, std::int64_t count, T divisor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] /= divisor;
}

template <class T, class Finish>
void sum_chunks(std::span<const void* const> inputs, std::span<void* const> outputs,
                std::int64_t begin, std::int64_t end, Finish finish) {
  for (std::int64_t at = begin; at < end; at += kChunk) {
    const std::int64_t count = end - at < kChunk ? end - at : kChunk;
    T* const first = static_cast<T*>(outputs[0]) + at;
    sum_chunk(inputs.data(), static_cast<int>(inputs.size()), at, count, first);
    finish(first, count);
    for (void* const output : outputs) {
      T* const other = static_cast<T*>(output) + at;
      if (other != first) std::memcpy(other, first, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

}  // namespace

template <class T>
void tree_sum(std::span<const void* const> inputs, std::span<void* const> outputs,
              std::int64_t begin, std::int64_t end) {
  sum_chunks<T>(inputs, outputs, begin, end, [](T*, std::int64_t) {});
}

template <class T>
void tree_mean(std::span<const void* const> inputs, std::span<void* const> outputs, T divisor,
               std::int64_t begin, std::int64_t end) {
  sum_chunks<T>(inputs, outputs, begin, end,
                [divisor](T* x, std::int64_t count) { divide(x, count, divisor); });
}

using Inputs = std::span<const void* const>;
using Outputs = std::span<void* const>;
template void tree_sum<float>(Inputs, Outputs, std::int64_t, std::int64_t);
template void tree_sum<double>(Inputs, Outputs, std::int64_t, std::int64_t);
template void tree_sum<std::int32_t>(Inputs, Outputs, std::int64_t, std::int64_t);
template void tree_mean<float>(Inputs, Outputs, float, std::int64_t, std::int64_t);
template void tree_mean<double>(Inputs, Outputs, double, std::int64_t, std::int64_t);

}  // namespace belfry::kernels
