#include "belfry/ops/shapes/rearrange.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/shapes/map_axes.h"

namespace belfry {
namespace {

// The maps that leave x as it is.
std::vector<AxisMap> identity_maps(Output x) { return std::vector<AxisMap>(x.shape().rank()); }

AxisMap& map_of(std::vector<AxisMap>& maps, int axis, const char* what, Output x, At at) {
  const auto rank = static_cast<int>(maps.size());
  require(axis >= -rank && axis < rank, what, " (", at.site, "): ", x.type(), " has no axis ",
          axis);
  return maps[from_end(axis, maps.size())];
}

}  // namespace

Output flip(Output x, const std::vector<int>& axes, At at) {
  std::vector<AxisMap> maps = identity_maps(x);
  if (axes.empty()) std::ranges::fill(maps, AxisMap{.step = -1});
  for (const int axis : axes) {
    AxisMap& map = map_of(maps, axis, "flip", x, at);
    require(map.is_identity(), "flip (", at.site, "): axis ", axis, " is there twice");
    map.step = -1;
  }
  return map_axes(x, std::move(maps), 0, at);
}

Output roll(Output x, std::int64_t shift, int axis, At at) {
  return roll(x, std::vector{shift}, std::vector{axis}, at);
}

Output roll(Output x, const std::vector<std::int64_t>& shifts, const std::vector<int>& axes,
            At at) {
  require(shifts.size() == axes.size(), "roll (", at.site, "): ", shifts.size(), " shifts for ",
          axes.size(), " axes");
  std::vector<AxisMap> maps = identity_maps(x);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    AxisMap& map = map_of(maps, axes[i], "roll", x, at);
    const std::int64_t shift = shifts[i] + (map.is_identity() ? 0 : map.a);
    map = shift == 0 ? AxisMap() : AxisMap{.kind = AxisMap::Kind::kWrap, .a = shift, .b = -shift};
  }
  return map_axes(x, std::move(maps), 0, at);
}

Output tile(Output x, std::vector<std::int64_t> times, At at) {
  const SiteScope site(x.graph(), at.site);
  require(std::ranges::all_of(times, [](std::int64_t n) { return n >= 0; }), "tile (", at.site,
          "): a number of times is negative");
  while (x.shape().rank() < times.size()) x = expand_dims(x, 0);
  times.insert(times.begin(), x.shape().rank() - times.size(), 1);
  std::vector<AxisMap> maps = identity_maps(x);
  for (std::size_t axis = 0; axis < times.size(); ++axis)
    if (times[axis] != 1) maps[axis] = {.kind = AxisMap::Kind::kTimes, .step = times[axis]};
  return map_axes(x, std::move(maps), 0, at);
}

Output repeat_elements(Output x, std::int64_t times, int axis, At at) {
  require(times >= 0, "repeat_elements (", at.site, "): ", times, " times is negative");
  std::vector<AxisMap> maps = identity_maps(x);
  AxisMap& map = map_of(maps, axis, "repeat_elements", x, at);
  if (times != 1) map = {.kind = AxisMap::Kind::kEach, .step = times};
  return map_axes(x, std::move(maps), 0, at);
}

Output strided_slice(Output x, const std::vector<AxisSlice>& slices, At at) {
  std::vector<AxisMap> maps = identity_maps(x);
  require(slices.size() <= maps.size(), "strided_slice (", at.site, "): ", slices.size(),
          " slices for ", x.type());
  for (std::size_t axis = 0; axis < slices.size(); ++axis)
    maps[axis] = {.a = slices[axis].begin.value_or(AxisMap::kOpen),
                  .b = slices[axis].end.value_or(AxisMap::kOpen),
                  .step = slices[axis].step};
  return map_axes(x, std::move(maps), 0, at);
}

}  // namespace belfry
