// How segments are captured: between two runs, each by the thread that enqueues for its GPU, while
// nobody looks at the streams, which would end a capture.
#include <algorithm>
#include <map>
#include <set>

#include "belfry/framework/run/step.h"

namespace belfry {

void Step::State::capture() {
  if (!joined.empty()) runner.captured.insert(this);
  pool().run(static_cast<int>(lists.size()), capture_);
  if (failed_.load(std::memory_order_acquire)) recover();
  captured[at(slot_)] = true;
}

void Step::State::capture_list(int worker) {
  if (worker < workers) return;
  const Device& device = *runner.devices[at(lists[at(worker)].device)];
  try {
    device.backend->use(device.gpu);
    for (const int t : gpu_segments.lists[at(worker - workers)])
      if (gpu_segments.tasks[at(t)].launches.size() > 1) capture_segment(gpu_segments.tasks[at(t)]);
  } catch (...) {
    fail();
  }
}

// Lanes order each other as in runs launch by launch, with the same events. Besides, each lane but
// the segment's own begins behind the segment's beginning, and the end comes behind the lane's,
// unless a wait of that lane, or for its last launch, says so already.
void Step::State::capture_segment(GpuTask& task) {
  const Device& device = *runner.devices[at(plan.lanes[at(task.lane)].device)];
  const auto new_event = [&] { return device.backend->make_event(device.gpu); };
  const auto stream_of = [&](int lane) -> GpuStream& { return *gpu_lanes[at(lane)].stream; };
  const auto event_of = [&](int launch) -> GpuEvent& {
    return *gpu_tasks.tasks[at(gpu_tasks.of[at(launch)])].event;
  };
  const auto node_of = [&](int launch) -> const Node& {
    return *plan.node(plan.launches[at(launch)].node).node;
  };
  std::vector<std::vector<int>> waits;  // by launch of the segment: for others of it
  std::map<int, int> first, last;       // by lane
  std::set<int> waited_for;
  for (const int l : task.launches) {
    const Launch& launch = plan.launches[at(l)];
    first.emplace(launch.lane, l);
    last[launch.lane] = l;
    waits.emplace_back();
    for (const Wait& wait : launch.waits) {
      const int before = awaited(plan, wait);
      if (!std::ranges::binary_search(task.launches, before)) continue;
      waits.back().push_back(before);
      waited_for.insert(before);
    }
  }
  const std::unique_ptr<GpuEvent> beginning = new_event();
  std::map<int, std::unique_ptr<GpuEvent>> ends;  // by lane
  for (const auto& [lane, launch] : last)
    if (lane != task.lane && !waited_for.contains(launch)) ends.emplace(lane, new_event());

  GpuStream& origin = stream_of(task.lane);
  origin.begin_capture(node_of(task.launches.front()), node_of(task.launches.back()));
  try {
    origin.record(*beginning);
    for (std::size_t i = 0; i < task.launches.size(); ++i) {
      const int launch = task.launches[i];
      const int lane = plan.launches[at(launch)].lane;
      GpuStream& stream = stream_of(lane);
      stream.serve(node_of(launch));
      if (lane != task.lane && first[lane] == launch && waits[i].empty()) stream.wait(*beginning);
      for (const int before : waits[i]) stream.wait(event_of(before));
      enqueue_launch(launch, stream);
      if (waited_for.contains(launch)) stream.record(event_of(launch));
    }
    for (const auto& [lane, end] : ends) {
      stream_of(lane).record(*end);
      origin.wait(*end);
    }
    task.segments[at(slot_)] = origin.end_capture();
  } catch (...) {
    origin.abandon_capture();
    throw;
  }
}

void LinkedPlan::forget_captures() {
  for (GpuTask& task : gpu_segments.tasks) task.segments = {};
  captured = {};
  warm = false;
}

}  // namespace belfry
