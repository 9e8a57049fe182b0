// Floating-point values of one type in another, as bytes.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "belfry/framework/base/dtype.h"

namespace belfry {

// Whether each value of a type is one of another type, too.
bool widens(DType from, DType to);

// The values, rounded to nearest if `to` is narrower. Both types are equal or floating.
std::vector<std::byte> converted(std::span<const std::byte> values, DType from, DType to);

}  // namespace belfry
