// A sum over ranks as NCCL may make it, for stand-ins of NCCL.
#pragma once
#include <cstddef>
#include <span>

#include "belfry/framework/kernels/half_bits.h"

namespace belfry::test {

// Sums from the last rank to the first, which is no tree, rounds to T at every addition, and
// divides once. Each of `to` may be one of `from`.
template <class T>
void sum_ranks(std::span<const void* const> from, std::span<void* const> to, std::int64_t elements,
               int divisor = 1) {
  using Stored = kernels::Stored<T>;
  using Wide = typename Stored::Type;
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto term = [&](std::size_t r) { return static_cast<const T*>(from[r])[i]; };
    T sum = term(from.size() - 1);
    for (std::size_t r = from.size() - 1; r-- > 0;)
      sum = Stored::narrow(static_cast<Wide>(Stored::widen(sum) + Stored::widen(term(r))));
    if (divisor > 1)
      sum = Stored::narrow(static_cast<Wide>(Stored::widen(sum) / static_cast<Wide>(divisor)));
    for (void* const out : to) static_cast<T*>(out)[i] = sum;
  }
}

}  // namespace belfry::test
