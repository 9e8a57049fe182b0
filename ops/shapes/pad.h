// Padding: a tensor with a border.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// What the border shows. As in NumPy; PyTorch and TensorFlow have other names for some.
enum class PadMode : std::uint8_t {
  kConstant,
  kReflect,  // x mirrored at its edge, which is not repeated
  kEdge,     // the nearest element ("replicate" in PyTorch)
  kWrap,     // x repeated ("circular" in PyTorch)
};

struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0;  // of kConstant
};

// Elements before and after an axis.
struct AxisPads {
  std::int64_t before = 0, after = 0;
};

// One pair per axis: pad(images, {{}, {1, 1}, {1, 1}, {}}). Throws InvalidArgument for negative
// sizes, and for mirrors larger than x. The gradient of an element is the sum of those of its
// copies.
Output pad(Output x, const std::vector<AxisPads>& pads, PadOptions options = {}, At at = {});

}  // namespace belfry
