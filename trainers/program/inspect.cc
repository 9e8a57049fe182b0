#include "belfry/trainers/program/inspect.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "belfry/allreduce/simulation/simulated_step.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/numeric_order.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/placement/explain.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/callbacks/evaluator.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/planned_step.h"
#include "belfry/trainers/core/planned_work.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/machine_file.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/runs/memory_saves.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// Prints the needs of each device, and returns them: [{device, variables, variable_bytes,
// peak_bytes}].
JsonValue print_device_use(const Session& session, Console& console) {
  JsonValue devices = JsonValue::array();
  for (const DeviceUse& use : session.device_use()) {
    console.line(use.str());
    devices.push(JsonValue::object()
                     .set("device", use.device.str())
                     .set("variables", use.variables)
                     .set("variable_bytes", use.variable_bytes)
                     .set("peak_bytes", use.peak_bytes));
  }
  console.line(
      "(of a training step and, if there are test data, of evaluating whole batches; "
      "a shorter last batch adds its own)");
  return devices;
}

// Prints the common needs of logical GPUs, and returns them: [{physical_gpu, devices, peak_bytes}].
JsonValue print_physical_use(const Session& session, Console& console) {
  std::map<int, std::vector<DeviceSpec>> sharers;
  std::map<int, std::int64_t> bytes;
  for (const DeviceUse& use : session.device_use()) {
    if (use.physical_gpu < 0) continue;
    sharers[use.physical_gpu].push_back(use.device);
    bytes[use.physical_gpu] += use.peak_bytes;
  }
  JsonValue list = JsonValue::array();
  for (const auto& [gpu, devices] : sharers) {
    console.line(cat("physical GPU ", gpu, " (", short_names(devices), "): planned peak ",
                     bytes[gpu], " bytes without the workspaces of libraries"));
    JsonValue names = JsonValue::array();
    for (const DeviceSpec& device : devices) names.push(device.str());
    list.push(JsonValue::object()
                  .set("physical_gpu", gpu)
                  .set("devices", std::move(names))
                  .set("peak_bytes", bytes[gpu]));
  }
  return list;
}

const Node& node_to_explain(Trainer& trainer, const TrainFlags& flags) {
  const std::string& name = flags.inspection.explain;
  return naming_flag<FlagError, NotFoundError>(
      cat("--explain=", name), [&]() -> const Node& { return trainer.graph().find(name); });
}

JsonValue shards_json(const Explanation& explanation) {
  JsonValue outputs = JsonValue::array(), copies = JsonValue::array();
  for (const Explanation::DividedOutput& output : explanation.outputs)
    outputs.push(JsonValue::object()
                     .set("type", output.type)
                     .set("division", output.division)
                     .set("added_by", JsonValue::array(output.added_by)));
  for (const Explanation::WholeCopy& copy : explanation.copies)
    copies.push(JsonValue::object()
                    .set("name", copy.name)
                    .set("bytes", copy.bytes)
                    .set("users", JsonValue::array(copy.users)));
  return JsonValue::object()
      .set("count", explanation.shards)
      .set("runs", explanation.runs)
      .set("outputs", std::move(outputs))
      .set("copies", std::move(copies));
}

JsonValue to_json(const Explanation& explanation) {
  JsonValue scopes = JsonValue::array(), pulls = JsonValue::array(),
            candidates = JsonValue::array();
  JsonValue load = JsonValue::object();
  for (const Explanation::Scope& scope : explanation.scopes)
    scopes.push(JsonValue::object()
                    .set("file", scope.file)
                    .set("line", scope.line)
                    .set("what", scope.what));
  for (const Explanation::Pull& pull : explanation.pulls)
    pulls.push(
        JsonValue::object().set("who", pull.who).set("whom", pull.whom).set("why", pull.why));
  for (const Explanation::Candidate& candidate : explanation.candidates)
    candidates.push(JsonValue::object()
                        .set("device", candidate.device)
                        .set("kept", candidate.kept)
                        .set("reason", candidate.reason));
  for (const auto& [device, elements] : in_numeric_order(explanation.load))
    load.set(device, elements);
  return JsonValue::object()
      .set("node", explanation.node)
      .set("type", explanation.type)
      .set("requested", explanation.requested)
      .set("device", explanation.device)
      .set("scopes", std::move(scopes))
      .set("colocation", JsonValue::array(explanation.colocation))
      .set("pulls", std::move(pulls))
      .set("candidates", std::move(candidates))
      .set("load", std::move(load))
      .set("fallback", explanation.fallback.empty() ? JsonValue() : JsonValue(explanation.fallback))
      .set("fused_into",
           explanation.fused_into.empty() ? JsonValue() : JsonValue(explanation.fused_into))
      .set("shards", explanation.shards == 0 ? JsonValue() : shards_json(explanation));
}

