// How the axes of a tensor of another program become those of ours.
//   out in -> in out                a matrix is transposed
//   out in height width -> out height width in
//   (heads half two) in -> in (heads two half)
//                                   an axis in parentheses is made of several, the last of which
//                                   changes fastest
//   1 1 width -> width              an axis of length 1 comes or goes
// Every named axis is on both sides, once. Lengths follow from the tensor; where several axes in
// one pair of parentheses are unknown, all but one must be given.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/shape.h"

namespace belfry {

using AxisLengths = std::map<std::string, std::int64_t>;

class AxisPattern {
 public:
  // Throws InvalidArgument, saying what is wrong.
  AxisPattern(std::string_view theirs, std::string_view ours);

  // From ours to theirs.
  AxisPattern back() const;
  // The shape that a tensor of this shape gets. Throws InvalidArgument if the pattern does not fit.
  Shape arranged(const Shape& shape, const AxisLengths& given) const;
  // The values in their new order; of `element_size` bytes each.
  std::vector<std::byte> arranged(std::span<const std::byte> values, const Shape& shape,
                                  std::size_t element_size, const AxisLengths& given) const;
  // The place of an axis that stands alone, outside parentheses, on the left and on the right.
  std::optional<std::size_t> place_before(std::string_view axis) const;
  std::optional<std::size_t> place_after(std::string_view axis) const;
  // Axes of their side whose lengths no tensor shows: each is in parentheses with another one, and
  // neither is given.
  std::vector<std::string> unknown_lengths(const AxisLengths& given) const;
  std::string str() const;

 private:
  // An axis of a tensor: the names that it is made of; none for a length of 1.
  using Axis = std::vector<std::string>;
  using Side = std::vector<Axis>;

  AxisPattern() = default;
  static Side parse_side(std::string_view text);
  AxisLengths lengths_of(const Shape& shape, const AxisLengths& given) const;

  Side before_, after_;
};

}  // namespace belfry
