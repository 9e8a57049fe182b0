#include "belfry/trainers/core/planned_step.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace {

// The messages of a node. Its tensors have no memory yet: nothing reads what these point at.
Exchange messages_of(const PlanNode& node) {
  static std::byte nowhere;
  std::vector<void*> inputs(node.inputs.size(), &nowhere), outputs(node.types.size(), &nowhere);
  return node.op->exchange(*node.node, Pointers(inputs, outputs, nullptr, {}, 0));
}

class StepReader {
 public:
  explicit StepReader(Trainer& trainer) {
    made_.place = trainer.graph().process();
    made_.messages.resize(static_cast<std::size_t>(made_.place.size));
    for (const DeviceUse& use : trainer.session().device_use()) made_.devices.push_back({use});
    int tower = made_.place.rank * static_cast<int>(trainer.options().devices.size());
    for (const DeviceSpec& device : trainer.options().devices) {
      const auto on = std::ranges::find_if(
          made_.devices, [&](const auto& made) { return made.use.device == device; });
      on->tower = tower++;
    }
  }

  PlannedStep read(Trainer& trainer) {
    for (const auto& [plan, runs] : trainer.plans_of_step()) add(*plan, runs);
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
std::string range_text(const PlannedStep& step, std::int64_t PlannedStep::Messages::*member) {
  std::vector<std::int64_t> bytes;
  for (std::size_t r = 0; r < step.messages.size(); ++r)
    if (static_cast<int>(r) != step.place.rank) bytes.push_back(step.messages[r].*member);
  const auto [least, most] = std::ranges::minmax(bytes);
  return byte_text(least) == byte_text(most) ? byte_text(least)
                                             : cat(byte_text(least), " to ", byte_text(most));
}

std::string between_text(const PlannedStep& step) {
  const auto [sent, received] = step.all_messages();
  std::string text =
      cat("between hosts, a step: rank ", step.place.rank, " sends ", byte_text(sent),
          " and receives ", byte_text(received), "; to each of ", step.place.size - 1, " others ",
          range_text(step, &PlannedStep::Messages::sent), ", from each ",
          range_text(step, &PlannedStep::Messages::received));
  if (step.summed > 0) text += cat("; MPI sums ", byte_text(step.summed), " over all");
  return text + "\n";
}

}  // namespace

PlannedStep::Messages PlannedStep::all_messages() const {
  Messages all;
  for (const Messages& with : messages) {
    all.sent += with.sent;
    all.received += with.received;
  }
  return all;
}

PlannedStep planned_step(Trainer& trainer) { return StepReader(trainer).read(trainer); }

std::string to_text(const PlannedStep& step) {
  std::string text = cat("this is the plan of rank ", step.place.rank, " of ", step.place.size,
                         " processes, each on a host of its own\n");
  for (const auto& [use, tower, launches] : step.devices)
    text += cat(use.device.short_str(), ": ", tower >= 0 ? cat("tower ", tower) : "no tower", ", ",
                launches, " launches a step, ", use.variables, " variables, planned peak ",
                byte_text(use.peak_bytes), "\n");
  for (const auto& [from, to, bytes] : step.links)
    text += cat("within the host, a step: ", from.short_str(), " to ", to.short_str(), " ",
                byte_text(bytes), "\n");
  return step.place.size == 1 ? text : text + between_text(step);
}

Json to_json(const PlannedStep& step) {
  Json devices = Json::array(), within = Json::array(), links = Json::array();
  for (const auto& [use, tower, launches] : step.devices)
    devices.push(Json::object()
                     .set("device", use.device.str())
                     .set("tower", tower >= 0 ? Json(tower) : Json())
                     .set("launches", launches)
                     .set("variables", use.variables)
                     .set("variable_bytes", use.variable_bytes)
                     .set("peak_bytes", use.peak_bytes));
  for (const auto& [from, to, bytes] : step.links)
    within.push(Json::object().set("from", from.str()).set("to", to.str()).set("bytes", bytes));
  for (std::size_t r = 0; r < step.messages.size(); ++r)
    if (static_cast<int>(r) != step.place.rank)
      links.push(Json::object()
                     .set("rank", r)
                     .set("sent_bytes", step.messages[r].sent)
                     .set("received_bytes", step.messages[r].received));
  const auto [sent, received] = step.all_messages();
  return Json::object()
      .set("processes", step.place.size)
      .set("rank", step.place.rank)
      .set("devices", std::move(devices))
      .set("within_host", std::move(within))
      .set("between_hosts", Json::object()
                                .set("sent_bytes", sent)
                                .set("received_bytes", received)
                                .set("summed_bytes", step.summed)
                                .set("links", std::move(links)));
}

}  // namespace belfry
