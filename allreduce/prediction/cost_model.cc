#include "belfry/allreduce/prediction/cost_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "belfry/allreduce/prediction/virtual_time.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/plan/fused_update.h"
#include "belfry/framework/plan/useful_workers.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/split.h"

namespace belfry {
namespace {

// Turns the launches of a plan into jobs.
class PlanJobs {
 public:
  PlanJobs(const Plan& plan, std::span<const DeviceSpec> devices, const MachineDescription& machine,
           PlanExtent extent)
      : plan_(plan), machine_(machine), extent_(extent), deps_(launch_deps(plan)) {
    for (const DeviceSpec& device : devices) {
      const auto known = std::ranges::find(machine.devices, device);
      index_.push_back(
          known == machine.devices.end() ? -1 : static_cast<int>(known - machine.devices.begin()));
      names_.push_back(device);
    }
    number_memories();
    bandwidth_ = machine.bandwidth_at(bytes_of_step());
    make_runners(static_cast<int>(devices.size()));
    for (const LaunchIndex l : plan.launches.indices()) add(l);
  }

  std::vector<TimedJob> jobs;
  std::vector<JobRunner> runners;
  const Bandwidth& bandwidth() const { return bandwidth_; }
  bool on_several_workers() const { return on_several_; }

 private:
  // A variable has buffers of its own and of values that are made there to be assigned: one memory.
  void number_memories() {
    std::map<const Node*, BufferIndex> of_variable;
    for (const BufferIndex b : plan_.buffers.indices()) {
      const BufferRecord& record = plan_.buffers[b];
      const bool is_variable = record.kind == BufferKind::kState;
      memory_.push_back(is_variable ? of_variable.try_emplace(record.node, b).first->second : b);
    }
  }

  BufferIndex memory(const Value& value) const { return memory_[plan_.buffer(value)]; }

  std::int64_t bytes_of_step() const {
    std::int64_t bytes = 0;
    for (const std::int64_t arena : plan_.arena_bytes) bytes += arena;
    for (const BufferIndex b : plan_.buffers.indices())
      if (plan_.buffers[b].kind != BufferKind::kArena && memory_[b] == b)
        bytes += plan_.buffers[b].bytes;
    return std::max<std::int64_t>(1, bytes);
  }

  // The number of workers, or on a machine without them one runner per strand.
  int count_runners(int devices) const {
    if (machine_.workers == 0) return static_cast<int>(plan_.strands.size());
    const int most = std::min(machine_.workers, devices * plan_.shards_per_device);
    return extent_ == PlanExtent::kWholeStep ? useful_workers(plan_, most)
                                             : workers_for(plan_, most);
  }

  // Deals strands to workers as a step does.
  void make_runners(int devices) {
    const bool has_workers = machine_.workers > 0;
    const int count = count_runners(devices);
    runner_of_strand_ = deal_strands(plan_, count);
    const int last = std::ranges::max(runner_of_strand_);  // GPUs come after the workers of CPUs
    runners.resize(at(std::max(count, last + 1)), JobRunner{.worker = has_workers});
    on_several_ = has_workers && count > 1;
    if (on_several_ && bandwidth_.other_gbps > 0)
      from_others_ = bytes_from_other_workers(plan_, runner_of_strand_, count,
                                              std::numeric_limits<double>::max());
  }

  void add(LaunchIndex l) {
    const Launch& launch = plan_.launches[l];
    const PlanNode& node = plan_.node(launch.node);
    TimedJob job{.runner = runner_of_strand_[launch.strand], .deps = jobs_before(launch.node)};
    // The first launch of a collective has the price of those on all GPUs.
    const bool is_first = job_of_.try_emplace(launch.node, l.value()).second;
    if (is_first && (!node.types.empty() || !node.inputs.empty())) price(l, job);
    runners[at(job.runner)].jobs.push_back(l.value());
    jobs.push_back(std::move(job));
  }

