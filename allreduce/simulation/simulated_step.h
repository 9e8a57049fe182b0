// A training step of one device of a cluster, in virtual time. All devices do the same, so one
// stands for all.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "belfry/allreduce/simulation/all_reduce_time.h"
#include "belfry/allreduce/simulation/cluster.h"
#include "belfry/allreduce/simulation/workload.h"

namespace belfry {

struct SimulatedTraining {
  int batch = 1;                  // samples of a device at a time
  int accumulation = 1;           // batches per step
  std::string precision = "f32";  // of the arithmetic
  int element_bytes = 4;          // of activations
  int gradient_bytes = 4;         // of an element of a gradient that is sent
  int slots = 1;                  // f32 values per parameter that the optimizer keeps
  double bucket_bytes = 4 << 20;  // 0: one sum per layer
  bool overlap = true;            // sums begin during the backward pass
  SumAlgorithm algorithm = SumAlgorithm::kFastest;
  int servers = 0;   // hosts that hold parameters, for SumAlgorithm::kServers; 0: all
  int per_host = 0;  // devices of a host that are used; 0: all
  // How long the arithmetic takes, relative to the peak of the machine. calibrated_slowness() finds
  // it.
  double slowness = 1;
  double kernel = 0;  // seconds more of each kernel, however small the batch
  // Standard deviation of the time that devices take for the same batch, as a share of that time.
  // All wait for the slowest.
  double jitter = 0;
};

// Who does the jobs of a step.
enum class StepRunner : std::uint8_t { kInput, kFeed, kHost, kCompute, kLink };
inline constexpr int kStepRunners = 5;
const char* name_of(StepRunner runner);  // "input", "feed", "host", "compute", "link"

// A piece of a step, from its begin, in seconds. It may begin before 0, during earlier steps.
struct StepPiece {
  std::string name;
  StepRunner runner;
  double begins, ends;
  bool critical = false;  // had it been shorter, the step would have been
};

struct SimulatedStep {
  int devices = 1, hosts = 1;
  double seconds = 0;
  double samples_per_second = 0;  // of all devices
  double sums = 0;                // seconds of all-reduces
  double exposed_sums = 0;        // seconds of those in which the device computes nothing
  // Seconds of the critical path by runner; they add up to `seconds`.
  std::vector<double> critical = std::vector<double>(kStepRunners);
  double stragglers = 0;          // seconds of the arithmetic that go to waiting for the slowest
  double device_bytes = 0;        // weights, gradients, slots, activations
  std::vector<StepPiece> pieces;  // of the last simulated step

  double hidden_share() const { return sums > 0 ? 1 - exposed_sums / sums : 1; }
  // The runner with most of the critical path; if that is compute, the machine is well used.
  StepRunner bound_by() const;
};

// Simulates four steps, one after the other, and returns the last. Throws InvalidArgument for a
// precision that the cluster does not know, for numbers so large that a time is not finite, and as
// all_reduce_seconds() does.
SimulatedStep simulate_step(const TrainingWorkload& work, const ClusterDescription& cluster,
                            const SimulatedTraining& training, int devices);

// The slowness with which this many devices train that many samples per second. Throws
// InvalidArgument if no arithmetic, however fast, is fast enough.
double calibrated_slowness(const TrainingWorkload& work, const ClusterDescription& cluster,
                           const SimulatedTraining& training, int devices,
                           double samples_per_second);

}  // namespace belfry