// Plans everything that a run would run. On many devices that takes long.
std::unique_ptr<Trainer> planned(const TrainFlags& flags, const TrainerOptions& options,
                                 const Dataset& train, const Dataset* test) {
  const Busy busy(cat("planning for ", options.devices.size(), " devices"));
  auto trainer = std::make_unique<Trainer>(find_trainer(flags.kind), options, train, test);
  if (flags.inspection.dry_run && trainer->built().evaluates())
    prepare_predictors(trainer->session(), trainer->built().nodes().predictors, options.batch_size);
  return trainer;
}

// The subject of inspect(), and its output.
struct Inspection {
  const TrainFlags& flags;
  Trainer& trainer;
  Console& console;
};

JsonValue summary_json(const Inspection& at) {
  const ModelSummary summary =
      summarise(at.trainer.built().nodes(), at.trainer.built().batches().batches_per_step());
  at.console.line(to_table(summary));
  return to_json(summary);
}

// Prints how the plan divides batches, and adds it to `json`.
void add_division(const Inspection& at, JsonValue& json) {
  const ShardReport shards = shard_report(at.trainer.built());
  at.console.line(without_line_break(shards_text(shards)));
  const BatchPlan& batches = at.trainer.built().batches();
  if (batches.batches_per_step() > 1)
    at.console.line(cat("a step takes ", batches.batches_per_step(), " global batches, ",
                        batches.samples_per_step(), " samples, and makes one update"));
  json.set("global_batch_size", shards.global_batch)
      .set("gradient_accumulation_steps", batches.batches_per_step())
      .set("shards", shards.shards);
  add_k_dependence(json, shards.k_dependent_because);
}

// Prints the traffic over links, and adds it to `json`, if the plan is of several processes.
void add_step(const Inspection& at, JsonValue& json) {
  if (at.flags.group.processes == 1) return;
  const PlannedStep step = planned_step(at.trainer.built());
  at.console.line(without_line_break(to_text(step)));
  const std::string note =
      note_of_plan(at.flags, at.trainer.built().options().aggregation.allreduce);
  if (!note.empty()) at.console.line(note);
  json.set("step", to_json(step).set("note", note));
}

// How long the planned step takes on the hosts of --links, as `belfry simulate` predicts it.
// Nothing without such a file, or if the file has no peak for this precision.
void add_time(const Inspection& at, const TrainingWorkload& work, JsonValue& json) {
  const std::string& links = at.flags.links;
  if (links.empty()) return;
  const TrainerOptions& options = at.trainer.built().options();
  const std::optional<ClusterDescription> cluster = read_cluster(local_file_system(), links);
  const std::string precision(name_of(options.precision));
  if (!cluster || !cluster->flops.contains(precision)) {
    at.console.line(cat("no time is predicted: ", links,
                        cluster
                            ? " has no \"tflops\" for " + precision
                            : " describes links alone; files of docs/machines describe devices"));
    return;
  }
  const auto local = static_cast<int>(options.devices.size());
  const int on_host = local * std::min(at.flags.group.processes, options.session.planned_per_host);
  const SimulatedTraining training{.batch = options.batch_size,
                                   .precision = precision,
                                   .bucket_bytes = options.aggregation.bucket_mb * (1 << 20),
                                   .per_host = std::min(on_host, cluster->devices_per_host)};
  const SimulatedStep step =
      simulate_step(work, *cluster, training, local * at.flags.group.processes);
  char time[32];
  std::snprintf(time, sizeof time, "%.3f ms", step.seconds * 1e3);
  at.console.line(cat("a step takes at least ", time, " on ", step.devices, " devices of ",
                      cluster->name, ", with arithmetic at its peak (docs/simulator.md)"));
  json.set("predicted",
           JsonValue::object().set("machine", cluster->name).set("step_ms", step.seconds * 1e3));
}

