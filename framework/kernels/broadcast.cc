#include "belfry/framework/kernels/broadcast.h"

#include <algorithm>

namespace belfry::kernels {

Broadcast::Broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  const auto size_from_end = [](std::span<const std::int64_t> dims, std::size_t i) {
    return i < dims.size() ? dims[dims.size() - 1 - i] : 1;
  };
  // Merged dimensions from the innermost out; a stride of 0 repeats the operand.
  std::vector<Dimension> dims;
  std::int64_t a_stride = 1;
  std::int64_t b_stride = 1;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::int64_t a_size = size_from_end(a, i);
    const std::int64_t b_size = size_from_end(b, i);
    const std::int64_t size = a_size == 1 ? b_size : a_size;
    if (size == 1) continue;
    if (size == 0) return;  // there is nothing to line up
    const Dimension d{size, a_size == 1 ? 0 : a_stride, b_size == 1 ? 0 : b_stride};
    a_stride *= a_size;
    b_stride *= b_size;
    if (!dims.empty() && (d.a_stride == 0) == (dims.back().a_stride == 0) &&
        (d.b_stride == 0) == (dims.back().b_stride == 0)) {
      dims.back().size *= size;
    } else {
      dims.push_back(d);
    }
  }
  if (dims.empty()) return;
  inner = dims[0].size;
  a_runs = dims[0].a_stride != 0;
  b_runs = dims[0].b_stride != 0;
  outer_.assign(dims.begin() + 1, dims.end());
  if (outer_.size() == 1 && a_runs && b_runs) {
    kind = outer_[0].b_stride == 0 ? Kind::kRowRight : Kind::kRowLeft;
  }
}

Broadcast::Offsets Broadcast::offsets(std::int64_t row) const {
  Offsets at{0, 0};
  for (const Dimension& d : outer_) {
    const std::int64_t next = row / d.size;
    const std::int64_t index = row - next * d.size;
    at.a += index * d.a_stride;
    at.b += index * d.b_stride;
    row = next;
  }
  return at;
}

}  // namespace belfry::kernels
