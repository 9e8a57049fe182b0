// How steps run on GPUs: one thread per physical GPU enqueues the work of its lanes in the global
// order, launch by launch or, once that has been captured, segment by segment. Lanes of GPUs wait
// for each other in their streams, by events; those of CPUs poll what the GPU has stamped. Nothing
// waits for a GPU in any other way.
#include <chrono>
#include <thread>

#include "belfry/framework/run/step.h"

namespace belfry {

void Step::State::enqueue_list(int worker) {
  const Device& device = *runner.devices[at(lists[at(worker)].device)];
  const GpuTasks& all = replaying_ ? gpu_segments : gpu_tasks;
  try {
    device.backend->use(device.gpu);
    if (recording_) tie_clock(device.gpu);
    bool going = true;
    for (const int t : all.lists[at(worker - workers)])
      if (!(going = enqueue_task(all.tasks[at(t)]))) break;
    for (std::size_t l = 0; going && l < gpu_lanes.size(); ++l) {
      if (plan.lanes[l].gpu != device.gpu) continue;
      going = await_stamp(l, bases[l] + std::ssize(plan.lanes[l].launches), kAlone);
      if (going) gpu_lanes[l].stream->check_inputs();
    }
    if (!going) poison();
  } catch (...) {
    fail();
  }
}

// False if another worker failed.
bool Step::State::enqueue_task(const GpuTask& task) {
  const auto epoch = [&](const Wait& of) { return bases[at(of.lane)] + of.position + 1; };
  for (const Wait& wait : task.waits)
    await(
        signals[at(wait.lane)], epoch(wait), pool().gate(), [] { return false; }, spin);
  if (failed_.load(std::memory_order_acquire)) return false;
  if (task.writes) has_written_.store(true, std::memory_order_relaxed);
  for (const int launch : task.launches) guard->before(at(launch));
  GpuStream& stream = *gpu_lanes[at(task.lane)].stream;
  if (recording_) recording_->launches[at(task.launches[0])].start = recording_->now();
  stream.serve(*plan.node(plan.launches[at(task.launches[0])].node).node);
  const std::vector<GpuTask>& all = (replaying_ ? gpu_segments : gpu_tasks).tasks;
  for (const int earlier : task.after) stream.wait(*all[at(earlier)].event);
  for (const int gpu : task.fed) stream.wait(staging_.copied(gpu, slot_));
  for (const int lane : task.steps)
    stream.set_step(*gpu_lanes[at(lane)].stream, initial ? 0 : step_);
  // Before it is: it may fail, and be asked about, at once.
  for (const Wait& stamp : task.stamps)
    if (RankLane* const ranks = gpu_lanes[at(stamp.lane)].ranks)
      ranks->enqueued.store(epoch(stamp), std::memory_order_release);
  Recording::OnGpu* const timed = recording_ ? &recording_->on_gpu[at(task.launches[0])] : nullptr;
  if (timed) stream.record(*timed->start);
  if (const GpuSegment* const segment = task.segments[at(slot_)].get())
    stream.launch(*segment);
  else
    enqueue_launch(task.launches[0], stream);
  if (timed) stream.record(*timed->end);
  if (task.event) stream.record(*task.event);
  for (const Wait& stamp : task.stamps) {
    const GpuLane& lane = gpu_lanes[at(stamp.lane)];
    if (lane.stream != &stream) lane.stream->wait(*task.event);
    lane.stream->stamp(lane.finished.counter(), epoch(stamp));
  }
  if (recording_) recording_->launches[at(task.launches[0])].end = recording_->now();
  for (const Wait& signal : task.signals)
    signals[at(signal.lane)].set(epoch(signal), pool().gate());
  return true;
}

void Step::State::enqueue_launch(int launch, GpuStream& stream) {
  const Task& task = tasks[at(launch)];
  task.launch->enqueue(Pointers(task.inputs, task.outputs, task.workspace, task.launch->range, 0),
                       stream);
}

bool Step::State::await_stamp(std::size_t lane, std::int64_t epoch, int worker) {
  constexpr std::chrono::microseconds kNap(20);
  const GpuLane& awaited = gpu_lanes[lane];
  SpinTimer timer(spin);
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
  if (runner.gpus) runner.gpus->drain_copies();
  for (std::size_t l = 0; l < gpu_lanes.size(); ++l)
    if (gpu_lanes[l].stream) gpu_lanes[l].finished.set(launched(l));
  forget_captures();
  for (const auto& [communicators, made] : joined) communicators->live.reset();
}

}  // namespace belfry
