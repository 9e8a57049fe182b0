// Ids: integers that name rows, as i32 or i64.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/op.h"

namespace belfry {

// Requires that input 1 has ids.
inline void require_ids(const ShapeContext& c) {
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64, "the ids are ",
            name_of(c.dtype(1)), ", but must be i32 or i64");
}

// Calls f(Id{}) with the type of ids or labels.
template <class F>
auto visit_ids(DType dtype, const F& f) {
  return dtype == DType::kI32 ? f(std::int32_t{}) : f(std::int64_t{});
}

}  // namespace belfry
