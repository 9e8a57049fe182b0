// Copies of boxes between dense tensors, for slice, split, concat and padding.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// A box of `extent` elements per dimension, at one offset in the source and another in the
// destination.
class BoxCopy {
 public:
  struct Dim {
    std::int64_t extent;
    std::int64_t from, to;  // strides in bytes
  };

  // Offsets may be empty for zeros. All shapes have the rank of `extent`.
  BoxCopy(const Shape& extent, const Shape& source, const std::vector<std::int64_t>& source_offset,
          const Shape& destination, const std::vector<std::int64_t>& destination_offset,
          DType dtype)
      : rows_(extent.rank() == 0 ? 1 : extent[0]) {
    auto unit = static_cast<std::int64_t>(size_of(dtype));
    run_ = unit;
    std::int64_t from_stride = unit, to_stride = unit;
    for (std::size_t axis = extent.rank(); axis-- > 0;) {
      add_outer({extent[axis], from_stride, to_stride}, axis == 0);
      if (!source_offset.empty()) from_ += source_offset[axis] * from_stride;
      if (!destination_offset.empty()) to_ += destination_offset[axis] * to_stride;
      from_stride *= source[axis];
      to_stride *= destination[axis];
    }
    if (extent.rank() == 0) add_outer({1, unit, unit}, true);
  }

  // Copies rows [begin, end) of the box's dimension 0; rows outside of the box are left out.
  void operator()(const void* source, void* destination, std::int64_t begin,
                  std::int64_t end) const {
    begin = begin < 0 ? 0 : begin;
    end = end > rows_ ? rows_ : end;
    if (begin >= end) return;
    const Dim& row = dims_.back();
    const auto* from = static_cast<const char*>(source) + from_ + begin * row.from;
    auto* to = static_cast<char*>(destination) + to_ + begin * row.to;
    if (dims_.size() == 1 && row.from == run_ && row.to == run_) {
      std::memcpy(to, from, static_cast<std::size_t>((end - begin) * run_));
    } else {
      for (; begin < end; ++begin, from += row.from, to += row.to) copy(dims_.size() - 1, from, to);
    }
  }

  // The parts of the copy: dense pieces of run() bytes, along dims() from the innermost out,
  // starting at bytes from() and to().
  std::int64_t run() const { return run_; }
  const std::vector<Dim>& dims() const { return dims_; }
  std::int64_t from() const { return from_; }
  std::int64_t to() const { return to_; }

 private:
  // Dimension 0 stays separate, because it is divided among calls; the others join where both sides
  // are dense.
  void add_outer(Dim dim, bool first) {
    if (!first && dims_.empty() && dim.from == run_ && dim.to == run_) {
      run_ *= dim.extent;
    } else {
      dims_.push_back(dim);
    }
  }

  void copy(std::size_t dims, const char* from, char* to) const {
    if (dims == 0) {
      std::memcpy(to, from, static_cast<std::size_t>(run_));
      return;
    }
    const Dim& dim = dims_[dims - 1];
    for (std::int64_t i = 0; i < dim.extent; ++i)
      copy(dims - 1, from + i * dim.from, to + i * dim.to);
  }

  std::int64_t rows_;
  std::int64_t run_;       // bytes of the innermost dense piece
  std::vector<Dim> dims_;  // innermost first; the last is dimension 0
  std::int64_t from_ = 0, to_ = 0;
};

}  // namespace belfry
