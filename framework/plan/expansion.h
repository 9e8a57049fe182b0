// How an op puts several nodes of a plan in place of one whose batch is cut into shards. Some run
// once per shard, and some run once, on what the shards have left.
#pragma once
#include <functional>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

class Expansion {
 public:
  // `add` appends a node to the plan, and `sum` one that adds up the shards of a partial sum;
  // `by_rows` is whether shards may take rows of a tensor of their own.
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
  // By the rule of the op.
  Division division(std::size_t output) const { return sharding_.outputs[output]; }

  // A node that runs once per shard. `own` and `outputs` as in Sharding. Kernels find the options
  // of the node that is replaced.
  NodeIndex add_divided(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types,
                        Sharding sharding);
  // A node that runs once. Its inputs lie whole, or are those of a shard (shards_of()).
  NodeIndex add_once(const Op& op, std::vector<Value> inputs, std::vector<TensorType> types);
  // A node of input x, and others that are one for all shards, on the device of x: one per shard
  // where x is cut by rows, each of which has a part of the outputs. Returns all outputs, shard by
  // shard.
  std::vector<Value> add_beside(const Op& op, Value x, std::vector<Value> others,
                                std::vector<TensorType> types);
  // Outputs 0 to `outputs` - 1 of a divided node, shard by shard.
  std::vector<Value> shards_of(NodeIndex node, int outputs) const;
  // The sum of what the shards have.
  Value sum(Value partial) const { return sum_(partial); }

  // What takes the place of each output.
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
