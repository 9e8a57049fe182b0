// When GPUs did what a traced run gave them: each launch is between two timers in its stream, and
// one more, at the start, ties the GPU's clock to the host's.
#include <algorithm>

#include "belfry/framework/run/step.h"

namespace belfry {

// Before the run, which makes nothing.
void Step::State::make_timers() {
  if (gpus_of(plan).empty()) return;
  recording_->on_gpu.resize(plan.launches.size());
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const Lane& lane = plan.lanes[at(plan.launches[l].lane)];
    if (lane.gpu < 0) continue;
    const GpuBackend& backend = *runner.devices[at(lane.device)]->backend;
    Recording::OnGpu& of = recording_->on_gpu[l];
    of.start = backend.make_timer(lane.gpu);
    of.end = backend.make_timer(lane.gpu);
    Recording::Tie& tie = recording_->ties[lane.gpu];
    if (!tie.timer) tie.timer = backend.make_timer(lane.gpu);
  }
}

// The GPU has nothing to do yet, so it comes to the timer at once.
void Step::State::tie_clock(int gpu) {
  Recording::Tie& tie = recording_->ties.at(gpu);
  const auto lane = std::ranges::find(plan.lanes, gpu, &Lane::gpu) - plan.lanes.begin();
  gpu_lanes[at(lane)].stream->record(*tie.timer);
  tie.time = recording_->now();
}

// After the run, when GPUs have come to all timers. None began before it was given what it did: by
// as much as one seems to have, the GPU came later to its first timer than the host saw.
void Step::State::read_timers() {
  Recording& recording = *recording_;
  std::map<int, std::int64_t> lag;
  for (std::size_t l = 0; l < recording.on_gpu.size(); ++l) {
    Recording::OnGpu& of = recording.on_gpu[l];
    if (!of.start) continue;
    const Lane& lane = plan.lanes[at(plan.launches[l].lane)];
    const GpuBackend& backend = *runner.devices[at(lane.device)]->backend;
    const Recording::Tie& tie = recording.ties.at(lane.gpu);
    Recording::Interval& time = recording.launches[l];
    of.enqueued = time.start;
    time.start = tie.time + backend.elapsed(*tie.timer, *of.start).count();
    time.end = tie.time + backend.elapsed(*tie.timer, *of.end).count();
    lag[lane.gpu] = std::max(lag[lane.gpu], of.enqueued - time.start);
  }
  for (std::size_t l = 0; l < recording.on_gpu.size(); ++l) {
    if (!recording.on_gpu[l].start) continue;
    const std::int64_t by = lag[plan.lanes[at(plan.launches[l].lane)].gpu];
    recording.launches[l].start += by;
    recording.launches[l].end += by;
  }
}

}  // namespace belfry
