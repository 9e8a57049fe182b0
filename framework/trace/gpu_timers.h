// When GPUs ran the launches of a traced run. Each launch is between two timers in its stream. One
// more timer at the start ties the GPU's clock to the host's.
#pragma once
#include <memory>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

// Call it before the run. It makes all timers.
void make_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording);
// Call it while the GPU of the stream is idle, so that it reaches the timer at once.
void tie_clock(GpuStream& stream, int gpu, Recording& recording);
// Call it after the run, when GPUs have reached all timers. It gives their launches the GPU's
// times.
void read_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording);

}  // namespace belfry
