#include "belfry/framework/plan/plan.h"

#include <algorithm>

#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {

bool Rank::alone(const Node& collective) const {
  return devices.size() == 1 && collective.graph().process().size == 1;
}

int PlanNode::participants() const {
  if (rank()) return static_cast<int>(rank()->members.size());
  if (fused_update()) {
    const FusedUpdate::Member* const collective = collective_in(*fused_update());
    return collective ? collective_size(*collective->node) : 0;
  }
  return op->collective ? op->collective(*node) : 0;
}

int PlanNode::writes() const { return fused_update() ? fused_update()->writes : op->writes; }

std::string PlanNode::name() const {
  if (fused_update()) return cat(node->name(), "/update");
  if (rank()) return cat(node->name(), "/rank", rank()->number);
  if (fetch() >= 0) return cat(node->name(), "/fetch");
  if (op == &kTransfer) return cat(node->name(), "/transfer");
  if (op == &kCopy) return cat(node->name(), "/copy");
  if (op == &kGatherShards) return cat(node->name(), "/gather");
  if (op == &kSumShards) return cat(node->name(), "/sum");
  if (packed_form()) return cat(node->name(), "/packed");
  if (is_rematerialised()) return cat(node->name(), "/again");
  return std::string(node->name());
}

bool Plan::changes_variables(LaunchIndex launch) const {
  const NodeIndex n = launches[launch].node;
  return node(n).writes() > 0 || std::ranges::any_of(buffer_of[n], [&](BufferIndex buffer) {
           return buffers[buffer].kind == BufferKind::kState;
         });
}

std::vector<int> fed_gpus(const MemoryLayout& memory) {
  std::vector<int> gpus;
  for (const FeedSlots& slots : memory.feed_slots) gpus.push_back(slots.gpu);
  sort_unique(gpus);
  return gpus;
}

std::vector<Command> merged(const CommandLists& lists, const std::vector<StrandIndex>& strands) {
  std::vector<Command> all;
  for (const StrandIndex strand : strands)
    all.insert(all.end(), lists[strand].begin(), lists[strand].end());
  std::ranges::stable_sort(all, {}, &Command::launch);
  return all;
}

std::string Command::str() const {
  constexpr const char* kNames[] = {"wait",       "wait stamp",   "launch",     "signal",
                                    "wake",       "expect",       "wait event", "wait feeds",
                                    "set step",   "record event", "stamp",      "begin segment",
                                    "end segment"};
  const std::string name = kNames[static_cast<int>(kind)];
  switch (kind) {
    case Kind::kLaunch: return cat(name, " ", launch);
    case Kind::kWait:
    case Kind::kWaitStamp:
    case Kind::kSignal:
    case Kind::kWake:
    case Kind::kExpect:
    case Kind::kStamp: return cat(name, " ", strand, " #", position);
    default: return cat(name, " ", number, " in strand ", strand);
  }
}

NodeIndex PlanGraph::find(const Node& node) const {
  const auto found = std::ranges::find_if(nodes, [&](const PlanNode& planned) {
    return planned.node == &node && planned.op == &node.op() && planned.fetch() < 0;
  });
  return found == nodes.end() ? NodeIndex() : NodeIndex(found - nodes.begin());
}

std::int64_t PlanGraph::pitch(Value value) const {
  const auto found = pitches.find(value);
  return found == pitches.end() ? 0 : found->second;
}

std::int64_t PlanGraph::bytes(Value value) const {
  const std::int64_t dense = type(value).bytes(), padded = pitch(value);
  return padded == 0 ? dense : dense / type(value).shape.back() * padded;
}

std::vector<std::int64_t> PlanGraph::pitches_of(NodeIndex n) const {
  if (pitches.empty()) return {};
  std::vector<std::int64_t> all;
  for (const Value& input : node(n).inputs) all.push_back(pitch(input));
  for (int i = 0; i < std::ssize(node(n).types); ++i) all.push_back(pitch({n, i}));
  if (std::ranges::count(all, 0) == std::ssize(all)) return {};
  return all;
}

std::vector<TensorType> PlanGraph::input_types(const PlanNode& of) const {
  std::vector<TensorType> types;
  types.reserve(of.inputs.size());
  for (const Value& input : of.inputs) types.push_back(taken_type(input));
  return types;
}