// Adds what one device does, and how long that takes.
void add_work(const Inspection& at, JsonValue& json) {
  const std::optional<TrainingWorkload> work = planned_work(at.trainer.built());
  if (!work) return;
  json.set("work", to_json(*work));
  add_time(at, *work, json);
}

// A plan names no run directory, but one of several processes would have saves in memory with it.
std::int64_t bytes_of_memory_saves(const Inspection& at) {
  const bool keeps = at.flags.group.processes > 1 && at.flags.trainer.aggregation.zero_stage == 0;
  return keeps ? kSavesInMemory * bytes_of_snapshot(at.trainer.graph()) : 0;
}

// Prints the plan, and adds its effects to `json`. Returns the members about memory.
JsonValue add_plan(const Inspection& at, const std::string& placement, JsonValue& json) {
  Session& session = at.trainer.session();
  add_division(at, json);
  at.console.line(without_line_break(placement));
  const HeldMemory held = held_memory(at.trainer.graph(), at.flags.copies_of_state());
  const std::int64_t kept = bytes_of_memory_saves(at);
  JsonValue memory =
      JsonValue::object().set("planned_bytes", planned_bytes(session.memory_report(), held));
  memory.set("memory_saves_bytes", kept);
  memory.set("devices", print_device_use(session, at.console));
  if (kept > 0)
    at.console.line(cat("saves in memory will take ", byte_text(kept),
                        " of /dev/shm on each host, with --run_dir"));
  if (at.flags.trainer.session.logical_gpus > 1)
    memory.set("physical_gpus", print_physical_use(session, at.console));
  add_step(at, json);
  add_work(at, json);
  return memory;
}

JsonValue explanation_json(const Inspection& at, const Node& node) {
  Explanation explanation = at.trainer.session().explain(node.output());
  for (const std::shared_ptr<const Plan>& plan : at.trainer.built().plans())
    if (explanation.shards == 0) explain_step(node, *plan, explanation);
  at.console.line(without_line_break(explanation.str()));
  return to_json(explanation);
}

}  // namespace

std::string shards_text(const ShardReport& report) {
  const int shards = report.shards;
  std::string text = cat("the global batch of ", report.global_batch, " has ", shards,
                         shards == 1 ? " shard\n" : " shards\n");
  if (!report.k_dependent_because.empty())
    text += cat("the number of devices changes bits: ", report.k_dependent_because, "\n");
  switch (report.equal_up_to) {
    case 0: break;
    case 1: text += "no more devices than one can share the batch and its shards alike\n"; break;
    case 2: text += "1 and 2 devices give the same bits\n"; break;
    default:
      text += cat("1, 2, 4, ... up to ", report.equal_up_to, " devices give the same bits\n");
  }
  if (const int wanted = report.for_equal_bits; wanted > 0)
    text += cat("--shards=", wanted, " gives the same bits on 1, 2, 4, ... up to ", wanted,
                " devices; fewer are faster for this model\n");
  return text;
}

void inspect(const TrainFlags& flags, TrainerOptions options, const Dataset& train,
             const Dataset* test, Console& console, OutputFile* file, OutputFile* memory) {
  const InspectionFlags& asked = flags.inspection;
  if (asked.dry_run)
    for (const Dataset* const data : {&train, test})
      if (data) data->check();
  std::string placement;  // shown once the node to explain has been found
  options.session.placement_sink = [&](std::string_view lines) { placement += lines; };
  const std::unique_ptr<Trainer> trainer = planned(flags, options, train, test);
  if (asked.dry_run) trainer->loop().check_callbacks();
  const Node* const node = asked.explain.empty() ? nullptr : &node_to_explain(*trainer, flags);
  if (!trainer->built().choice().empty()) console.line(trainer->built().choice());
  const Inspection at{flags, *trainer, console};
  JsonValue json = asked.summary ? summary_json(at) : JsonValue::object();
  const JsonValue planned_memory =
      asked.dry_run ? add_plan(at, placement, json) : JsonValue::object();
  if (node) json = explanation_json(at, *node);
  for (const auto& [name, value] : planned_memory.members()) json.set(name, value);
  if (file) file->write(json.str(2) + "\n");
  if (memory) write_memory_report(trainer->session(), flags.copies_of_state(), *memory);
}

}  // namespace belfry
