#include "belfry/framework/plan/expansion.h"

#include <utility>

namespace belfry {

NodeIndex Expansion::add(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types,
                         int device, Sharding sharding) {
  PlanNode node{&op, node_.node, std::move(inputs), {}, std::move(types), {}};
  node.devices.assign(std::max<std::size_t>(1, node.types.size()), device);
  if (sharding.divides() && sharding.outputs[0].kind == Division::Kind::kRows)
    node.rows = sharding.outputs[0].rows;
  node.sharding = std::move(sharding);
  return add_(std::move(node));
}

NodeIndex Expansion::add_divided(const Op& op, std::vector<Value> inputs,
                                 std::vector<TensorType> types, Sharding sharding) {
  return add(op, std::move(inputs), std::move(types), node_.device(), std::move(sharding));
}

NodeIndex Expansion::add_once(const Op& op, std::vector<Value> inputs,
                              std::vector<TensorType> types) {
  return add(op, std::move(inputs), std::move(types), node_.device());
}

std::vector<Value> Expansion::add_beside(const Op& op, Value x, std::vector<Value> others,
                                         std::vector<TensorType> types) {
  std::vector<bool> own(1 + others.size());
  own[0] = true;
  others.insert(others.begin(), x);
  const auto outputs = static_cast<int>(types.size());
  Sharding sharding;
  if (by_rows_(x))
    sharding = {.outputs = std::vector(types.size(), Division::partial()), .own = own};
  const bool divides = sharding.divides();
  const NodeIndex made =
      add(op, std::move(others), std::move(types), plan_.device(x), std::move(sharding));
  if (divides) return shards_of(made, outputs);
  std::vector<Value> values;
  for (int i = 0; i < outputs; ++i) values.push_back({made, i});
  return values;
}

std::vector<Value> Expansion::shards_of(NodeIndex node, int outputs) const {
  std::vector<Value> values;
  for (int shard = 0; shard < plan_.shards_per_device; ++shard)
    for (int i = 0; i < outputs; ++i) values.push_back({node, i, shard});
  return values;
}

}  // namespace belfry
