// The order of the sums of CumSum, which hosts and GPUs share.
#pragma once
#include <type_traits>

#include "belfry/ops/indexing/cumsum.h"
#include "belfry/ops/kernels/lines.h"

namespace belfry {

// What elements of T are summed in. Integers wrap.
template <class T>
using CumSumOf = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;

// A line is cut into chunks, each of which has a running sum of its own; a sum is that of the chunk
// plus those of all chunks before, added in order.
inline constexpr std::int64_t kSumsOfChunk = 256;

// One chunk of one line; the scan goes from chunk 0 and element 0, also if it is reversed.
struct CumSumLines {
  Lines lines;
  bool exclusive, reverse;

  BELFRY_HD std::int64_t chunks() const { return (lines.n + kSumsOfChunk - 1) / kSumsOfChunk; }

  // Calls f(element of x, its number in the line) for the elements of a chunk, in order.
  template <class F>
  BELFRY_HD void each(std::int64_t line, std::int64_t chunk, const F& f) const {
    const std::int64_t first = lines.first(line), begin = chunk * kSumsOfChunk;
    const std::int64_t end = begin + kSumsOfChunk < lines.n ? begin + kSumsOfChunk : lines.n;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t number = reverse ? lines.n - 1 - i : i;
      f(first + number * lines.inner, number);
    }
  }
  // Calls write(element, its number, sum) for a chunk, and returns its sum.
  template <class T, class Write>
  BELFRY_HD CumSumOf<T> scan(const T* x, std::int64_t line, std::int64_t chunk, CumSumOf<T> before,
                             const Write& write) const {
    CumSumOf<T> sum = 0;
    each(line, chunk, [&](std::int64_t at, std::int64_t number) {
      const CumSumOf<T> next = sum + static_cast<CumSumOf<T>>(x[at]);
      write(at, number, static_cast<T>(before + (exclusive ? sum : next)));
      sum = next;
    });
    return sum;
  }
};

}  // namespace belfry
