// How the scopes in force change a new node.
#include <algorithm>
#include <ranges>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scope_stack.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

// Marks, while it lives, that setters and functions are being called.
struct Asking {
  explicit Asking(bool& flag) : placing(flag) { placing = true; }
  ~Asking() { placing = false; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  bool& placing;
};

void warn_of_leaking_index(DeviceFrame& frame, SourceLine site, const DeviceSpec& outer,
                           const Node& node) {
  const DeviceSpec& inner = node.device();
  if (frame.warned || !outer.index || !outer.type || !inner.type || inner.index ||
      inner.type == outer.type)
    return;
  frame.warned = true;
  log_warning(node.describe(), " asks for ", inner, ", and ", *frame.what, " (", site,
              ") adds its index: ", outer.merged_with(inner), "; name the index of ", inner);
}

}  // namespace

// Applies device scopes from innermost to outermost, then colocation, which has the last word. A
// node that writes a variable is placed with it, as inside a ColocateWith.
void Graph::place(Node& node) {
  DeviceRequest& request = asked_;
  request.device = {};
  request.reasons.clear();
  request.colocation.clear();
  node.request_ = &request;  // setters and functions look at what there is so far
  auto& frames = scopes_->frames();
  if (node.op().writes == 0) {
    const Asking asking(placing_);
    for (std::size_t i = frames.size(); i-- > 0;) {
      if (std::holds_alternative<ColocationFrame>(frames[i].frame)) break;
      auto* frame = std::get_if<DeviceFrame>(&frames[i].frame);
      if (frame && !apply(*frame, frames[i].site, node, request)) break;
    }
  }
  colocate(node, request);
  node.request_ = &kept(request);
}

// Returns one of the last requests if it is equal: nodes of a scope mostly request the same.
const DeviceRequest& Graph::kept(const DeviceRequest& request) {
  constexpr std::ptrdiff_t kCompared = 8;
  const auto last = std::views::reverse(requests_) | std::views::take(kCompared);
  if (const auto same = std::ranges::find(last, request); same != last.end()) return *same;
  return requests_.emplace_back(request);
}

// Returns whether outer scopes count, too.
bool Graph::apply(DeviceFrame& frame, SourceLine site, const Node& node, DeviceRequest& request) {
  DeviceReason reason{.site = site, .scope = frame.what, .result = {}};
  if (const auto* spec = std::get_if<DeviceSpec>(&frame.entry)) {
    if (spec->empty()) return true;
    warn_of_leaking_index(frame, site, *spec, node);
    request.device = spec->merged_with(request.device);
  } else if (const auto* setter = std::get_if<DeviceSetter*>(&frame.entry)) {
    if (node.is_variable())
      if (auto load = (*setter)->load(); !load.empty())
        reason.load = std::make_shared<const DeviceReason::Load>(std::move(load));
    request.device = (*setter)->place(node);
  } else if (const auto* function = std::get_if<DeviceFunction>(&frame.entry)) {
    request.device = (*function)(node);
  }
  reason.result = request.device;
  request.reasons.push_back(std::move(reason));
  return !std::holds_alternative<NoDevice>(frame.entry);
}

// The inputs of a node to be made, as an AutocastScope changes them.
std::vector<Output> Graph::autocast(AutocastFrame& frame, const Op& op,
                                    std::span<const Output> inputs, const At& at) {
  std::vector<Output> result(inputs.begin(), inputs.end());
  // Inputs of other graphs are refused when the node is made.
  const auto own = [&](const Output& input) { return input && &input.graph() == this; };
  if (!std::ranges::all_of(inputs, own)) return result;
  const auto is_f32 = [](const Output& input) { return input.dtype() == DType::kF32; };
  if (op.autocast == Autocast::kAny && std::ranges::none_of(inputs, is_f32)) return result;
  const bool narrows = op.autocast == Autocast::kCompute;
  const DType to = narrows ? frame.what.compute : DType::kF32;
  for (std::size_t i = static_cast<std::size_t>(op.writes); i < result.size(); ++i) {
    if (narrows ? !is_f32(result[i]) : !is_half(result[i].dtype())) continue;
    Output& made = frame.made[{result[i].key(), to, scopes_->replica()}];
    if (!made) made = frame.what.cast(result[i], to, At(at.site));
    result[i] = made;
  }
  return result;
}

// Goes from the newest anchor to the oldest, so that the oldest one with a device decides. A read
// without a request is placed with its variable.
void Graph::colocate(const Node& node, DeviceRequest& request) {
  const auto join = [&](const Node& anchor, SourceLine site) {
    const auto& groups = anchor.request().colocation;
    if (groups.empty()) request.colocation.push_back(&anchor);
    request.colocation.insert(request.colocation.end(), groups.begin(), groups.end());
    if (!anchor.device().empty()) request.device = anchor.device();
    request.reasons.push_back({.site = site, .beside = &anchor, .result = request.device});
  };
  for (int i = node.op().writes; i-- > 0;)
    join(node.inputs_[static_cast<std::size_t>(i)].node(), node.origin().site);
  const auto& frames = scopes_->frames();
  for (auto entry = frames.rbegin(); entry != frames.rend(); ++entry) {
    const auto* frame = std::get_if<ColocationFrame>(&entry->frame);
    if (!frame) continue;
    if (frame->anchor) join(*frame->anchor, entry->site);
    if (frame->ignores_outer) break;
  }
  if (node.op_ == &kRead && request.device.empty() && request.colocation.empty())
    join(node.inputs_[0].node(), node.origin().site);
  sort_unique(request.colocation, &Node::name);
}

void Graph::add_control_inputs(Node& node) {
  const auto is_input = [&](const Node* before) {
    return std::ranges::any_of(node.inputs_,
                               [&](const Output& input) { return &input.node() == before; });
  };
  std::vector<ControlFrame*> active;  // outermost first
  for (ScopeStack::Entry& entry : scopes_->frames()) {
    auto* frame = std::get_if<ControlFrame>(&entry.frame);
    if (!frame) continue;
    if (frame->clears) active.clear();
    if (!frame->nodes.empty()) active.push_back(frame);
  }
  for (ControlFrame* frame : active) {
    const bool implied = std::ranges::any_of(
        node.inputs_, [&](const Output& input) { return frame->inside.contains(&input.node()); });
    frame->inside.insert(&node);
    if (implied) continue;
    for (Node* before : frame->nodes)
      if (!is_input(before)) node.control_inputs_.push_back(before);
  }
}

}  // namespace belfry
