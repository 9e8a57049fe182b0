#include "belfry/trainers/core/planned_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/core/built_training.h"

namespace belfry {
namespace {

// The messages of a node. Its tensors have no memory yet: nothing reads what these point at.
Exchange messages_of(const PlanNode& node) {
  static std::byte nowhere;
  std::vector<void*> inputs(node.inputs.size(), &nowhere), outputs(node.types.size(), &nowhere);
  return node.op->exchange(*node.node, KernelPointers(inputs, outputs, nullptr, {}, 0));
}

// By rank: those that a launcher has started have names, those that are planned follow each other.
std::vector<int> planned_hosts(const SessionOptions& options, int processes) {
  std::vector<int> hosts;
  std::vector<std::string> names;
  for (int r = 0; r < processes; ++r) {
    if (!options.processes) {
      hosts.push_back(r / options.planned_per_host);
      continue;
    }
    const auto known = std::ranges::find(names, options.processes->host(r));
    hosts.push_back(static_cast<int>(known - names.begin()));
    if (known == names.end()) names.push_back(options.processes->host(r));
  }
  return hosts;
}

class StepReader {
 public:
  explicit StepReader(BuiltTraining& built) {
    made_.place = built.graph().process();
    made_.messages.resize(at(made_.place.size));
    made_.hosts = planned_hosts(built.options().session, made_.place.size);
    for (const DeviceUse& use : built.session().device_use()) made_.devices.push_back({use});
    int tower = made_.place.rank * static_cast<int>(built.options().devices.size());
    for (const DeviceSpec& device : built.options().devices) {
      const auto on = std::ranges::find_if(
          made_.devices, [&](const auto& made) { return made.use.device == device; });
      on->tower = tower++;
    }
  }

  PlannedStep read(BuiltTraining& built) {
    for (const auto& [plan, runs] : built.plans_of_step()) add(*plan, runs);
    for (const auto& [devices, bytes] : links_)
      made_.links.push_back({spec(devices.first), spec(devices.second), bytes});
    return std::move(made_);
  }

 private:
  const DeviceSpec& spec(int device) const { return made_.devices[at(device)].use.device; }

  void add(const Plan& plan, std::int64_t runs) {
    for (const TransferRecord& transfer : plan.transfers)
      links_[{transfer.from, transfer.to}] += runs * transfer.bytes;
    for (const Launch& launch : plan.launches) {
      const PlanNode& node = plan.node(launch.node);
      made_.devices[at(plan.strands[launch.strand].device)].launches += runs;
      if (node.op->exchange) add(messages_of(node), runs);
    }
  }

  void add(const Exchange& exchange, std::int64_t runs) {
    const auto bytes = [&](const GroupMessage& message) {
      return runs * static_cast<std::int64_t>(message.bytes.size());
    };
    for (const GroupMessage& message : exchange.sent)
      made_.messages[at(message.peer)].sent += bytes(message);
    for (const GroupMessage& message : exchange.received)
      made_.messages[at(message.peer)].received += bytes(message);
    for (const GroupMessage& message : exchange.summed) made_.summed += bytes(message);
  }

