#include "belfry/ops/fusing.h"

#include "belfry/ops/cast.h"

namespace belfry {

Value before_cast(const Surroundings& around, Value value) {
  const NodeIndex cast = around.on_gpu() ? around.maker(value, kCast) : NodeIndex();
  if (!cast || around.type(value).dtype != DType::kF32) return value;
  const Value from = around.node(cast).inputs[0];
  return is_half(around.type(from).dtype) ? from : value;
}

NodeIndex cast_to(const Surroundings& around, Value value, DType dtype) {
  const NodeIndex cast = around.only_user(value, kCast);
  return cast && around.type({cast, 0}).dtype == dtype ? cast : NodeIndex();
}

SumOfTwo sum_of_two(const Surroundings& around, NodeIndex sum) {
  if (!sum || around.node(sum).inputs.size() != 2) return {};
  const Value left = around.node(sum).inputs[0], right = around.node(sum).inputs[1];
  const bool alike = left != right && around.type(left) == around.type(right);
  return alike ? SumOfTwo{sum, left, right} : SumOfTwo();
}

BiasSum bias_sum(const Surroundings& around, NodeIndex sum) {
  if (!sum) return {};
  BiasSum found{sum, around.node(sum).inputs[0], around.node(sum).inputs[1]};
  if (around.type(found.x).shape.rank() == 1) std::swap(found.x, found.bias);
  const Shape &x = around.type(found.x).shape, &bias = around.type(found.bias).shape;
  const bool fits =
      x.rank() >= 2 && bias.rank() == 1 && bias[0] == x.back() && x == around.type({sum, 0}).shape;
  return fits ? found : BiasSum();
}

}  // namespace belfry
