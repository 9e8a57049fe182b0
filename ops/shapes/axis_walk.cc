#include <algorithm>

#include "belfry/ops/shapes/axis_walk_impl.h"

namespace belfry {
namespace {

using MapKind = AxisMap::Kind;

// As Python's slice.indices(n).
AxisWalk walk_of_slice(const AxisMap& map, std::int64_t n) {
  const std::int64_t low = map.step > 0 ? 0 : -1, high = map.step > 0 ? n : n - 1;
  const auto bound = [&](std::int64_t at, std::int64_t open) {
    return at == AxisMap::kOpen ? open : std::clamp(at < 0 ? at + n : at, low, high);
  };
  const std::int64_t begin = bound(map.a, map.step > 0 ? low : high);
  const std::int64_t end = bound(map.b, map.step > 0 ? high : low);
  const std::int64_t length = map.step > 0 ? end - begin : begin - end, step = std::abs(map.step);
  return {.kind = MapKind::kStrided,
          .n = n,
          .size = length <= 0 ? 0 : (length + step - 1) / step,
          .first = begin,
          .step = map.step};
}

AxisWalk walk_of(const AxisMap& map, std::int64_t n) {
  switch (map.kind) {
    case MapKind::kStrided: return walk_of_slice(map, n);
    case MapKind::kTimes: return {.kind = map.kind, .n = n, .size = n * map.step};
    case MapKind::kEach: return {.kind = map.kind, .n = n, .size = n * map.step, .step = map.step};
    case MapKind::kNearest:
    case MapKind::kNearestExact: return {.kind = map.kind, .n = n, .size = map.a};
    case MapKind::kWrap:
      return {.kind = map.kind,
              .n = n,
              .size = n + map.a + map.b,
              .first = n == 0 ? 0 : (map.a % n + n) % n};
    default: return {.kind = map.kind, .n = n, .size = n + map.a + map.b, .first = map.a};
  }
}

}  // namespace

std::int64_t mapped_size(const AxisMap& map, std::int64_t n) {
  if (map.kind == MapKind::kNearest || map.kind == MapKind::kNearestExact) return map.a;
  return n == kUnknownSize ? kUnknownSize : walk_of(map, n).size;
}

std::vector<AxisWalk> axis_walks(const std::vector<AxisMap>& maps, const Shape& x) {
  std::vector<AxisWalk> walks;
  for (std::size_t axis = 0; axis < maps.size(); ++axis) {
    const AxisWalk next = walk_of(maps[axis], x[axis]);
    if (axis > 1 && walks.back().is_identity() && next.is_identity()) {
      walks.back().n *= next.n;
      walks.back().size *= next.n;
    } else {
      walks.push_back(next);
    }
  }
  return walks;
}

}  // namespace belfry
