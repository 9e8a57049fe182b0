#include "belfry/trainers/commands/weight_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/find_word.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"belfry", "torch"};
constexpr std::string_view kWeight = "W";

bool is_weight(const std::string& name, const Manifest::Entry& entry) {
  const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
  return last == kWeight && entry.role == VariableRole::kWeight;
}

// Whether the tensor is a weight, or a slot of one.
bool is_of_weight(const Manifest& manifest, const std::string& name, const Manifest::Entry& entry) {
  if (is_weight(name, entry)) return true;
  for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    const auto owner = manifest.tensors.find(name.substr(0, slash));
    if (owner != manifest.tensors.end() && is_weight(owner->first, owner->second))
      return owner->second.shape == entry.shape;
  }
  return false;
}

// Numbers of elements between neighbours along each axis.
std::vector<std::size_t> strides_of(const Shape& shape) {
  std::vector<std::size_t> strides(shape.rank(), 1);
  for (std::size_t axis = shape.rank(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  return strides;
}

// Moves `index` to the next element of `shape`, in row-major order.
void advance(std::vector<std::int64_t>& index, const Shape& shape) {
  for (std::size_t axis = shape.rank(); axis-- > 0;) {
    if (++index[axis] < shape[axis]) return;
    index[axis] = 0;
  }
}

}  // namespace

std::string_view name_of(WeightLayout layout) { return kNames[static_cast<std::size_t>(layout)]; }

WeightLayout find_weight_layout(std::string_view name) {
  return find_word<WeightLayout>(kNames, name, "layout");
}

AxisOrder axis_order(const Manifest& manifest, const std::string& name, WeightLayout layout) {
  const Manifest::Entry& entry = manifest.tensors.at(name);
  const std::size_t rank = entry.shape.rank();
  if (layout == WeightLayout::kBelfry || rank < 2 || rank > 4) return {};
  if (!is_of_weight(manifest, name, entry)) return {};
  if (rank == 2) return {1, 0};
  return rank == 3 ? AxisOrder{0, 2, 1} : AxisOrder{0, 3, 1, 2};
}

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
  std::vector<std::byte> result(values.begin(), values.end());
  if (order.empty()) return result;
  const std::vector<std::size_t> strides = strides_of(shape);
  const Shape wanted = permuted(shape, order);
  std::vector<std::int64_t> index(order.size(), 0);
  for (std::size_t at = 0; at < result.size(); at += element_size) {
    std::size_t from = 0;
    for (std::size_t axis = 0; axis < order.size(); ++axis)
      from += static_cast<std::size_t>(index[axis]) * strides[order[axis]];
    std::memcpy(&result[at], &values[from * element_size], element_size);
    advance(index, wanted);
  }
  return result;
}

}  // namespace belfry
