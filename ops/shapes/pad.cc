#include "belfry/ops/shapes/pad.h"

#include "belfry/framework/base/require.h"
#include "belfry/ops/shapes/map_axes.h"

namespace belfry {
namespace {

AxisMap::Kind kind_of(PadMode mode) {
  switch (mode) {
    case PadMode::kConstant: return AxisMap::Kind::kConstants;
    case PadMode::kReflect: return AxisMap::Kind::kReflect;
    case PadMode::kEdge: return AxisMap::Kind::kEdge;
    default: return AxisMap::Kind::kWrap;
  }
}

}  // namespace

Output pad(Output x, const std::vector<AxisPads>& pads, PadOptions options, At at) {
  require(pads.size() == x.shape().rank(), "pad (", at.site, "): ", pads.size(), " pairs for ",
          x.type(), ", which needs one per axis");
  std::vector<AxisMap> maps;
  for (const auto& [before, after] : pads) {
    require(before >= 0 && after >= 0, "pad (", at.site, "): ", before, " or ", after,
            " is negative; slice the tensor instead");
    maps.push_back(before == 0 && after == 0
                       ? AxisMap()
                       : AxisMap{.kind = kind_of(options.mode), .a = before, .b = after});
  }
  return map_axes(x, std::move(maps), options.value, at);
}

}  // namespace belfry
