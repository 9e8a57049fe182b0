#include "belfry/framework/plan/expansion.h"

#include <utility>

namespace belfry {

int Expansion::add_divided(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types,
                           Sharding sharding) {
  PlanNode node{&op, node_.node, std::move(inputs), {}, std::move(types), {}};
  node.devices.assign(std::max<std::size_t>(1, node.types.size()), node_.device());
  if (sharding.outputs[0].kind == Division::Kind::kRows) node.rows = sharding.outputs[0].rows;
  node.sharding = std::move(sharding);
  return add_(std::move(node));
}

int Expansion::add_once(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types) {
  PlanNode node{&op, node_.node, std::move(inputs), {}, std::move(types), {}};
  node.devices.assign(std::max<std::size_t>(1, node.types.size()), node_.device());
  return add_(std::move(node));
}

std::vector<Value> Expansion::shards_of(int node, int outputs) const {
  std::vector<Value> values;
  for (int shard = 0; shard < shards_; ++shard)
    for (int i = 0; i < outputs; ++i) values.push_back({node, i, shard});
  return values;
}

}  // namespace belfry
