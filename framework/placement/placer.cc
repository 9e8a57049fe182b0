#include "belfry/framework/placement/placer.h"

#include <algorithm>

namespace belfry {
namespace {

constexpr int kNobody = -2, kApart = -1;  // in place of the device of all consumers

bool generates(const Node& node) {
  return node.inputs().empty() && node.outputs() == 1 && !node.is_variable();
}

bool contains(const std::vector<int>& devices, int device) {
  return std::ranges::find(devices, device) != devices.end();
}

}  // namespace

Placer::Placer(const Graph& graph, const PlacementContext& context)
    : graph_(graph),
      context_(context),
      colocation_(graph, context),
      devices_(graph.size(), -1),
      late_(graph.size()),
      reasons_(graph.size()) {
  for (std::size_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    late_[id] = waits(node);
    if (!late_[id]) settle(node);
  }
  ask_consumers();
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (late_[id]) settle(graph.node(id));
}

// Whether the node must wait until the others are placed.
bool Placer::waits(const Node& node) const {
  if (!node.op().collective) return generates(node);
  return std::ranges::any_of(node.inputs(),
                             [&](const Output& input) { return known_device(input) < 0; });
}

// Finds where all consumers of each node are. Collectives do not count, because they take a value
// from wherever it is. A waiting consumer agrees with no other.
void Placer::ask_consumers() {
  beside_.assign(graph_.size(), kNobody);
  for (std::size_t id = 0; id < graph_.size(); ++id) {
    const Node& consumer = graph_.node(id);
    const int there = devices_[id];
    if (consumer.op().collective || (there < 0 && !late_[id])) continue;
    const auto ask = [&](const Node& source) {
      int& all = beside_[at(source.id())];
      all = all == kNobody || all == there ? there : kApart;
    };
    for (const Output& input : consumer.inputs()) ask(input.node());
    for (const Node* before : consumer.control_inputs()) ask(*before);
  }
}

void Placer::settle(const Node& node) {
  const int n = node.id();
  if (node.op().collective) return assign_collective(node);
  if (colocation_.refused(n)) return;
  if (const int fixed = context_.memory_of(node); fixed >= 0)
    return assign(node, fixed, "the variable has memory there");
  const bool bound = colocation_.set(n).device >= 0;
  const std::vector<int>& candidates = colocation_.candidates(n);
  if (candidates.empty()) return;
  if (bound) return assign(node, candidates.front(), "its colocation set is there");
  if (const int there = beside_input(node, candidates); there >= 0)
    return assign(node, there, "it looks at the shape of its input, which is there");
  if (const int there = beside_consumers(node, candidates); there >= 0)
    return assign(node, there, "it has no inputs, and all its consumers are there");
  assign(node, candidates.front(), "it is the first candidate");
}

int Placer::beside_input(const Node& node, const std::vector<int>& candidates) const {
  if (!node.op().metadata || node.inputs().empty()) return -1;
  const int there = known_device(node.input(0));
  return contains(candidates, there) ? there : -1;
}

int Placer::beside_consumers(const Node& node, const std::vector<int>& candidates) const {
  if (!generates(node)) return -1;
  const int there = beside_[at(node.id())];
  return contains(candidates, there) ? there : -1;
}

// The device of an output; -1 while it is unknown.
int Placer::known_device(const Output& output) const {
  const auto found = collectives_.find(output.node().id());
  return found == collectives_.end() ? devices_[at(output.node().id())]
                                     : found->second[at(output.index())];
}

void Placer::assign(const Node& node, int device, std::string_view reason) {
  devices_[at(node.id())] = device;
  reasons_[at(node.id())] = reason;
  colocation_.assign(node.id(), device);
}

void Placer::assign_collective(const Node& node) {
  const int n = node.id();
  if (waits(node)) return;  // an input cannot be placed
  std::vector<int>& devices = collectives_[n];
  for (const Output& input : node.inputs()) devices.push_back(known_device(input));
  devices_[at(n)] = devices[0];
  reasons_[at(n)] = "a collective's output is where its input is";
  const bool free = !colocation_.refused(n) && colocation_.set(n).device < 0;
  if (free && contains(colocation_.candidates(n), devices[0])) colocation_.assign(n, devices[0]);
}

void Placer::refuse(int n) {
  const Node& node = graph_.node(at(n));
  if (node.op().collective)
    for (const Output& input : node.inputs())
      if (known_device(input) < 0) refuse(input.node().id());
  colocation_.refuse(n);
}

}  // namespace belfry
