#include <algorithm>
#include <map>
#include <unordered_map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class Pruner {
 public:
  Pruner(PlanGraph& plan, std::span<const Fetch> fetches, std::span<const FeedType> feeds)
      : plan_(plan), fetches_(fetches), feeds_(feeds) {}

  void run() {
    const Graph& graph = check_arguments();
    const std::vector<char> needed = mark(graph);
    kept_.resize(graph.size());
    plan_.nodes.reserve(at(std::ranges::count(needed, true)) + feeds_.size() + fetches_.size());
    for (std::size_t id = 0; id < needed.size(); ++id)
      if (needed[id]) keep(graph.node(id));
    for (std::size_t i = 0; i < fetches_.size(); ++i) add_fetch(static_cast<int>(i));
  }

 private:
  const Graph& check_arguments() {
    require(!fetches_.empty(), "nothing to run: give at least one fetch");
    for (const Fetch& fetch : fetches_)
      require(!fetch.output || !fetch.output.node().is_variable(), fetch.node->describe(),
              ": a variable's storage cannot be fetched; fetch the Variable");
    const Graph& graph = fetches_[0].node->graph();
    graph.require_closed();
    for (std::size_t i = 0; i < feeds_.size(); ++i) {
      const FeedType& feed = feeds_[i];
      const Node& node = feed.where.node();
      require(!node.is_variable(), node.describe(),
              ": a variable's storage cannot be fed; feed its "
              "value, or use Session::write");
      require(feed.shape.is_fully_known() && feed.shape.compatible(feed.where.shape()),
              node.describe(), ": fed with shape ", feed.shape, ", but it has ",
              feed.where.shape());
      const bool fresh = fed_.emplace(feed.where, static_cast<int>(i)).second;
      require(fresh, node.describe(), ": fed twice");
    }
    return graph;
  }

  // Nodes whose outputs or effects are needed. The walk stops at feeds.
  std::vector<char> mark(const Graph& graph) const {
    std::vector<char> needed(graph.size());
    std::vector<const Node*> open;
    const auto want = [&](const Node& node) {
      char& mark = needed[at(node.id())];
      if (!mark) open.push_back(&node);
      mark = true;
    };
    const auto want_value = [&](const Output& output) {
      if (!fed_.contains(output)) want(output.node());
    };
    for (const Fetch& fetch : fetches_) {
      if (fetch.output)
        want_value(fetch.output);
      else
        want(*fetch.node);
    }
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Output& input : node.inputs()) want_value(input);
      for (const Node* before : node.control_inputs()) want(*before);
    }
    return needed;
  }

  void keep(const Node& node) {
    if (&node.op() == &kPlaceholder) {  // wanted for itself, not for its value
      require(fed_.contains(node.output()), node.describe(), ": needs a value; feed it");
      kept_[at(node.id())] = value_of(node.output()).node;
      return;
    }
    PlanNode kept{&node.op(), &node, {}, {}, {}, {}};
    kept.inputs.reserve(node.inputs().size());
    for (const Output& input : node.inputs()) kept.inputs.push_back(value_of(input));
    for (const Node* before : node.control_inputs()) kept.after.push_back(kept_[at(before->id())]);
    kept.types = types_of(kept);
    if (node.is_variable()) plan_.variables.push_back(&node);
    if (node.op().writes > 0) plan_.writes = true;
    kept_[at(node.id())] = plan_.nodes.add(std::move(kept));
  }

  // Real types: the graph's, if it knew the real types of the inputs; otherwise those that the op
  // infers.
  std::vector<TensorType> types_of(const PlanNode& kept) const {
    const Node& node = *kept.node;
    const auto is_known = [&](const Output& of_graph, const Value& value) {
      return of_graph.type() == plan_.type(value);
    };
    if (!std::ranges::equal(node.inputs(), kept.inputs, is_known))
      return infer_types(node, plan_.input_types(kept));
    std::vector<TensorType> types;
    types.reserve(node.outputs());
    for (std::size_t i = 0; i < node.outputs(); ++i) types.push_back(node.output_type(i));
    return types;
  }

  // Feeds become separate storage nodes when first used.
  Value value_of(const Output& output) {
    const auto fed = fed_.find(output);
    if (fed == fed_.end()) return {kept_[at(output.node().id())], output.index()};
    const auto [made, fresh] = feed_nodes_.try_emplace(fed->second);
    if (fresh) {
      PlanNode node{&kPlaceholder, &output.node(), {}, {}, {}, {}};
      node.types = {{feeds_[at(fed->second)].shape, output.dtype()}};
      node.role = PlanNode::Fed{fed->second};
      made->second = plan_.nodes.add(std::move(node));
    }
    return {made->second, 0};
  }

  void add_fetch(int i) {
    const Fetch& fetch = fetches_[at(i)];
    plan_.fetches.push_back(fetch.output);
    if (!fetch.output) return;
    PlanNode copy{&kCopy, &fetch.output.node(), {value_of(fetch.output)}, {}, {}, {}};
    copy.types = {plan_.type(copy.inputs[0])};
    copy.role = PlanNode::Fetched{i};
    plan_.nodes.push_back(std::move(copy));
  }

  PlanGraph& plan_;
  std::span<const Fetch> fetches_;
  std::span<const FeedType> feeds_;
  std::unordered_map<Output, int> fed_;  // output -> feed
  std::vector<NodeIndex> kept_;          // by id of the graph's node
  std::map<int, NodeIndex> feed_nodes_;  // feed -> plan node
};

}  // namespace

void prune(PlanGraph& plan, std::span<const Fetch> fetches, std::span<const FeedType> feeds) {
  plan.feeds.assign(feeds.begin(), feeds.end());
  Pruner(plan, fetches, feeds).run();
}

}  // namespace belfry
