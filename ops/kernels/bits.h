// Elements as opaque bits, for ops that only move them.
#pragma once
#include <cstdint>

#include "belfry/framework/base/dtype.h"

namespace belfry {

// Calls f(Bits{}) with an unsigned integer as wide as an element.
template <class F>
auto visit_bits(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

}  // namespace belfry
