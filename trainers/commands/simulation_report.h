// What `belfry simulate` prints and writes.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/simulation/goodput.h"
#include "belfry/allreduce/simulation/simulated_step.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// Faults of the devices of a run, in seconds.
struct DeviceFaults {
  double between = 0;  // mean time between faults of one device; 0: there are none
  double save = 0, restart = 0;
  std::vector<double> intervals = {};  // between saves, to state the goodput of

  FaultCosts of(int devices) const { return {between / devices, save, restart}; }
};

struct SimulationReport {
  TrainingWorkload work;
  ClusterDescription cluster;
  SimulatedTraining training;
  DeviceFaults faults;
  std::vector<SimulatedStep> steps;  // at least one, by devices

  // Samples per second, relative to as many times those of a device of the first step.
  double efficiency(const SimulatedStep& step) const;
};

std::string to_text(const SimulationReport& report);
JsonValue to_json(const SimulationReport& report);
// What a step waits for, in words: lines.
std::string explain(const SimulationReport& report, const SimulatedStep& step);
// Trace events that Perfetto and chrome://tracing show.
JsonValue step_trace(const SimulatedStep& step);
// Data and commands of gnuplot: throughput by devices, beside that of perfect scaling.
std::string plot_commands(const SimulationReport& report);

}  // namespace belfry
