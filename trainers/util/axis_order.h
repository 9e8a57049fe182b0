// Permutes the axes of dense tensors, as bytes.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "belfry/framework/base/shape.h"

namespace belfry {

// Axis i of the result is axis order[i] of the input. None: all stay where they are.
using AxisOrder = std::vector<std::size_t>;

AxisOrder inverse(const AxisOrder& order);

Shape permuted(const Shape& shape, const AxisOrder& order);
// Permutes row-major elements of `element_size` bytes each.
std::vector<std::byte> permuted(std::span<const std::byte> values, const Shape& shape,
                                std::size_t element_size, const AxisOrder& order);

}  // namespace belfry
