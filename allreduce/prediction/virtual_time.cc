#include "belfry/allreduce/prediction/virtual_time.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {
namespace {

// A runner, and what it does now.
struct ActiveRunner {
  const JobRunner* runner;
  std::size_t next = 0;
  int running = -1;
};

// What is left of a job.
struct WorkLeft {
  double fixed, bytes;
  bool done = false;
};

// Advances from the end of one phase of a job to the end of the next.
class VirtualTime {
 public:
  VirtualTime(std::vector<TimedJob>& jobs, const std::vector<JobRunner>& runners,
              const SharedMemory& memory)
      : jobs_(jobs), memory_(memory) {
    for (const TimedJob& job : jobs) left_.push_back({job.fixed, job.bytes});
    for (const JobRunner& runner : runners) runners_.push_back({&runner});
  }

  double run() {
    while (start()) {
      set_speeds();
      double step = std::numeric_limits<double>::max();
      each_running([&](WorkLeft& left, double speed) {
        step = std::min(step, left.fixed > 0 ? left.fixed : left.bytes / speed);
      });
      now_ += step;
      each_running([&](WorkLeft& job, double speed) {
        double& left = job.fixed > 0 ? job.fixed : job.bytes;
        const double taken = job.fixed > 0 ? step : step * speed;
        left = left - taken > left * 1e-12 ? left - taken : 0;
        job.done = !(job.fixed > 0) && !(job.bytes > 0);  // NaN, too
      });
      for (ActiveRunner& runner : runners_)
        if (runner.running >= 0 && left_[at(runner.running)].done) {
          jobs_[at(runner.running)].ended = now_;
          runner.running = -1;
        }
    }
    return now_;
  }

 private:
  // Starts all jobs that can start; false if nothing runs then.
  bool start() {
    bool any = false;
    for (ActiveRunner& runner : runners_) {
      if (runner.running < 0 && runner.next < runner.runner->jobs.size()) {
        const int job = runner.runner->jobs[runner.next];
        const auto done = [&](int dep) { return left_[at(dep)].done; };
        if (std::ranges::all_of(jobs_[at(job)].deps, done)) {
          jobs_[at(job)].began = now_;
          runner.running = job;
          ++runner.next;
        }
      }
      any = any || runner.running >= 0;
    }
    return any;
  }

  // Sets how many workers move bytes, and how many of them help with the first shared job.
  void set_speeds() {
    int busy = 0, idle = 0;
    shared_ = -1;
    for (const ActiveRunner& runner : runners_) {
      if (!runner.runner->worker) continue;
      if (runner.running < 0) {
        ++idle;
        continue;
      }
      if (left_[at(runner.running)].fixed > 0) continue;
      ++busy;
      if (jobs_[at(runner.running)].shared && shared_ < 0) shared_ = runner.running;
    }
    helpers_ = shared_ >= 0 ? idle : 0;
    const int active = busy + helpers_;
    if (active == 0) return;
    const double share =
        memory_.workers > 1 ? static_cast<double>(active - 1) / (memory_.workers - 1) : 0;
    worker_speed_ = std::lerp(memory_.one_rate, memory_.all_rate, share) / active;
  }

  template <class F>
  void each_running(const F& visit) {
    for (const ActiveRunner& runner : runners_) {
      if (runner.running < 0) continue;
      const double rate = jobs_[at(runner.running)].rate;
      const int helpers = runner.running == shared_ ? helpers_ : 0;
      visit(left_[at(runner.running)], rate > 0 ? rate : worker_speed_ * (1 + helpers));
    }
  }

  std::vector<TimedJob>& jobs_;
  const SharedMemory& memory_;
  std::vector<WorkLeft> left_;
  std::vector<ActiveRunner> runners_;
  double now_ = 0;
  int shared_ = -1, helpers_ = 0;
  double worker_speed_ = 1;
};

}  // namespace

double run_jobs(std::vector<TimedJob>& jobs, const std::vector<JobRunner>& runners,
                const SharedMemory& memory) {
  return VirtualTime(jobs, runners, memory).run();
}

}  // namespace belfry
