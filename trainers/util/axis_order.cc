#include "belfry/trainers/util/axis_order.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace belfry {
namespace {

// Numbers of elements between neighbours along each axis.
std::vector<std::size_t> strides_of(const Shape& shape) {
  std::vector<std::size_t> strides(shape.rank(), 1);
  for (std::size_t axis = shape.rank(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  return strides;
}

// Moves `index` to the next row of `shape`, in row-major order: the last axis stays at 0.
void advance_row(std::vector<std::int64_t>& index, const Shape& shape) {
  for (std::size_t axis = shape.rank() - 1; axis-- > 0;) {
    if (++index[axis] < shape[axis]) return;
    index[axis] = 0;
  }
}

// `count` elements, which are `stride` elements apart in `from`. A constant size is a plain copy.
template <std::size_t kSize>
void gather_row(std::byte* to, const std::byte* from, std::size_t count, std::size_t stride) {
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(to + i * kSize, from + i * stride * kSize, kSize);
}

void copy_row(std::byte* to, const std::byte* from, std::size_t count, std::size_t stride,
              std::size_t element_size) {
  if (stride == 1) return void(std::memcpy(to, from, count * element_size));
  switch (element_size) {
    case 1: return gather_row<1>(to, from, count, stride);
    case 2: return gather_row<2>(to, from, count, stride);
    case 4: return gather_row<4>(to, from, count, stride);
    default: return gather_row<8>(to, from, count, stride);
  }
}

}  // namespace

AxisOrder inverse(const AxisOrder& order) {
  AxisOrder back(order.size());
  for (std::size_t axis = 0; axis < order.size(); ++axis) back[order[axis]] = axis;
  return back;
}

Shape permuted(const Shape& shape, const AxisOrder& order) {
  if (order.empty()) return shape;
  std::vector<std::int64_t> dims;
  for (const std::size_t axis : order) dims.push_back(shape[axis]);
  return Shape(std::move(dims));
}

std::vector<std::byte> permuted(std::span<const std::byte> values, const Shape& shape,
                                std::size_t element_size, const AxisOrder& order) {
  if (order.empty() || values.empty()) return {values.begin(), values.end()};
  std::vector<std::byte> result(values.size());
  const std::vector<std::size_t> strides = strides_of(shape);
  const Shape wanted = permuted(shape, order);
  const auto row = static_cast<std::size_t>(wanted.back());
  std::vector<std::int64_t> index(order.size(), 0);
  for (std::size_t at = 0; at < result.size(); at += row * element_size) {
    std::size_t from = 0;
    for (std::size_t axis = 0; axis + 1 < order.size(); ++axis)
      from += static_cast<std::size_t>(index[axis]) * strides[order[axis]];
    copy_row(&result[at], &values[from * element_size], row, strides[order.back()], element_size);
    advance_row(index, wanted);
  }
  return result;
}

}  // namespace belfry
