// What NCCL may make of the tensors of all ranks, for what stands in for it.
#pragma once
#include <cstddef>
#include <span>

#include "belfry/framework/kernels/half_bits.h"

namespace belfry::test {

// From the last rank to the first, which is no tree, rounded to T at every addition; divided once.
// Each of `to` may be the same as one of `from`.
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
