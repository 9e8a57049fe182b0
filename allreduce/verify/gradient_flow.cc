#include "belfry/allreduce/verify/gradient_flow.h"

#include <algorithm>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"

namespace belfry {
namespace {

// Adds `part` to `mix`: as a summand, or as something beside or applied to it.
void take(GradientMix& mix, const GradientMix& part, bool adds, bool lays_side_by_side) {
  if (part.kind == GradientMix::kNone) return;
  if (mix.kind == GradientMix::kNone) {
    mix = part;
    return;
  }
  mix.home = -1;
  const bool meets = adds && (mix.even() || part.even());  // all elements of one, all of the other
  mix.exact = mix.exact && part.exact && (meets || lays_side_by_side);
  for (std::size_t t = 0; t < mix.times.size(); ++t) {
    mix.times[t] = adds ? mix.times[t] + part.times[t] : std::max(mix.times[t], part.times[t]);
    mix.least[t] = adds ? mix.least[t] + part.least[t] : std::min(mix.least[t], part.least[t]);
  }
  if (mix.kind == part.kind || mix.kind == GradientMix::kMany) return;
  if (part.kind == GradientMix::kMany || !adds) {
    mix.kind = GradientMix::kMany;
  } else if (mix.kind != GradientMix::kAdded) {
    mix.other = part.variable;
    mix.kind = GradientMix::kAdded;
  }
}

// Whether each element of the result is made of those at its place.
bool keeps_places(const Op& op) {
  return op.alias || (op.split == Split::kElements && op.in_place != InPlace::kNo);
}

bool is_empty(Output tensor) {
  return tensor.shape().is_fully_known() && tensor.shape().elements() == 0;
}

}  // namespace

std::size_t participants(const Node& collective) {
  return static_cast<std::size_t>(collective.op().collective(collective));
}

int GradientMix::only_tower() const {
  if (kind == kNone || std::ranges::count(times, 0) + 1 != std::ssize(times)) return -1;
  return static_cast<int>(std::ranges::find_if(times, [](int n) { return n > 0; }) - times.begin());
}

GradientFlow::GradientFlow(const GradientTable& grads)
    : towers_(static_cast<std::size_t>(grads.towers())) {
  start(grads);
  int first = grads.at(0, 0).value.node().id();
  for (const auto& [key, mix] : mixes_) first = std::min(first, key.first);
  const Graph& graph = grads.graph();
  for (auto id = static_cast<std::size_t>(first); id < graph.size(); ++id) follow(graph.node(id));
}

GradientMix GradientFlow::of(Output tensor) const {
  const auto found = mixes_.find(tensor.key());
  if (found != mixes_.end()) return found->second;
  return {.times = std::vector<int>(towers_), .least = std::vector<int>(towers_)};
}

void GradientFlow::start(const GradientTable& grads) {
  for (int v = 0; v < grads.variables(); ++v) {
    int alias = v;
    for (int t = 0; t < grads.towers(); ++t)
      if (const GradientMix known = of(grads.at(t, v).value); known.kind >= 0)
        alias = std::min(alias, known.kind);
    alias_.push_back(alias);
    for (int t = 0; t < grads.towers(); ++t) {
      GradientMix& mix = mixes_[grads.at(t, v).value.key()];
      const bool fresh = mix.kind == GradientMix::kNone;
      mix.exact = mix.exact && (fresh || mix.times[static_cast<std::size_t>(t)] > 0);
      mix.kind = mix.variable = alias;
      mix.times.resize(towers_);
      mix.times[static_cast<std::size_t>(t)] = 1;
      mix.least = mix.times;
    }
  }
}

void GradientFlow::follow(const Node& node) {
  if (node.op().metadata) return;
  if (node.op().collective) return follow_collective(node);
  const bool adds = &node.op() == &kAddN || &node.op() == &kAdd;
  const bool lays_side_by_side = &node.op() == &kConcat;
  GradientMix mix = combined(node, 0, node.inputs().size(), adds, lays_side_by_side);
  if (mix.kind == GradientMix::kNone) return;
  mix.exact = mix.exact && (mix.even() || lays_side_by_side || keeps_places(node.op()));
  for (std::size_t i = 0; i < node.outputs(); ++i) mixes_.try_emplace(node.output(i).key(), mix);
}

void GradientFlow::follow_collective(const Node& node) {
  const std::size_t count = participants(node);
  for (std::size_t begin = 0; begin < node.inputs().size(); begin += count) {
    GradientMix mix = combined(node, begin, begin + count, true, false);
    if (mix.kind == GradientMix::kNone) continue;
    for (std::size_t i = begin; i < begin + count; ++i) {
      mix.home = of(node.input(i)).only_tower();
      mixes_.try_emplace(node.output(i).key(), mix);
    }
  }
}

GradientMix GradientFlow::combined(const Node& node, std::size_t begin, std::size_t end, bool adds,
                                   bool lays_side_by_side) const {
  GradientMix result;
  for (std::size_t i = begin; i < end; ++i) {
    const auto found = mixes_.find(node.input(i).key());
    if (found == mixes_.end() || (lays_side_by_side && is_empty(node.input(i)))) continue;
    take(result, found->second, adds, lays_side_by_side);
  }
  return result;
}

}  // namespace belfry
