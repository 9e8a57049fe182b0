// Nodes that gain inputs after they were made.
#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

Node& Graph::add_open(const Op& op, std::span<const Output> inputs, At at, NodeOptions options) {
  Node& node = add(op, inputs, at, std::move(options));
  open_.push_back(&node);
  return node;
}

void Graph::extend(Node& open, std::span<const Output> inputs) {
  require<InternalError>(std::ranges::find(open_, &open) != open_.end(), open.describe(),
                         ": takes no more inputs");
  std::vector<Output> all(open.inputs_.begin(), open.inputs_.end());
  const std::size_t before = all.size();
  all.insert(all.end(), inputs.begin(), inputs.end());
  check(open.op(), all, open.describe());
  open.inputs_.assign(all.begin(), all.end());
  try {
    require<InternalError>(std::ranges::equal(infer(open), open.types_), open.describe(),
                           ": its outputs depend on the number of its inputs");
  } catch (...) {
    open.inputs_.resize(before);
    throw;
  }
  ++version_;
}

namespace {

// For each node from `first` on, the number of `open` nodes on the longest path to it; -1 for nodes
// that wait for themselves.
std::vector<int> levels(const Graph& graph, std::size_t first, const std::vector<Node*>& open) {
  const std::size_t count = graph.size() - first;
  std::vector<int> level(count, -1), missing(count), so_far(count);
  std::vector<std::vector<std::size_t>> consumers(count);
  const auto each_source = [&](const Node& node, auto f) {
    const auto offer = [&](const Node& source) {
      if (static_cast<std::size_t>(source.id()) >= first)
        f(static_cast<std::size_t>(source.id()) - first);
    };
    for (const Output& input : node.inputs()) offer(input.node());
    for (const Node* before : node.control_inputs()) offer(*before);
  };
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < count; ++i) {
    each_source(graph.node(first + i), [&](std::size_t source) {
      consumers[source].push_back(i);
      ++missing[i];
    });
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const std::size_t i = ready.back();
    ready.pop_back();
    level[i] = so_far[i] + (std::ranges::find(open, &graph.node(first + i)) != open.end());
    for (const std::size_t consumer : consumers[i]) {
      so_far[consumer] = std::max(so_far[consumer], level[i]);
      if (--missing[consumer] == 0) ready.push_back(consumer);
    }
  }
  return level;
}

}  // namespace

void Graph::require_closed() const {
  if (const Node* const node = open())
    throw InvalidArgument(
        cat(node->describe(),
            ": not all towers are built that take part in it; run after replicate()"));
}

void Graph::close(std::size_t first) {
  if (open_.empty()) return;
  for (const Node* node : open_)
    require<InternalError>(static_cast<std::size_t>(node->id()) >= first, node->describe(),
                           ": was made before those that are to be ordered");
  const std::vector<int> level = levels(*this, first, open_);
  const auto level_of = [&](const auto& node) {
    return level[static_cast<std::size_t>(node->id()) - first];
  };
  std::vector<std::string> stuck;
  for (const Node* node : open_)
    if (level_of(node) < 0) stuck.push_back(node->describe());
  require(stuck.empty(),
          "these wait for each other, as towers come to them in other orders: ", join(stuck));
  std::stable_sort(nodes_.begin() + static_cast<std::ptrdiff_t>(first), nodes_.end(),
                   [&](const auto& a, const auto& b) { return level_of(a) < level_of(b); });
  for (std::size_t id = first; id < nodes_.size(); ++id) nodes_[id]->id_ = static_cast<int>(id);
  open_.clear();
  ++version_;
}

}  // namespace belfry
