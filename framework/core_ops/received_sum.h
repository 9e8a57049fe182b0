// The sum of a row of this process and one that another process sends.
#pragma once
#include <cstddef>
#include <span>

#include "belfry/framework/base/dtype.h"

namespace belfry {

// Adds bytes of the other row as they arrive (GroupMessage::use). `sum` may be `own`.
struct ReceivedSum {
  std::span<const std::byte> own;
  std::span<std::byte> sum;
  bool own_first;  // in the canonical tree
  int divisor;     // of the sum
  DType dtype;     // f32 or f64

  void operator()(std::size_t from, std::span<const std::byte> some) const;
};

}  // namespace belfry
