// Runs jobs in virtual time. Every prediction is made of such jobs: those of a plan (cost_model.h)
// and those of a training step on a cluster.
#pragma once
#include <vector>

namespace belfry {

// Work that one runner does.
struct TimedJob {
  int runner = 0;
  std::vector<int> deps = {};  // jobs that must have ended
  double fixed = 0;            // seconds
  double bytes = 0;            // moved after that, at `rate`
  double rate = 0;             // bytes per second; 0: the rate of the memory that all workers share
  bool shared = false;         // idle workers help
  // When it ran; set by run_jobs().
  double began = -1, ended = -1;
};

// Does jobs one after another, in the order of the list: a worker, a stream of a device, a link.
// Transfers that share a link thus take turns.
struct JobRunner {
  std::vector<int> jobs = {};
  bool worker = false;
};

// The memory that workers share.
struct SharedMemory {
  int workers = 0;                    // of the machine, of which there may be fewer runners
  double one_rate = 0, all_rate = 0;  // bytes per second: one worker alone, all together
};

// Sets when each job runs, and returns the seconds until the last one ends. Jobs that wait for each
// other in a circle never run, and keep began = -1.
double run_jobs(std::vector<TimedJob>& jobs, const std::vector<JobRunner>& runners,
                const SharedMemory& memory = {});

}  // namespace belfry
