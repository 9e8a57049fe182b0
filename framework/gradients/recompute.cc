#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradient_sum_impl.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/gradients/recompute_impl.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

// Of one component of a name; a star at the end of `pattern` stands for any characters.
bool fits(std::string_view pattern, std::string_view component) {
  if (!pattern.ends_with('*')) return pattern == component;
  return component.starts_with(pattern.substr(0, pattern.size() - 1));
}

// The part of a node's name that `pattern` names; "" if it is not below it.
std::string_view part_below(std::string_view name, std::string_view pattern) {
  std::size_t end = 0;
  for (const std::string_view component : split(pattern, '/')) {
    const std::size_t begin = end == 0 ? 0 : end + 1, slash = name.find('/', begin);
    if (slash == std::string_view::npos || !fits(component, name.substr(begin, slash - begin)))
      return {};
    end = slash;
  }
  return name.substr(0, end);
}

}  // namespace

std::string recompute_scope(std::string_view name, std::span<const std::string> scopes) {
  for (const std::string& scope : scopes)
    if (const std::string_view part = part_below(name, scope); !part.empty())
      return std::string(part);
  return "";
}

Recomputation::Recomputation(Graph& graph, std::span<const std::string> scopes)
    : graph_(graph), scopes_(scopes) {
  if (!scopes.empty()) note_uses();
}

void Recomputation::note_uses() {
  for (std::size_t id = 0; id < graph_.size(); ++id) {
    const Node& node = graph_.node(id);
    for (const Output& input : node.inputs())
      if (const std::string& scope = scope_of(input.node());
          !scope.empty() && scope != scope_of(node))
        leaving_.insert(input.key());
  }
}

const std::string& Recomputation::scope_of(const Node& node) {
  const auto [found, is_new] = scope_.emplace(&node, "");
  if (is_new && !node.origin().forward)
    found->second = recompute_scope(node.logical_name(), scopes_);
  return found->second;
}

// Reads stay, as do nodes that change something, that several towers or processes make together,
// and those that hold what they are made with.
bool Recomputation::is_copied(const Node& node, const std::string& scope) {
  const Op& op = node.op();
  if (scope_of(node) != scope || op.writes > 0 || op.collective || op.exchange || op.storage ||
      &op == &kRead || (node.inputs().empty() && !op.random))
    return false;
  return std::ranges::all_of(node.inputs(), [&](const Output& input) {
    return input.node().origin().call == node.origin().call;
  });
}

Node& Recomputation::again(Node& node, std::span<const Output> grads) {
  if (scopes_.empty()) return node;
  const std::string scope = scope_of(node);
  if (scope.empty() || !is_copied(node, scope)) return node;
  if (const auto made = copies_.find(&node); made != copies_.end()) return *made->second;
  std::vector<Output> inputs, backward;
  for (const Output& grad : grads)
    if (grad) backward.push_back(grad);
  for (const Output& input : node.inputs()) {
    const bool kept = leaving_.contains(input.key()) || !is_copied(input.node(), scope);
    inputs.push_back(
        kept ? input : again(input.node(), grads).output(static_cast<std::size_t>(input.index())));
    if (!kept) backward.clear();  // the copy of the input waits
  }
  const ControlDependencies wait(graph_, backward);
  const ForwardScope forward(graph_, node);
  const ColocateWith beside(node.output());
  Node& copy =
      graph_.add(node.op(), inputs, At(cat(node.logical_name(), "_again"), node.origin().site),
                 node.raw_options());
  graph_.add_to_collection(kRecomputed, copy);
  copies_[&node] = &copy;
  return copy;
}

}  // namespace belfry
