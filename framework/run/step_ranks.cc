// How steps use NCCL: each rank's part of a collective is a launch on a communication lane, which
// the thread that enqueues for its GPU hands to the communicators. Who polls stamps looks after the
// ranks, too. When all workers are parked after a failure, the communicators are aborted; the next
// run makes them anew.
#include <algorithm>

#include "belfry/framework/plan/rank_launch.h"
#include "belfry/framework/run/step.h"

namespace belfry {

void Step::State::link_ranks() {
  const auto communicates = [](const Lane& lane) { return lane.communicates; };
  rank_lanes = std::vector<RankLane>(at(std::ranges::count_if(plan.lanes, communicates)));
  auto next = rank_lanes.begin();
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    if (!plan.lanes[l].communicates) continue;
    next->lane = l;
    gpu_lanes[l].ranks = &*next++;
  }
  join_ranks();
  for (const Launch& launch : plan.launches)
    if (launch.rank) joined[&launch.rank->communicators()] = 0;
}

// Again where the plan becomes another state's, whose `failed_` they look at from then on.
void Step::State::join_ranks() {
  for (const Launch& launch : plan.launches)
    if (launch.rank)
      launch.rank->join(runner.gpus->communicators(launch.rank->rank().devices), failed_);
}

void Step::State::connect() {
  if (joined.empty()) return;
  const std::lock_guard lock(runner.mutex);
  make_connections();
}

bool Step::State::connected() const {
  return std::ranges::all_of(
      joined, [](const auto& used) { return used.first->live && used.first->made == used.second; });
}

void Step::State::make_connections() {
  if (joined.empty() || connected()) return;
  for (auto& [communicators, made] : joined) {
    if (!communicators->live) {
      const Device& first = *runner.devices[at(plan.lanes[rank_lanes[0].lane].device)];
      communicators->live =
          first.backend->make_communicators(communicators->gpus, runner.nccl_timeout);
      ++communicators->made;
    }
    made = communicators->made;
  }
  try {
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) bases[l] = launched(l);
    has_written_.store(false, std::memory_order_relaxed);
    pool().run(static_cast<int>(lists.size()), [this](int worker) { connect_list(worker); });
    if (failed_.load(std::memory_order_acquire)) recover();
  } catch (...) {
    for (auto& [communicators, made] : joined) made = 0;
    throw;
  }
}

// Each collective once, with whatever is in its outputs. Ranks that one thread serves go together:
// connections are made while all ranks of a collective are there.
void Step::State::connect_list(int worker) {
  const WorkerList& list = lists[at(worker)];
  if (list.device < 0) return;
  try {
    const Device& device = *runner.devices[at(list.device)];
    device.backend->use(device.gpu);
    std::vector<RankTensors> group;
    const RankLaunch* first = nullptr;
    const auto flush = [&] {
      if (first) first->communicators().live->all_reduce(first->reduction(), group, failed_);
      group.clear();
      first = nullptr;
    };
    for (const int t : gpu_tasks.lists[at(worker - workers)]) {
      const Task& task = tasks[at(gpu_tasks.tasks[at(t)].launches[0])];
      if (!task.launch->rank) continue;
      RankLaunch& rank = *task.launch->rank;
      if (first && &first->node() != &rank.node()) flush();
      first = &rank;
      GpuStream& stream = *gpu_lanes[at(task.launch->lane)].stream;
      stream.serve(rank.node());
      group.push_back(rank.in_outputs(
          Pointers(task.inputs, task.outputs, task.workspace, task.launch->range, 0), stream));
    }
    flush();
    for (RankLane& lane : rank_lanes) {
      const GpuLane& on_gpu = gpu_lanes[lane.lane];
      if (plan.lanes[lane.lane].gpu != device.gpu) continue;
      on_gpu.stream->stamp(on_gpu.finished.counter(), bases[lane.lane] + 1);
      lane.enqueued.store(bases[lane.lane] + 1, std::memory_order_release);
    }
    for (RankLane& lane : rank_lanes)
      if (plan.lanes[lane.lane].gpu == device.gpu &&
          await_stamp(lane.lane, bases[lane.lane] + 1, kAlone)) {
        lane.enqueued.store(bases[lane.lane], std::memory_order_release);
        gpu_lanes[lane.lane].finished.set(bases[lane.lane]);
      }
  } catch (...) {
    fail();
  }
}

void Step::State::watch_ranks() {
  if (rank_lanes.empty()) return;
  const std::unique_lock lock(watching_, std::try_to_lock);
  if (!lock) return;
  try {
    for (const auto& [communicators, made] : joined) communicators->live->check();
  } catch (const CommError& error) {
    const std::string what = unfinished();
    throw CommError(cat(error.what(), what.empty() ? "" : "; it failed ", what));
  }
  const auto now = std::chrono::steady_clock::now();
  for (RankLane& lane : rank_lanes) {
    const std::int64_t finished = gpu_lanes[lane.lane].finished.value();
    const bool waits = lane.enqueued.load(std::memory_order_acquire) > finished;
    if (!waits || lane.seen != finished) {
      lane.seen = waits ? finished : -1;
      lane.since = now;
    } else if (now - lane.since > runner.nccl_timeout) {
      throw CommError(cat(unfinished(), " has not finished within ", runner.nccl_timeout.count(),
                          " s: not all GPUs take part, or they do not reach each other "
                          "(NCCL_DEBUG=INFO says what NCCL does); steps that take longer need a "
                          "larger nccl_timeout_s"));
    }
  }
}

// The first collective that was enqueued and has not finished, where it is; "" if there is none.
std::string Step::State::unfinished() const {
  std::size_t first = tasks.size(), lane_of = 0;
  for (const RankLane& lane : rank_lanes) {
    const std::int64_t finished = gpu_lanes[lane.lane].finished.value();
    if (lane.enqueued.load(std::memory_order_acquire) <= finished) continue;
    const std::vector<int>& launches = plan.lanes[lane.lane].launches;
    const std::int64_t position = finished - bases[lane.lane];
    if (position < 0 || position >= std::ssize(launches)) continue;
    if (at(launches[at(position)]) < first) {
      first = at(launches[at(position)]);
      lane_of = lane.lane;
    }
  }
  if (first == tasks.size()) return "";
  return cat(describe_collective(plan.launches[first].rank->node()), ", on ",
             runner.devices[at(plan.lanes[lane_of].device)]->spec);
}

// All workers are parked. What any step has captured may refer to the communicators: it ends first.
void Step::State::abort_ranks() noexcept {
  if (joined.empty()) return;
  for (LinkedPlan* const of_step : runner.captured) of_step->forget_captures();
  for (const auto& [communicators, made] : joined)
    if (communicators->live) communicators->live->abort_all();
  for (RankLane& lane : rank_lanes) {
    lane.seen = -1;
    lane.enqueued.store(0, std::memory_order_relaxed);
  }
}

}  // namespace belfry