TensorType PlanGraph::rows_of(const TensorType& whole, int device, std::int64_t samples) const {
  TensorType type = whole;
  type.shape[0] = whole.shape[0] / batches[at(device)].samples * samples;
  return type;
}

TensorType PlanGraph::taken_type(Value value) const {
  const TensorType& whole = type(value);
  if (value.shard == Value::kOwn || division(value).kind != Division::Kind::kRows) return whole;
  const int on = device(value);
  return rows_of(whole, on, samples(on, value.shard).size());
}

std::vector<TensorType> PlanGraph::input_types(const PlanNode& of, std::int64_t samples) const {
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < of.inputs.size(); ++i) {
    const TensorType& whole = type(of.inputs[i]);
    const bool cut = of.sharding.own[i] && division(of.inputs[i]) != Division::partial();
    types.push_back(cut ? rows_of(whole, of.device(), samples) : whole);
  }
  return types;
}

std::vector<TensorType> PlanGraph::output_types(const PlanNode& of, std::int64_t samples) const {
  std::vector<TensorType> types = of.types;
  for (std::size_t i = 0; i < types.size(); ++i)
    if (of.sharding.outputs[i].kind == Division::Kind::kRows)
      types[i] = rows_of(types[i], of.device(), samples);
  return types;
}

std::string PlanGraph::name(Value value) const {
  const PlanNode& found = node(value.node);
  if (found.op == &kTransfer || found.op == &kCopy) return name(found.inputs[at(value.index)]);
  if (found.op == &kGatherShards || found.op == &kSumShards || found.packed_form())
    return name(found.inputs[0]);
  if (const FusedUpdate* const fused = found.fused_update()) {
    const FusedUpdate::Source output = fused->outputs[at(value.index)];
    return fused->body[at(output.member)].node->output(at(output.index)).name();
  }
  if (found.feed() >= 0) return feeds[at(found.feed())].where.name();
  if (found.rank() && found.op->collective) {
    const std::vector<int>& members = found.rank()->members;
    const std::size_t here = members.size(), all = at(found.op->collective(*found.node));
    const std::size_t tensor = at(value.index) / here;
    return found.node->output(tensor * all + at(members[at(value.index) % here])).name();
  }
  return found.node->output(at(value.index)).name();
}

namespace {

std::string list_lines(const Plan& plan, const std::vector<Command>& list) {
  std::string lines;
  for (const Command& command : list) {
    lines += cat("  ", command.str());
    if (command.kind == Command::Kind::kLaunch) {
      const PlanNode& planned = plan.node(plan.launches[command.launch].node);
      lines += cat(" ", planned.name(), ": (", planned.op->name, ")");
    }
    lines += '\n';
  }
  return lines;
}

}  // namespace

std::string Plan::str(const std::vector<std::unique_ptr<Device>>& devices) const {
  std::string out;
  for (std::size_t d = 0; d < arena_bytes.size(); ++d)
    if (arena_bytes[d] + kept_bytes[d] > 0)
      out += cat("arena ", devices[d]->spec, ": ", arena_bytes[d], " bytes",
                 kept_bytes[d] > 0 ? cat(", and ", kept_bytes[d], " that are kept") : "", "\n");
  for (const StrandIndex s : strands.indices()) {
    const Strand& strand = strands[s];
    out += cat("strand ", s, ": ", devices[at(strand.device)]->spec,
               strand.communicates ? ", communication" : "",
               strand.shards > 1 ? cat(", in ", strand.shards, " shards") : "", "\n",
               list_lines(*this, commands.lists[s]));
    if (!commands.in_segments.empty() && strand.gpu >= 0)
      out += cat("strand ", s, " in segments:\n", list_lines(*this, commands.in_segments[s]));
  }
  return out;
}

std::string placement_lines(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                            const std::set<const Node*>& known) {
  std::string text;
  for (const Assignment& assignment : plan.assignments)
    if (!known.contains(assignment.node))
      text += cat(assignment.node->name(), ": (", assignment.node->op().name,
                  "): ", devices[at(assignment.device)]->spec, "\n");
  return text;
}

}  // namespace belfry
