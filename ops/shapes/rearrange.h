// Elements in another order, or several times: flip, roll, tile, repeat_elements, strided_slice.
// All are MapAxes (map_axes.h). Axes may be negative (from the last).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// The elements along these axes in reverse; along all axes if none are given.
Output flip(Output x, const std::vector<int>& axes = {}, At at = {});

// Element i moves to i + shift along the axis; those that leave at the end enter at the beginning.
Output roll(Output x, std::int64_t shift, int axis, At at = {});
Output roll(Output x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes,
            At at = {});

// x repeated as a whole, `times[axis]` times along each axis. If there are fewer or more of them
// than axes, ones are put before the shorter list, as in NumPy.
Output tile(Output x, std::vector<std::int64_t> times, At at = {});

// Each element `times` times along an axis, one after the other (numpy.repeat,
// torch.repeat_interleave).
Output repeat_elements(Output x, std::int64_t times, int axis, At at = {});

// As begin : end : step in Python: without a begin or end from the first or to the last element;
// negative ones count from the end; those out of range are moved into it.
struct AxisSlice {
  std::optional<std::int64_t> begin = {}, end = {};
  std::int64_t step = 1;
};

// One slice per axis, of the first axes; the others are kept whole. For example,
// strided_slice(x, {{}, {.step = 2}, {.begin = -3}}) keeps axis 0, and takes every second index of
// axis 1 and the last three of axis 2.
Output strided_slice(Output x, const std::vector<AxisSlice>& slices, At at = {});

}  // namespace belfry