  // Prices a launch that does something. Launches that only wait are part of
  // MachineDescription::run_us.
  void price(LaunchIndex l, TimedJob& job) {
    const Launch& launch = plan_.launches[l];
    const PlanNode& node = plan_.node(launch.node);
    require_one_memory(node);
    job.fixed = machine_.launch_us * 1e-6;
    job.bytes = touched(launch.node);
    if (machine_.workers == 0) job.rate = bandwidth_.one_gbps * 1e9;
    if (!machine_.links.empty()) cross(node, job);
    job.shared = on_several_ && (launch.parts() > 1 || plan_.strands[launch.strand].shards > 1);
    if (job.shared) job.fixed += machine_.share_us * 1e-6;
    if (!from_others_.empty())
      job.fixed += fetching_seconds(l) / (job.shared ? static_cast<double>(runners.size()) : 1);
    const auto elsewhere = [&](int dep) { return jobs[at(dep)].runner != job.runner; };
    if (std::ranges::any_of(job.deps, elsewhere)) job.fixed += machine_.wait_us * 1e-6;
  }

  // A machine without links is one memory, of one kind of device.
  void require_one_memory(const PlanNode& node) const {
    const auto is_known = [&](int device) {
      return names_[at(device)].type == machine_.devices[0].type;
    };
    if (!machine_.links.empty() || machine_.devices.empty()) return;
    for (const Value& input : node.inputs)
      require<NotFoundError>(is_known(plan_.device(input)) && is_known(node.device()),
                             "the machine has no link between ",
                             names_[at(plan_.device(input))].short_str(), " and ",
                             names_[at(node.device())].short_str());
  }

  // Extra seconds for reading bytes that other workers wrote.
  double fetching_seconds(LaunchIndex l) const {
    const double longer = 1 / bandwidth_.other_gbps - 1 / bandwidth_.one_gbps;
    return from_others_[l] * std::max(0.0, longer) * 1e-9;
  }

  std::vector<int> jobs_before(NodeIndex n) const {
    std::vector<int> found;
    const auto add = [&](NodeIndex node) {
      for (const NodeIndex dep : deps_[node]) found.push_back(job_of_.at(dep));
    };
    add(n);
    if (!plan_.node(n).rank()) return found;
    // A rank waits for everything that any rank waits for. The ranks' nodes are consecutive.
    for (NodeIndex other = n; --other && is_rank_of(other, n);) add(other);
    for (NodeIndex other = n; ++other < plan_.nodes.next() && is_rank_of(other, n);) add(other);
    return found;
  }

  bool is_rank_of(NodeIndex other, NodeIndex n) const {
    return plan_.node(other).rank() && plan_.node(other).node == plan_.node(n).node;
  }

  // Bytes read, plus bytes written at their cost relative to reads.
  double touched(NodeIndex n) const {
    const PlanNode& node = plan_.node(n);
    // The value has been made in the variable.
    if (node.op == &kAssign && memory(node.inputs[0]) == memory(node.inputs[1])) return 0;
    const bool part = node.op == &kSlice || node.op == &kSplit;  // reads what it writes
    std::map<BufferIndex, double> read, written;
    const auto add = [](double& known, const TensorType& type) {
      known = std::max(known, static_cast<double>(type.bytes()));
    };
    const int writes = node.writes();
    const std::vector<char> only_written = assigned(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const BufferIndex buffer = memory(node.inputs[i]);
      if (static_cast<int>(i) < writes) add(written[buffer], plan_.type(node.inputs[i]));
      if (!part && !only_written[i]) add(read[buffer], plan_.type(node.inputs[i]));
    }
    double total = 0;
    if (writes == 0)
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        add(written[memory_[plan_.buffer_of[n][i]]], node.types[i]);
        if (part) total += static_cast<double>(node.types[i].bytes());
      }
    for (const auto& [buffer, bytes] : read) total += bytes;
    for (const auto& [buffer, bytes] : written)
      total += bytes * (read.contains(buffer) ? bandwidth_.rewrite : bandwidth_.write);
    return total;
  }

  // By input: whether it is a variable that the launch overwrites without reading it.
  static std::vector<char> assigned(const PlanNode& node) {
    std::vector<char> inputs(node.inputs.size());
    if (node.op == &kAssign) inputs[0] = true;
    if (!node.fused_update()) return inputs;
    const std::vector<FusedReader> readers = readers_of(*node.fused_update());
    for (std::size_t i = 0; i < readers.size(); ++i)
      inputs[i] = readers[i].member->op == &kAssign && readers[i].input == 0;
    return inputs;
  }