  PlannedStep made_;
  std::map<std::pair<int, int>, std::int64_t> links_;  // by index of the devices
};

// "1.52 MiB", or "1.50 to 1.52 MiB" where processes differ.
std::string range_text(const PlannedStep& step, const std::vector<int>& ranks,
                       std::int64_t PlannedStep::Messages::*member) {
  std::vector<std::int64_t> bytes;
  for (const int rank : ranks) bytes.push_back(step.messages[at(rank)].*member);
  const auto [least, most] = std::ranges::minmax(bytes);
  return byte_text(least) == byte_text(most) ? byte_text(least)
                                             : cat(byte_text(least), " to ", byte_text(most));
}

// "" without such processes.
std::string messages_text(const PlannedStep& step, bool on_this_host) {
  const std::vector<int> ranks = step.others(on_this_host);
  if (ranks.empty()) return "";
  const auto [sent, received] = step.messages_with(ranks);
  std::string text =
      cat(on_this_host ? "within the host" : "between hosts", ", a step: rank ", step.place.rank,
          " sends ", byte_text(sent), " and receives ", byte_text(received), "; to each of ",
          ranks.size(), " others ", range_text(step, ranks, &PlannedStep::Messages::sent),
          ", from each ", range_text(step, ranks, &PlannedStep::Messages::received));
  if (step.summed > 0 && !on_this_host)
    text += cat("; MPI sums ", byte_text(step.summed), " over all");
  return text + "\n";
}

JsonValue messages_json(const PlannedStep& step, bool on_this_host) {
  const std::vector<int> ranks = step.others(on_this_host);
  const auto [sent, received] = step.messages_with(ranks);
  JsonValue links = JsonValue::array();
  for (const int rank : ranks)
    links.push(JsonValue::object()
                   .set("rank", rank)
                   .set("sent_bytes", step.messages[at(rank)].sent)
                   .set("received_bytes", step.messages[at(rank)].received));
  JsonValue json = JsonValue::object().set("sent_bytes", sent).set("received_bytes", received);
  if (!on_this_host) json.set("summed_bytes", step.summed);
  return json.set("links", std::move(links));
}

std::string hosts_text(const PlannedStep& step) {
  const auto here = std::ranges::count(step.hosts, step.hosts[at(step.place.rank)]);
  return here == 1 ? "each on a host of its own" : cat(here, " of them on its host");
}

}  // namespace

std::vector<int> PlannedStep::others(bool on_this_host) const {
  std::vector<int> ranks;
  for (int r = 0; r < place.size; ++r)
    if (r != place.rank && (hosts[at(r)] == hosts[at(place.rank)]) == on_this_host)
      ranks.push_back(r);
  return ranks;
}

PlannedStep::Messages PlannedStep::messages_with(const std::vector<int>& ranks) const {
  Messages all;
  for (const int rank : ranks) {
    all.sent += messages[at(rank)].sent;
    all.received += messages[at(rank)].received;
  }
  return all;
}

PlannedStep planned_step(BuiltTraining& built) { return StepReader(built).read(built); }

std::string to_text(const PlannedStep& step) {
  std::string text = cat("this is the plan of rank ", step.place.rank, " of ", step.place.size,
                         " processes, ", hosts_text(step), "\n");
  for (const auto& [use, tower, launches] : step.devices)
    text += cat(use.device.short_str(), ": ", tower >= 0 ? cat("tower ", tower) : "no tower", ", ",
                launches, " launches a step, ", use.variables, " variables, planned peak ",
                byte_text(use.peak_bytes), "\n");
  for (const auto& [from, to, bytes] : step.links)
    text += cat("within the host, a step: ", from.short_str(), " to ", to.short_str(), " ",
                byte_text(bytes), "\n");
  return text + messages_text(step, true) + messages_text(step, false);
}

JsonValue to_json(const PlannedStep& step) {
  JsonValue devices = JsonValue::array(), within = JsonValue::array();
  for (const auto& [use, tower, launches] : step.devices)
    devices.push(JsonValue::object()
                     .set("device", use.device.str())
                     .set("tower", tower >= 0 ? JsonValue(tower) : JsonValue())
                     .set("launches", launches)
                     .set("variables", use.variables)
                     .set("variable_bytes", use.variable_bytes)
                     .set("peak_bytes", use.peak_bytes));
  for (const auto& [from, to, bytes] : step.links)
    within.push(
        JsonValue::object().set("from", from.str()).set("to", to.str()).set("bytes", bytes));
  return JsonValue::object()
      .set("processes", step.place.size)
      .set("rank", step.place.rank)
      .set("devices", std::move(devices))
      .set("within_host", std::move(within))
      .set("with_processes_of_host", messages_json(step, true))
      .set("between_hosts", messages_json(step, false));
}

}  // namespace belfry
