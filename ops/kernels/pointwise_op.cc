#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry {

OutputTypes floating_pointwise(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  Shape shape = c.input(0);
  for (std::size_t i = 1; i < c.inputs(); ++i) {
    c.require(shape.compatible(c.input(i)), "inputs 0 and ", i, " have shapes ", c.input(0),
              " and ", c.input(i));
    for (std::size_t axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == kUnknownSize) shape[axis] = c.input(i)[axis];
  }
  return {shape};
}

}  // namespace belfry
