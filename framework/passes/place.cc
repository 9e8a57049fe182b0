#include <algorithm>

#include "belfry/framework/passes/passes.h"
#include "belfry/framework/passes/placer.h"

namespace belfry {
namespace {

bool generates(const PlanNode& planned) {
  return planned.inputs.empty() && planned.types.size() == 1 && !planned.node->is_variable();
}

bool contains(const std::vector<int>& devices, int device) {
  return std::ranges::find(devices, device) != devices.end();
}

}  // namespace

void Placer::run() {
  consumers_ = consumers_of(plan_);
  std::vector<int> second_pass;
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const int n = static_cast<int>(i);
    if (plan_.nodes[i].fetch >= 0) continue;
    if (waits(n))
      second_pass.push_back(n);
    else
      settle(n);
  }
  for (const int n : second_pass) settle(n);
  for (PlanNode& planned : plan_.nodes)
    if (planned.fetch >= 0) planned.devices = {plan_.device(planned.inputs[0])};
}

// Until the rest has been placed.
bool Placer::waits(int n) const {
  const PlanNode& planned = plan_.node(n);
  if (!planned.op->collective) return generates(planned);
  return std::ranges::any_of(planned.inputs,
                             [&](const Value& input) { return known_device(input) < 0; });
}

void Placer::settle(int n) {
  const PlanNode& planned = plan_.node(n);
  if (planned.op->collective) return assign_collective(n);
  const int fixed = planned.is_variable() ? context_.variable_device(*planned.node) : -1;
  if (fixed >= 0) return assign(n, fixed, "the variable has memory there");
  const bool bound = colocation_.set(n).device >= 0;
  const std::vector<int>& candidates = colocation_.candidates(n);
  if (bound) return assign(n, candidates.front(), "its colocation set is there");
  if (const int there = beside_input(n, candidates); there >= 0)
    return assign(n, there, "it looks at the shape of its input, which is there");
  if (const int there = beside_consumers(n, candidates); there >= 0)
    return assign(n, there, "it has no inputs, and all its consumers are there");
  assign(n, candidates.front(), "it is the first candidate");
}

int Placer::beside_input(int n, const std::vector<int>& candidates) {
  const PlanNode& planned = plan_.node(n);
  if (!planned.op->metadata || planned.inputs.empty()) return -1;
  const int there = known_device(planned.inputs[0]);
  return contains(candidates, there) ? there : -1;
}

// Collectives and fetches take a value from wherever it is.
int Placer::beside_consumers(int n, const std::vector<int>& candidates) {
  if (!generates(plan_.node(n))) return -1;
  std::vector<int> devices;
  for (const int consumer : consumers_[at(n)]) {
    const PlanNode& user = plan_.node(consumer);
    if (user.op->collective || user.fetch >= 0) continue;
    devices.push_back(user.devices.empty() ? -1 : user.device());
  }
  const bool agreed = !devices.empty() && std::ranges::count(devices, devices[0]) ==
                                              static_cast<std::ptrdiff_t>(devices.size());
  return agreed && contains(candidates, devices[0]) ? devices[0] : -1;
}

// -1 while it is unknown.
int Placer::known_device(Value value) const {
  const PlanNode& planned = plan_.node(value.node);
  return planned.devices.empty() ? -1 : planned.devices[at(value.index)];
}

void Placer::assign(int n, int device, std::string_view reason) {
  PlanNode& planned = plan_.nodes[at(n)];
  planned.devices.assign(std::max<std::size_t>(1, planned.types.size()), device);
  reasons_[at(n)] = reason;
  plan_.assignments.push_back({planned.node, device});
  colocation_.assign(n, device);
}

void Placer::assign_collective(int n) {
  PlanNode& planned = plan_.nodes[at(n)];
  for (const Value& input : planned.inputs) planned.devices.push_back(plan_.device(input));
  reasons_[at(n)] = "a collective's output is where its input is";
  for (const int device : planned.devices) plan_.assignments.push_back({planned.node, device});
  const bool free = colocation_.set(n).device < 0;
  if (free && contains(colocation_.candidates(n), planned.device()))
    colocation_.assign(n, planned.device());
}

void place(Plan& plan, const PlanContext& context) { Placer(plan, context).run(); }

}  // namespace belfry
