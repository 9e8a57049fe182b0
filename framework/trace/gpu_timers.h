// When GPUs did the launches of a traced run. Each launch is between two timers in its stream. One
// more timer at the start ties the clock of the GPU to that of the host.
#pragma once
#include <memory>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

// Makes all timers, before the run.
void make_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording);
// The GPU of the stream has nothing to do yet, so it comes to the timer at once.
void tie_clock(GpuStream& stream, int gpu, Recording& recording);
// After the run, when GPUs have come to all timers: their launches have the GPU's times.
void read_timers(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                 Recording& recording);

}  // namespace belfry
