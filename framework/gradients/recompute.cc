#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradient_sum_impl.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/gradients/recompute_impl.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

// Whether one component of a name fits; a star stands for any characters.
bool fits(std::string_view pattern, std::string_view component) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == component;
  if (!component.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t skipped = star; skipped <= component.size(); ++skipped)
    if (fits(rest, component.substr(skipped))) return true;
  return false;
}

// The leading part of a node's name that matches `pattern`; "" if it is not below it.
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

namespace {

// The tensor that `tensor` is an alias of, or itself.
Output unaliased(Output tensor) {
  while (tensor.node().op().alias) tensor = tensor.node().input(0);
  return tensor;
}

// Small tensors, such as moments, cost little to keep, and a pass over memory to recompute.
bool is_small(const Output& tensor) {
  constexpr std::int64_t kManyTimes = 8;
  const Node& node = tensor.node();
  if (node.inputs().empty()) return false;
  const std::int64_t made = tensor.shape().elements(), from = node.input(0).shape().elements();
  return made != kUnknownSize && from != kUnknownSize && kManyTimes * made <= from;
}

}  // namespace

Recomputation::Recomputation(Graph& graph, std::span<const std::string> scopes)
    : graph_(graph),
      scopes_(scopes),
      forward_nodes_(static_cast<int>(graph.size())),
      names_(cat(graph.scopes().names(), "/")) {
  if (!scopes.empty()) note_uses();
}

void Recomputation::note_uses() {
  for (std::size_t id = 0; id < graph_.size(); ++id) {
    const Node& node = graph_.node(id);
    for (const Output& input : node.inputs())
      if (const std::string& scope = scope_of(input.node());
          !scope.empty() && scope != scope_of(node))
        leaving_.insert(unaliased(input).key());
  }
}

const std::string& Recomputation::scope_of(const Node& node) {
  const auto [found, is_new] = scope_.emplace(&node, "");
  if (is_new && !node.origin().forward && node.id() < forward_nodes_)
    found->second = recompute_scope(node.logical_name(), scopes_);
  return found->second;
}

// Reads are not copied. Nor are nodes that change something, that several towers or processes make
// together, or that hold a value. Inputs must come from the node's own tower, except reads, which
// towers may share.
bool Recomputation::is_copied(const Node& node) {
  const Op& op = node.op();
  if (op.writes > 0 || op.collective || op.exchange || op.storage || &op == &kRead ||
      (node.inputs().empty() && !op.random))
    return false;
  return std::ranges::all_of(node.inputs(), [&](const Output& input) {
    return &input.node().op() == &kRead || input.node().origin().call == node.origin().call;
  });
}

bool Recomputation::is_kept(const Output& tensor) {
  const Output memory = unaliased(tensor);
  return leaving_.contains(memory.key()) || !is_copied(memory.node()) ||
         !is_copied(tensor.node()) || is_small(memory);
}

void Recomputation::enter(const Node& node, std::span<const Output> grads) {
  if (scopes_.empty() || scope_of(node).empty()) return;
  const auto [entered, is_new] = awaited_by_copies_.try_emplace(part_of(node));
  if (!is_new) return;
  // Plans may fuse the nodes that made these gradients with the next ones, so copies wait for the
  // inputs of those nodes.
  for (const Output& grad : grads)
    if (grad)
      for (const Output& input : grad.node().inputs())
        if (input.node().origin().forward) entered->second.push_back(input);
  if (!entered->second.empty()) return;
  for (const Output& grad : grads)
    if (grad) entered->second.push_back(grad);
}

Output Recomputation::of(const Output& tensor) {
  if (scope_of(tensor.node()).empty() || is_kept(tensor)) return tensor;
  return copy_of(tensor.node()).output(static_cast<std::size_t>(tensor.index()));
}

Node& Recomputation::copy_of(const Node& node) {
  if (const auto made = copies_.find(&node); made != copies_.end()) return *made->second;
  std::vector<Output> inputs;
  for (const Output& input : node.inputs()) inputs.push_back(of(input));
  // A copy with copied inputs waits through them; otherwise it waits itself.
  const bool is_first = std::ranges::equal(inputs, node.inputs());
  SubstituteOutputs* const substitutes = std::exchange(graph_.scopes().substitutes, nullptr);
  const ControlDependencies nothing(graph_, nullptr);
  const ControlDependencies entered(
      graph_, is_first ? std::span<const Output>(awaited_by_copies_[part_of(node)])
                       : std::span<const Output>());
  const ForwardScope forward(graph_, node);
  const NameScope names(graph_, names_);
  const ColocateWith no_scopes(graph_, nullptr);
  const ColocateWith beside(node.output());
  Node& copy =
      graph_.add(node.op(), inputs, At(cat(node.logical_name(), "_again"), node.origin().site),
                 node.raw_options());
  graph_.scopes().substitutes = substitutes;
  graph_.add_to_collection(kRecomputed, copy);
  copies_[&node] = &copy;
  return copy;
}

}  // namespace belfry