  // Prices tensors that go from one memory to another.
  void cross(const PlanNode& node, TimedJob& job) {
    const int there = node.inputs.empty() ? node.device() : plan_.device(node.inputs[0]);
    if (node.op == &kCopy && there != node.device()) {
      std::int64_t bytes = 0;
      for (const TensorType& type : node.types) bytes += type.bytes();
      send(there, node.device(), bytes, job);
    } else if (node.participants() > 0) {
      if (!node.rank()) job.runner = runner_called("collectives");
      job.fixed += exchange_seconds(node);
      job.bytes = 0;
    }
  }

  void send(int from_device, int to_device, std::int64_t bytes, TimedJob& job) {
    const int from = index(from_device), to = index(to_device);
    const Link& link = machine_.links[at(from)][at(to)];
    job.runner = runner_called(link.bus.empty() ? cat(from, ">", to) : "bus " + link.bus);
    job.fixed += link.latency_us * 1e-6;
    job.bytes = static_cast<double>(bytes);
    job.rate = link.gbps * 1e9;
  }

  // Seconds of a reduce-scatter by fragments, then a gather: twice the transfers of the slowest
  // device or bus, and the sums between. A rank costs the exchange of all ranks that it takes part
  // in.
  double exchange_seconds(const PlanNode& node) const {
    std::set<int> members;
    for (const int device : node.rank() ? node.rank()->devices : node.devices)
      members.insert(index(device));
    const auto participants = static_cast<double>(members.size());
    double bytes = 0;  // tensors of all participants
    for (const TensorType& type : node.types) bytes += static_cast<double>(type.bytes());
    const double fragment = bytes / node.participants() / participants;
    std::map<std::string, double> busy;  // seconds of each direction of a link, or of a bus
    for (const int from : members)
      for (const int to : members) {
        if (from == to) continue;
        const Link& link = machine_.links[at(from)][at(to)];
        busy[link.bus.empty() ? cat(from, ">", to) : link.bus] +=
            link.latency_us * 1e-6 + fragment / (link.gbps * 1e9);
      }
    double slowest = 0;
    for (const auto& [link, seconds] : busy) slowest = std::max(slowest, seconds);
    slowest += (participants - 1) * machine_.launch_us * 1e-6;  // a device sends one by one
    return 2 * slowest + (participants + 2) * fragment / (bandwidth_.one_gbps * 1e9);
  }

  int runner_called(const std::string& name) {
    const auto [entry, added] = named_.try_emplace(name, static_cast<int>(runners.size()));
    if (added) runners.emplace_back();
    return entry->second;
  }

  int index(int device) const {
    return index_[at(device)] >= 0 ? index_[at(device)] : machine_.index_of(names_[at(device)]);
  }

  const Plan& plan_;
  const MachineDescription& machine_;
  PlanExtent extent_;
  NodeLists deps_;
  std::vector<int> index_;  // session's device -> machine's device, or -1
  std::vector<DeviceSpec> names_;
  Indexed<BufferRecord, BufferIndex> memory_;  // the first buffer in the same memory
  Bandwidth bandwidth_;
  Indexed<Strand, int> runner_of_strand_;
  bool on_several_ = false;              // there are several workers, which help each other
  Indexed<Launch, double> from_others_;  // bytes_from_other_workers(), if they cost more
  std::map<NodeIndex, int> job_of_;
  std::map<std::string, int> named_;
};

}  // namespace

double predict_seconds(const Plan& plan, std::span<const DeviceSpec> devices,
                       const MachineDescription& machine, PlanExtent extent) {
  PlanJobs jobs(plan, devices, machine, extent);
  const bool wakes = extent == PlanExtent::kWholeStep && jobs.on_several_workers();
  const double fixed = machine.run_us + (wakes ? machine.wake_us : 0);
  const double one = jobs.bandwidth().one_gbps * 1e9, all = jobs.bandwidth().all_gbps * 1e9;
  return fixed * 1e-6 + run_jobs(jobs.jobs, jobs.runners, {machine.workers, one, all});
}

}  // namespace belfry
