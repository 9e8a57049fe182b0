#include "belfry/allreduce/verify/gradient_flow.h"

#include <algorithm>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"

namespace belfry {
namespace {

using TowerPart = GradientMix::Part;

TowerPart joined(const TowerPart& a, const TowerPart& b, bool adds) {
  if (adds) return {a.tower, a.times + b.times, a.least + b.least};
  return {a.tower, std::max(a.times, b.times), std::min(a.least, b.least)};
}

// Keeps the order of towers. A tower that is missing on one side has no part there.
void join_parts(std::vector<TowerPart>& parts, const std::vector<TowerPart>& others, bool adds) {
  if (adds && !parts.empty() && !others.empty() && parts.back().tower < others.front().tower) {
    parts.insert(parts.end(), others.begin(), others.end());
    return;
  }
  std::vector<TowerPart> all;
  auto next = others.begin();
  for (const TowerPart& part : parts) {
    for (; next != others.end() && next->tower < part.tower; ++next)
      all.push_back(joined({next->tower, 0, 0}, *next, adds));
    const bool both = next != others.end() && next->tower == part.tower;
    all.push_back(joined(part, both ? *next : TowerPart{part.tower, 0, 0}, adds));
    next += both ? 1 : 0;
  }
  for (; next != others.end(); ++next) all.push_back(joined({next->tower, 0, 0}, *next, adds));
  parts = std::move(all);
}

// Adds `part` to `mix`: as a summand, or as something next to it or applied to it.
void take(GradientMix& mix, const GradientMix& part, bool adds, bool lays_side_by_side) {
  if (part.kind == GradientMix::kNone) return;
  if (mix.kind == GradientMix::kNone) {
    mix = part;
    return;
  }
  const bool meets = adds && (mix.even() || part.even());  // all elements of one, all of the other
  mix.exact = mix.exact && part.exact && (meets || lays_side_by_side);
  join_parts(mix.parts, part.parts, adds);
  if (mix.kind == part.kind || mix.kind == GradientMix::kMany) return;
  if (part.kind == GradientMix::kMany || !adds) {
    mix.kind = GradientMix::kMany;
  } else if (mix.kind != GradientMix::kAdded) {
    mix.other = part.variable;
    mix.kind = GradientMix::kAdded;
  }
}

// Whether each element of the result comes from the elements at its place.
bool keeps_places(const Op& op) {
  return op.alias || (op.split == WorkSplit::kElements && op.in_place != InPlace::kNo);
}

const GradientFlow::Found kNoGradient{std::make_shared<const GradientMix>()};

bool is_empty(Output tensor) {
  return tensor.shape().is_fully_known() && tensor.shape().elements() == 0;
}

}  // namespace

std::size_t participants(const Node& collective) {
  return static_cast<std::size_t>(collective.op().collective(collective));
}

int GradientMix::only_tower() const { return parts.size() == 1 ? parts[0].tower : -1; }

TowerPart GradientMix::of_tower(int tower) const {
  const auto found = std::ranges::lower_bound(parts, tower, {}, &TowerPart::tower);
  return found != parts.end() && found->tower == tower ? *found : TowerPart{tower, 0, 0};
}

bool GradientMix::even() const {
  return std::ranges::all_of(parts, [](const TowerPart& part) { return part.least == part.times; });
}

GradientFlow::GradientFlow(const GradientTable& grads)
    : towers_(static_cast<std::size_t>(grads.towers())), first_(grads.at(0, 0).value.node().id()) {
  for (int v = 0; v < grads.variables(); ++v)
    for (int t = 0; t < grads.towers(); ++t)
      first_ = std::min(first_, grads.at(t, v).value.node().id());
  places_.assign(grads.graph().size() - static_cast<std::size_t>(first_), -1);
  start(grads);
}

std::size_t GradientFlow::place_of(const Node& node) {
  int& place = places_[static_cast<std::size_t>(node.id() - first_)];
  if (place < 0) {
    place = static_cast<int>(found_.size());
    found_.resize(found_.size() + node.outputs());
  }
  return static_cast<std::size_t>(place);
}

const GradientFlow::Found& GradientFlow::of(Output tensor) {
  if (const Found* const known = find(tensor)) return *known;
  open_ = {&tensor.node()};
  while (!open_.empty()) {
    const Node& node = *open_.back();
    if (follow_inputs(node)) continue;
    follow(node);
    open_.pop_back();
  }
  return *find(tensor);
}

// Null if the tensor has not been followed yet.
const GradientFlow::Found* GradientFlow::find(const Output& tensor) const {
  if (tensor.node().id() < first_) return &kNoGradient;
  const int place = places_[static_cast<std::size_t>(tensor.node().id() - first_)];
  if (place < 0) return nullptr;
  const Found& found = found_[static_cast<std::size_t>(place + tensor.index())];
  return found.mix ? &found : nullptr;
}

// Returns whether some inputs have to be followed before the node.
bool GradientFlow::follow_inputs(const Node& node) {
  if (node.op().metadata) return false;
  const std::size_t before = open_.size();
  for (const Output& input : node.inputs())
    if (!find(input)) open_.push_back(&input.node());
  return open_.size() > before;
}

GradientFlow::Found GradientFlow::found(GradientMix mix) const {
  const bool even = mix.even();
  const bool whole = mix.parts.size() == towers_ && (even || !mix.exact) &&
                     std::ranges::all_of(mix.parts, [&](const TowerPart& part) {
                       return part.times == 1 || (part.times > 1 && !mix.exact);
                     });
  return {std::make_shared<const GradientMix>(std::move(mix)), -1, even, whole};
}

void GradientFlow::start(const GradientTable& grads) {
  const auto entry = [&](const Output& value) -> Found& {
    Found& found = found_[place_of(value.node()) + static_cast<std::size_t>(value.index())];
    if (!found.mix) found = kNoGradient;
    return found;
  };
  for (int v = 0; v < grads.variables(); ++v) {
    int alias = v;
    for (int t = 0; t < grads.towers(); ++t)
      if (const int known = entry(grads.at(t, v).value).mix->kind; known >= 0)
        alias = std::min(alias, known);
    alias_.push_back(alias);
    for (int t = 0; t < grads.towers(); ++t) {
      Found& known = entry(grads.at(t, v).value);
      GradientMix mix = *known.mix;
      const bool fresh = mix.kind == GradientMix::kNone, again = mix.of_tower(t).times > 0;
      mix.exact = mix.exact && (fresh || again);
      mix.kind = mix.variable = alias;
      if (!again) join_parts(mix.parts, {{t, 1, 1}}, true);
      known = found(std::move(mix));
    }
  }
}

// Follows a node whose inputs are known.
void GradientFlow::follow(const Node& node) {
  std::vector<Found> outputs(node.outputs(), kNoGradient);
  if (node.op().collective) {
    follow_collective(node, outputs);
  } else if (!node.op().metadata && &node.op() != &kRingSend) {  // other processes give that
    const bool adds = &node.op() == &kAddN || &node.op() == &kAdd ||
                      &node.op() == &kReduceScatter || &node.op() == &kAddReceived;
    const bool lays_side_by_side = &node.op() == &kConcat;
    const std::size_t inputs = node.inputs().size();
    // The pieces come from its other inputs, too.
    const std::size_t first = &node.op() == &kAddPieces ? inputs - 1 : 0;
    Found all = combined(node, first, inputs, adds, lays_side_by_side);
    if (node.op().exchange) all.home = -1;  // the same for all towers
    if (all.mix->exact && !(all.even || lays_side_by_side || keeps_places(node.op()))) {
      GradientMix mix = *all.mix;
      mix.exact = false;
      const int home = all.home;
      all = found(std::move(mix));
      all.home = home;
    }
    std::ranges::fill(outputs, all);
  }
  const std::size_t place = place_of(node);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (Found& known = found_[place + i]; !known.mix) known = std::move(outputs[i]);
}

void GradientFlow::follow_collective(const Node& node, std::vector<Found>& outputs) const {
  const std::size_t count = participants(node);
  for (std::size_t begin = 0; begin < node.inputs().size(); begin += count) {
    Found all = combined(node, begin, begin + count, true, false);
    if (all.mix->kind == GradientMix::kNone) continue;
    for (std::size_t i = begin; i < begin + count; ++i) {
      all.home = find(node.input(i))->mix->only_tower();
      outputs[i] = all;
    }
  }
}

GradientFlow::Found GradientFlow::combined(const Node& node, std::size_t begin, std::size_t end,
                                           bool adds, bool lays_side_by_side) const {
  std::vector<const Found*> parts;
  for (std::size_t i = begin; i < end; ++i) {
    const Found* const known = find(node.input(i));
    if (known->mix->kind == GradientMix::kNone) continue;
    if (lays_side_by_side && is_empty(node.input(i))) continue;
    parts.push_back(known);
  }
  if (parts.empty()) return kNoGradient;
  if (parts.size() == 1) return *parts[0];
  GradientMix result;
  for (const Found* part : parts) take(result, *part->mix, adds, lays_side_by_side);
  return found(std::move(result));
}

}  // namespace belfry
