#include "belfry/framework/plan/plan.h"

#include <algorithm>

#include "belfry/framework/base/sort_unique_impl.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"

namespace belfry {

int PlanNode::participants() const {
  if (fusion) return fusion->op ? fusion->participants : 0;
  if (rank) return static_cast<int>(rank->members.size());
  return op->collective ? op->collective(*node) : 0;
}

int PlanNode::writes() const { return fusion ? fusion->writes : op->writes; }

std::string PlanNode::name() const {
  if (fusion) return cat(node->name(), "/update");
  if (rank) return cat(node->name(), "/rank", rank->number);
  if (fetch >= 0) return cat(node->name(), "/fetch");
  if (op == &kTransfer) return cat(node->name(), "/transfer");
  if (op == &kCopy) return cat(node->name(), "/copy");
  return std::string(node->name());
}

std::vector<int> gpus_of(const Plan& plan) {
  std::vector<int> gpus;
  for (const Lane& lane : plan.lanes)
    if (lane.gpu >= 0) gpus.push_back(lane.gpu);
  sort_unique(gpus);
  return gpus;
}

std::vector<int> fed_gpus(const Plan& plan) {
  std::vector<int> gpus;
  for (const FeedSlots& slots : plan.feed_slots) gpus.push_back(slots.gpu);
  sort_unique(gpus);
  return gpus;
}

int workers_for(const Plan& plan, int most) {
  const bool opens =
      std::ranges::any_of(plan.launches, [](const Launch& l) { return l.chunks() > 1; });
  const auto lanes = std::ranges::count(plan.lanes, -1, &Lane::gpu);
  return opens ? most : std::clamp(static_cast<int>(lanes), 1, most);
}

std::vector<int> deal_lanes(const Plan& plan, int workers) {
  const std::vector<int> gpus = gpus_of(plan);
  std::vector<int> worker_of(plan.lanes.size());
  std::vector<std::size_t> order;
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const auto issuer = std::ranges::lower_bound(gpus, plan.lanes[l].gpu) - gpus.begin();
    worker_of[l] = workers + static_cast<int>(issuer);
    if (plan.lanes[l].gpu < 0) order.push_back(l);
  }
  std::ranges::sort(order, {}, [&](std::size_t l) { return plan.lanes[l].device; });
  for (std::size_t i = 0; i < order.size(); ++i)
    worker_of[order[i]] = static_cast<int>(i * at(workers) / order.size());
  return worker_of;
}

int Plan::find(const Node& node) const {
  const auto found = std::ranges::find_if(nodes, [&](const PlanNode& planned) {
    return planned.node == &node && planned.op == &node.op() && planned.fetch < 0;
  });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::vector<TensorType> Plan::input_types(const PlanNode& of) const {
  std::vector<TensorType> types;
  for (const Value& input : of.inputs) types.push_back(type(input));
  return types;
}

std::string Plan::name(Value value) const {
  const PlanNode& found = node(value.node);
  if (found.op == &kTransfer || found.op == &kCopy) return name(found.inputs[at(value.index)]);
  if (found.fusion)
    for (const Fusion::Update& update : found.fusion->updates)
      if (value.index < update.first_output + static_cast<int>(update.types.size()))
        return update.node->output(value.index - update.first_output).name();
  if (found.feed >= 0) return feeds[at(found.feed)].where.name();
  if (found.rank) {
    const std::vector<int>& members = found.rank->members;
    const std::size_t here = members.size(), all = at(found.op->collective(*found.node));
    const std::size_t tensor = at(value.index) / here;
    return found.node->output(tensor * all + at(members[at(value.index) % here])).name();
  }
  return found.node->output(at(value.index)).name();
}

std::string Plan::str(const std::vector<std::unique_ptr<Device>>& devices) const {
  std::string out;
  for (std::size_t d = 0; d < arena_bytes.size(); ++d)
    if (arena_bytes[d] > 0)
      out += cat("arena ", devices[d]->spec, ": ", arena_bytes[d], " bytes\n");
  for (const Launch& launch : launches) {
    const PlanNode& planned = node(launch.node);
    out += cat(devices[at(lanes[at(launch.lane)].device)]->spec.str(), " #", launch.position, " ",
               planned.name(), ": (", planned.op->name, ")");
    for (const Wait& wait : launch.waits)
      out += cat(" after lane ", wait.lane, " #", wait.position);
    out += '\n';
  }
  return out;
}

std::string placement_lines(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                            const std::set<const Node*>& known) {
  std::string text;
  for (const Assignment& assignment : plan.assignments)
    if (!known.contains(assignment.node))
      text += cat(assignment.node->name(), ": (", assignment.node->type(),
                  "): ", devices[at(assignment.device)]->spec, "\n");
  return text;
}

}  // namespace belfry
