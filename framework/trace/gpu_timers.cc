#include "belfry/framework/trace/gpu_timers.h"

#include <algorithm>
#include <map>

namespace belfry {

void make_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording) {
  if (gpus_of(plan).empty()) return;
  recording.on_gpu.resize(plan.launches.size());
  for (const LaunchIndex l : plan.launches.indices()) {
    const Strand& strand = plan.strands[plan.launches[l].strand];
    if (strand.gpu < 0) continue;
    const GpuBackend& backend = *devices[at(strand.device)]->backend;
    Recording::OnGpu& of = recording.on_gpu[l];
    of.start = backend.make_timer(strand.gpu);
    of.end = backend.make_timer(strand.gpu);
    Recording::Tie& tie = recording.ties[strand.gpu];
    if (!tie.timer) tie.timer = backend.make_timer(strand.gpu);
  }
}

void tie_clock(GpuStream& stream, int gpu, Recording& recording) {
  Recording::Tie& tie = recording.ties.at(gpu);
  stream.record(*tie.timer);
  tie.time = recording.now();
}

// Converts GPU times to the host's clock. No launch can begin before the host has enqueued it. If
// one seems to, the GPU reached its first timer later than the host saw, by at least that much.
void read_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording) {
  std::map<int, std::int64_t> lag;
  for (const LaunchIndex l : recording.on_gpu.indices()) {
    Recording::OnGpu& of = recording.on_gpu[l];
    if (!of.start) continue;
    const Strand& strand = plan.strands[plan.launches[l].strand];
    const GpuBackend& backend = *devices[at(strand.device)]->backend;
    const Recording::Tie& tie = recording.ties.at(strand.gpu);
    Recording::Interval& time = recording.launches[l];
    of.enqueued = time.start;
    time.start = tie.time + backend.elapsed(*tie.timer, *of.start).count();
    time.end = tie.time + backend.elapsed(*tie.timer, *of.end).count();
    lag[strand.gpu] = std::max(lag[strand.gpu], of.enqueued - time.start);
  }
  for (const LaunchIndex l : recording.on_gpu.indices()) {
    if (!recording.on_gpu[l].start) continue;
    const std::int64_t by = lag[plan.strands[plan.launches[l].strand].gpu];
    recording.launches[l].start += by;
    recording.launches[l].end += by;
  }
}

}  // namespace belfry
