#include "belfry/ops/shapes/stack.h"

#include "belfry/framework/base/require.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/split.h"

namespace belfry {

Output stack(std::span<const Output> xs, int axis, At at) {
  require(!xs.empty(), "stack (", at.site, "): nothing to stack");
  std::vector<Output> parts;
  for (const Output& x : xs) {
    require(x.shape().compatible(xs[0].shape()), "stack (", at.site, "): ", xs[0].type(), " and ",
            x.type(), " have different shapes");
    parts.push_back(expand_dims(x, axis, at.site));
  }
  return concat(parts, axis, at);
}

Output stack(std::initializer_list<Output> xs, int axis, At at) {
  return stack(std::span(xs.begin(), xs.size()), axis, at);
}

std::vector<Output> unstack(Output x, int axis, At at) {
  const auto rank = static_cast<int>(x.shape().rank());
  require(axis >= -rank && axis < rank, "unstack (", at.site, "): ", x.type(), " has no axis ",
          axis);
  const std::int64_t count = x.shape()[from_end(axis, x.shape().rank())];
  require(count > 0, "unstack (", at.site, "): the size of axis ", axis, " of ", x.type(),
          " must be known, and not 0");
  std::vector<Output> parts =
      count == 1 ? std::vector{x} : split(x, static_cast<int>(count), axis, at);
  for (Output& part : parts) part = squeeze(part, {axis}, at.site);
  return parts;
}

}  // namespace belfry
