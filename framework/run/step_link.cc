// How a plan gets its memory, its pointers and the lists of its workers.
#include <algorithm>
#include <cstring>
#include <utility>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/run/step.h"
#include "belfry/framework/run/useful_workers.h"

namespace belfry {

Step::State::State(Plan compiled, Runner& owner) : runner(owner), locks_(compiled.locks) {
  plan = std::move(compiled);
  fetched.assign(plan.fetches.size(), Tensor());
  if (runner.dry) return;
  allocate();
  link();
  staging_.link(plan, arenas, runner.devices, runner.gpus.get());
  link_locks();
  link_gpus();
  share_out();
  link_ranks();
  guard = std::make_unique<ArenaGuard>(plan, arenas);
  work_ = [this](int worker) { run_list(worker); };
  capture_ = [this](int worker) { capture_list(worker); };
}

void Step::State::replace(State& other) {
  for (std::size_t i = 0; i < fetched.size(); ++i) {
    if (fetched[i].bytes() > 0)
      std::memcpy(other.fetched[i].mutable_raw(), fetched[i].raw(), fetched[i].bytes());
    fetched[i] = std::move(other.fetched[i]);
  }
  std::swap<LinkedPlan>(*this, other);
  staging_.replace(other.staging_);
  join_ranks();
}

void Step::State::allocate() {
  for (std::size_t d = 0; d < plan.arena_bytes.size(); ++d)
    arenas.emplace_back(runner.devices[d]->memory, at(plan.arena_bytes[d]));
  fill_constants();
  for (const PlanNode& node : plan.nodes)
    if (node.fetch >= 0) fetched[at(node.fetch)] = Tensor(node.types[0].shape, node.types[0].dtype);
}

// On GPUs.
void Step::State::fill_constants() {
  std::set<int> read;
  for (const Launch& launch : plan.launches)
    for (const Value& input : plan.node(launch.node).inputs) read.insert(plan.buffer(input));
  for (const int buffer : read) {
    const BufferRecord& record = plan.buffers[at(buffer)];
    const Device& device = *runner.devices[at(record.device)];
    if (record.place != Place::kFixed || !device.on_gpu()) continue;
    const Tensor& value = record.node->options<ConstantOptions>().value;
    device.memory.copy(address(buffer), value.raw(), value.bytes());
  }
}

void* Step::State::address(int buffer) {
  const BufferRecord& record = plan.buffers[at(buffer)];
  switch (record.place) {
    case Place::kArena: return arenas[at(record.device)].data() + record.offset;
    case Place::kState: return runner.variable_memory(*record.node);
    case Place::kFixed:
      if (runner.devices[at(record.device)]->on_gpu())
        return arenas[at(record.device)].data() + record.offset;
      // Kernels do not write their inputs, so the graph's tensor serves all sessions.
      return const_cast<std::byte*>(record.node->options<ConstantOptions>().value.raw());
    case Place::kFetch: return fetched[at(record.index)].mutable_raw();
    case Place::kFeed: break;  // in a slot, or the caller's
  }
  return nullptr;  // set at every run
}

// Resolves every pointer once.
void Step::State::link() {
  std::size_t pointers = 0;
  for (const Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    pointers += node.inputs.size() + node.types.size();
  }
  addresses.reserve(pointers);
  feed_uses.resize(plan.feeds.size());
  const auto add = [&](int buffer) {
    const BufferRecord& record = plan.buffers[at(buffer)];
    addresses.push_back(address(buffer));
    if (record.place == Place::kFeed) feed_uses[at(record.index)].push_back(&addresses.back());
  };
  for (const Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    Task task{};
    task.launch = &launch;
    const std::size_t first = addresses.size();
    for (const Value& input : node.inputs) add(plan.buffer(input));
    for (const int buffer : plan.buffer_of[at(launch.node)]) add(buffer);
    task.inputs = {addresses.data() + first, node.inputs.size()};
    task.outputs = {addresses.data() + first + node.inputs.size(), node.types.size()};
    if (launch.workspace >= 0) task.workspace = static_cast<std::byte*>(address(launch.workspace));
    task.parts = launch.chunks();
    tasks.push_back(std::move(task));
  }
}

void Step::State::share_out() {
  const int most = shares() ? 1 : runner.workers;
  workers = runner.all_workers ? workers_for(plan, most) : useful_workers(plan, most);
  opens = workers > 1 && std::ranges::any_of(tasks, [](const Task& t) { return t.parts > 1; });
  const std::vector<int> worker_of = deal_lanes(plan, workers);
  lists = std::vector<WorkerList>(at(workers) + gpus_of(plan).size());
  if (!gpus_of(plan).empty())
    spin = runner.gpu_spin.value_or(gpu_spin(static_cast<int>(lists.size()), usable_cores()));
  signals = std::vector<Signal>(plan.lanes.size());
  bases.resize(plan.lanes.size());
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const Launch& launch = *tasks[t].launch;
    const Lane& lane = plan.lanes[at(launch.lane)];
    WorkerList& list = lists[at(worker_of[at(launch.lane)])];
    if (lane.gpu >= 0) {
      list.device = lane.device;
      continue;
    }
    list.tasks.push_back(static_cast<int>(t));
    for (const Wait& wait : launch.waits) link_wait(t, wait, worker_of);
  }
  for (const WorkerList& list : lists)
    require<Internal>(
        std::ranges::count_if(list.tasks, [&](int t) { return tasks[at(t)].parts > 1; }) <
            Ticket::kOpenings,
        "a worker opens ", Ticket::kOpenings,
        " launches or more in one run, which "
        "tickets cannot tell apart");
  link_gpu_tasks(worker_of);
}

// Of a launch on a host.
void Step::State::link_wait(std::size_t t, const Wait& wait, std::span<const int> worker_of) {
  Task& task = tasks[t];
  if (plan.lanes[at(wait.lane)].gpu >= 0) {
    task.stamps.push_back(wait);
  } else if (worker_of[at(wait.lane)] != worker_of[at(task.launch->lane)]) {
    task.waits.push_back(wait);
    tasks[at(awaited(plan, wait))].signals = true;
  }
}

}  // namespace belfry
