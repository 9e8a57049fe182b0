// How an op replaces a node whose batch is cut into shards by several nodes. Some run once per
// shard, and some run once, on the results of the shards.
#pragma once
#include <functional>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

class Expansion {
 public:
  // `add` appends a node to the plan, and `sum` a node that adds up the shards of a partial sum.
  // `by_rows` says whether shards may take their own rows of a tensor.
  Expansion(const PlanGraph& plan, const PlanNode& node, const Sharding& sharding,
            std::function<NodeIndex(PlanNode)> add, std::function<Value(Value)> sum,
            std::function<bool(Value)> by_rows)
      : plan_(plan),
        node_(node),
        sharding_(sharding),
        add_(std::move(add)),
        sum_(std::move(sum)),
        by_rows_(std::move(by_rows)) {}

  const Node& node() const { return *node_.node; }
  std::size_t inputs() const { return node_.inputs.size(); }
  Value input(std::size_t i) const { return node_.inputs[i]; }
  const TensorType& output(std::size_t i) const { return node_.types[i]; }
  // The division of an output by the rule of the op.
  Division division(std::size_t output) const { return sharding_.outputs[output]; }

  // Adds a node that runs once per shard. `own` and `outputs` as in Sharding. Kernels find the
  // options of the replaced node.
  NodeIndex add_divided(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types,
                        Sharding sharding);
  // Adds a node that runs once. Its inputs are whole, or tensors of one shard (shards_of()).
  NodeIndex add_once(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types);
  // Adds nodes with input x, and `others`, which all shards share, on the device of x. If x is cut
  // by rows, there is one node per shard, and each makes a part of the outputs. Returns all
  // outputs, shard by shard.
  std::vector<Value> add_beside(const Op& op, Value x, std::vector<Value> others,
                                std::vector<TensorType> types);
  // Outputs 0 to `outputs` - 1 of a divided node, shard by shard.
  std::vector<Value> shards_of(NodeIndex node, int outputs) const;
  // The sum of the tensors of all shards.
  Value sum(Value partial) const { return sum_(partial); }

  // The replacement of each output.
  std::vector<Value> result;

 private:
  NodeIndex add(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types, int device,
                Sharding sharding = {});

  const PlanGraph& plan_;
  const PlanNode& node_;
  const Sharding& sharding_;
  std::function<NodeIndex(PlanNode)> add_;
  std::function<Value(Value)> sum_;
  std::function<bool(Value)> by_rows_;
};

}  // namespace belfry
