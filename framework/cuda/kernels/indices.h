// A tensor of indices, i32 or i64: labels of classes, ids of rows.
#pragma once
#include "belfry/framework/base/dtype.h"
#include "belfry/framework/cuda/kernels/fault.h"

namespace belfry::cuda {

struct Indices {
  const void* at;
  bool wide;  // i64, not i32
  Fault* fault;

  BELFRY_HD std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(at)[i] : static_cast<const std::int32_t*>(at)[i];
  }
  // Index i if it is in [0, limit); else records it and returns -1.
  BELFRY_HD std::int64_t below(std::int64_t limit, std::int64_t i) const {
    const std::int64_t index = (*this)[i];
    if (index >= 0 && index < limit) return index;
    note(fault, i, index);
    return -1;
  }
};

}  // namespace belfry::cuda
