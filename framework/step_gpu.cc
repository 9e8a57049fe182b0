// How steps run on GPUs: one thread per physical GPU enqueues the work of its lanes in the global
// order. Lanes of GPUs wait for each other in their streams, by events; those of CPUs poll what the
// GPU has stamped. Nothing waits for a GPU in any other way.
#include <chrono>
#include <thread>

#include "belfry/framework/step.h"

namespace belfry {

void Step::State::link_gpus() {
  gpu_lanes.resize(plan.lanes.size());
  if (gpus_of(plan).empty()) return;
  gpu_tasks.resize(tasks.size());
  constexpr std::size_t kLine = 64;
  counters = Buffer(runner.gpus->counters(), kLine * plan.lanes.size());
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const Lane& lane = plan.lanes[l];
    if (lane.gpu < 0) continue;
    require(!shares(), "a step of Locks::kEachVariable has work on ",
            runner.devices[at(lane.device)]->spec, ", but runs on CPUs alone");
    std::byte* const counter = counters.data() + kLine * l;
    gpu_lanes[l] = {&runner.gpus->of(lane.device, lane.communicates),
                    Stamp(*reinterpret_cast<std::int64_t*>(counter))};
    gpu_tasks[at(lane.launches.back())].stamps = true;  // the end of a run waits for it
  }
}

void Step::State::enqueue_list(int worker) {
  const WorkerList& list = lists[at(worker)];
  const Device& device = *runner.devices[at(list.device)];
  try {
    device.backend->use(device.gpu);
    bool going = true;
    for (const int t : list.tasks)
      if (!(going = enqueue_task(at(t)))) break;
    for (std::size_t l = 0; going && l < gpu_lanes.size(); ++l) {
      if (plan.lanes[l].gpu != device.gpu) continue;
      going = await_stamp(l, bases[l] + std::ssize(plan.lanes[l].launches), -1);
      if (going) gpu_lanes[l].stream->check_inputs();
    }
    if (!going) poison();
  } catch (...) {
    fail();
  }
}

// False if another worker failed.
bool Step::State::enqueue_task(std::size_t t) {
  const Task& task = tasks[t];
  const Launch& launch = *task.launch;
  for (const Wait& wait : task.waits)
    await(signals[at(wait.lane)], bases[at(wait.lane)] + wait.position + 1, pool().gate(),
          [] { return false; });
  if (failed_.load(std::memory_order_acquire)) return false;
  const PlanNode& node = plan.node(launch.node);
  if (node.writes() > 0) has_written_.store(true, std::memory_order_relaxed);
  guard->before(t);
  const auto lane = at(launch.lane);
  const std::int64_t epoch = bases[lane] + launch.position + 1;
  GpuStream& stream = *gpu_lanes[lane].stream;
  const GpuTask& on_gpu = gpu_tasks[t];
  if (recording_) recording_->launches[t].start = recording_->now();
  stream.serve(*node.node);
  for (const GpuEvent* event : on_gpu.events) stream.wait(*event);
  launch.enqueue(
      Pointers(task.inputs, task.outputs, task.workspace, launch.range, initial ? 0 : step_),
      stream);
  if (on_gpu.event) stream.record(*on_gpu.event);
  if (on_gpu.stamps) stream.stamp(gpu_lanes[lane].finished.counter(), epoch);
  if (on_gpu.rank_lane) on_gpu.rank_lane->enqueued.store(epoch, std::memory_order_release);
  if (recording_) recording_->launches[t].end = recording_->now();
  if (task.signals) signals[lane].set(epoch, pool().gate());
  return true;
}

bool Step::State::await_stamp(std::size_t lane, std::int64_t epoch, int worker) {
  constexpr std::chrono::microseconds kNap(20);
  const GpuLane& awaited = gpu_lanes[lane];
  SpinTimer timer;
  while (!awaited.finished.reached(epoch)) {
    if (failed_.load(std::memory_order_acquire)) return false;
    if (worker >= 0 && help(worker)) {
      timer.restart();
    } else if (timer.expired()) {
      for (const GpuLane& other : gpu_lanes)  // for which the awaited one may wait
        if (other.stream) other.stream->check();
      watch_ranks();
      std::this_thread::sleep_for(kNap);
    }
  }
  return true;
}

// All workers are parked.
void Step::State::drain_gpus() {
  abort_ranks();  // what waits for other ranks ends
  for (const GpuLane& lane : gpu_lanes)
    if (lane.stream) lane.stream->drain();
  for (std::size_t l = 0; l < gpu_lanes.size(); ++l)
    if (gpu_lanes[l].stream)
      gpu_lanes[l].finished.set(runs * static_cast<std::int64_t>(plan.lanes[l].launches.size()));
  for (const auto& [communicators, made] : joined) communicators->live.reset();
}

}  // namespace belfry
