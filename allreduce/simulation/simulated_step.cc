#include "belfry/allreduce/simulation/simulated_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belfry/allreduce/prediction/virtual_time.h"
#include "belfry/allreduce/simulation/goodput.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {
namespace {

// Prefetched batches and hosts that run ahead need some steps to settle.
constexpr int kSteps = 4;
// A layer's backward pass, relative to its forward pass: FLOPs and kernels.
constexpr double kBackward = 2;

constexpr int index_of(StepRunner runner) { return static_cast<int>(runner); }

double flops_of(const ClusterDescription& cluster, const std::string& precision) {
  const auto found = cluster.flops.find(precision);
  std::vector<std::string> names;
  for (const auto& [name, flops] : cluster.flops) names.push_back(name);
  require(found != cluster.flops.end(), "the file of ", cluster.name, " has no \"tflops\" for ",
          precision, " (there are: ", join(names), ")");
  return found->second;
}

// Builds the jobs of the steps, and reads off what they did.
class StepJobs {
 public:
  StepJobs(const TrainingWorkload& work, const ClusterDescription& cluster,
           const SimulatedTraining& training, int devices)
      : work_(work),
        cluster_(cluster),
        training_(training),
        part_{devices, training.per_host > 0 ? training.per_host : cluster.devices_per_host},
        flops_(flops_of(cluster, training.precision)) {
    require(part_.per_host <= cluster.devices_per_host, "a host of ", cluster.name, " has ",
            cluster.devices_per_host, " devices, not ", part_.per_host);
    // Batches of one step are independent, so their sum varies less than one.
    spread_ = training.jitter * expected_largest(devices) / std::sqrt(training.accumulation);
    if (part_.in_host() > 1) crowding_ = cluster.crowding;
    runners_.resize(kStepRunners);
    for (int step = 0; step < kSteps; ++step) add_step();
  }

  SimulatedStep run() {
    run_jobs(jobs_, runners_);
    SimulatedStep step{.devices = part_.devices, .hosts = part_.hosts()};
    const double begin = jobs_[at(updates_[kSteps - 2])].ended;
    step.seconds = jobs_[at(updates_.back())].ended - begin;
    step.samples_per_second = samples_of_step() * part_.devices / step.seconds;
    mark_critical(begin, step);
    add_pieces(begin, step);
    measure_sums(step);
    step.stragglers = arithmetic_ * spread_;
    step.device_bytes = device_bytes();
    return step;
  }

 private:
  // Gradients that are summed together.
  struct Bucket {
    std::string name;  // of the last
    double bytes = 0;
    int gradients = 0, after = -1;
  };

  double samples_of_step() const {
    return static_cast<double>(training_.batch) * training_.accumulation;
  }

  double device_bytes() const {
    if (is_plan()) return work_.device_bytes;
    return work_.parameters() * (4.0 + training_.gradient_bytes + 4.0 * training_.slots) +
           work_.elements() * training_.element_bytes * training_.batch;
  }

  bool is_plan() const { return !work_.launches.empty(); }

  int add(StepRunner runner, std::string name, double seconds, std::vector<int> deps) {
    require(std::isfinite(seconds), "'", name, "' would take ", seconds,
            " seconds: a number of the workload, the machine or a flag is too large or too small");
    const auto job = static_cast<int>(jobs_.size());
    jobs_.push_back({.runner = index_of(runner), .deps = std::move(deps), .fixed = seconds});
    names_.push_back(std::move(name));
    runners_[at(index_of(runner))].jobs.push_back(job);
    return job;
  }

  // Adds the kernels of a layer: the host launches them, and the device computes.
  int compute(const std::string& name, double seconds, double kernels, std::vector<int> deps) {
    deps.push_back(add(StepRunner::kHost, "launch " + name, kernels * cluster_.launch, {}));
    seconds *= crowding_;
    arithmetic_ += seconds / kSteps;
    return add(StepRunner::kCompute, name, seconds * (1 + spread_), std::move(deps));
  }

  // Seconds of arithmetic, or of its memory traffic if that takes longer.
  double kernel_seconds(double flops, double bytes) const {
    double seconds = flops / flops_;
    if (cluster_.memory_rate > 0) seconds = std::max(seconds, bytes / cluster_.memory_rate);
    return seconds * training_.slowness + training_.kernel;
  }

  // Of a layer, for one batch.
  double forward_seconds(const WorkloadLayer& layer) const {
    const double samples = training_.batch;
    const double bytes = layer.elements * samples * training_.element_bytes * 2 +
                         layer.parameters * training_.element_bytes;
    return kernel_seconds(layer.flops * samples, bytes);
  }

  // Of a launch of a plan. What follows the sums does not depend on the batch.
  double launch_seconds(const WorkloadLaunch& launch) const {
    if (launch.seconds >= 0) return launch.seconds;
    const double scale = launch.after_sums ? 1 : static_cast<double>(training_.batch) / work_.batch;
    return kernel_seconds(launch.flops * scale, launch.bytes * scale);
  }

  // The time that a host needs for a launch is part of the time that the launch was seen to take.
  static double kernels_of(const WorkloadLaunch& launch) { return launch.seconds >= 0 ? 0 : 1; }

  // The samples of a batch reach the device.
  std::vector<int> add_input(double batches) {
    const double samples = training_.batch * batches;
    std::vector<int> deps;
    if (cluster_.input_rate > 0)
      deps.push_back(add(StepRunner::kInput, "prepare samples",
                         samples * part_.in_host() / cluster_.input_rate, {}));
    if (cluster_.feed_rate > 0) {
      const double sharing = std::min(part_.in_host(), cluster_.devices_per_feed);
      deps = {add(StepRunner::kFeed, "copy samples",
                  samples * work_.sample_bytes * sharing / cluster_.feed_rate, std::move(deps))};
    }
    return deps;
  }

  // All batches of a step but the last are one piece: nothing waits for parts of them.
  void add_earlier_batches() {
    const int batches = training_.accumulation - 1;
    if (batches == 0) return;
    double seconds = 0, kernels = static_cast<double>(work_.layers.size()) * (1 + kBackward);
    for (const WorkloadLayer& layer : work_.layers)
      seconds += (1 + kBackward) * forward_seconds(layer);
    for (const WorkloadLaunch& launch : work_.launches)
      if (!launch.after_sums) {
        seconds += launch_seconds(launch);
        kernels += kernels_of(launch);
      }
    compute(cat(batches, " earlier batches"), seconds * batches, kernels * batches,
            add_input(batches));
  }

  void add_step() {
    add_earlier_batches();
    if (is_plan()) {
      add_launches();
      return;
    }
    std::vector<int> deps = add_input(1);
    for (const WorkloadLayer& layer : work_.layers)
      compute(layer.name, forward_seconds(layer), 1, std::exchange(deps, {}));
    for (std::size_t l = work_.layers.size(); l-- > 0;) {
      const WorkloadLayer& layer = work_.layers[l];
      const int job =
          compute(layer.name + " gradient", kBackward * forward_seconds(layer), kBackward, {});
      add_gradient(layer.name, layer.parameters, job);
    }
    add_last_sums();
    double seconds = 0;  // gradient, weight and slots are read, weight and slots are written
    if (cluster_.memory_rate > 0)
      seconds = work_.parameters() * (training_.gradient_bytes + 8.0 + 8.0 * training_.slots) /
                cluster_.memory_rate;
    updates_.push_back(compute("update", seconds, 1, std::exchange(sums_, {})));
  }

  void add_launches() {
    std::vector<int> deps = add_input(1);
    for (const WorkloadLaunch& launch : work_.launches) {
      if (launch.after_sums) continue;
      const int job =
          compute(launch.name, launch_seconds(launch), kernels_of(launch), std::exchange(deps, {}));
      add_gradient(launch.name, launch.parameters, job);
    }
    add_last_sums();
    deps = std::exchange(sums_, {});
    int last = compute("all gradients", 0, 0, std::move(deps));
    for (const WorkloadLaunch& launch : work_.launches)
      if (launch.after_sums)
        last = compute(launch.name, launch_seconds(launch), kernels_of(launch), {});
    updates_.push_back(last);
  }

  // Gradients that a job has completed join the bucket, which is summed once it is full.
  void add_gradient(const std::string& name, double parameters, int job) {
    if (parameters == 0) return;
    bucket_.name = name;
    bucket_.bytes += parameters * training_.gradient_bytes;
    bucket_.after = job;
    ++bucket_.gradients;
    if (bucket_.bytes >= training_.bucket_bytes) close_bucket();
  }

  void close_bucket() {
    const Bucket full = std::exchange(bucket_, {});
    if (full.gradients == 0) return;
    const std::string name = full.gradients == 1
                                 ? "sum of " + full.name
                                 : cat("sum of ", full.gradients, " layers down to ", full.name);
    if (training_.overlap)
      add_sum(name, full.bytes, full.after);
    else
      waiting_.emplace_back(name, full.bytes);
  }

  void add_last_sums() {
    close_bucket();
    const std::vector<int>& computed = runners_[at(index_of(StepRunner::kCompute))].jobs;
    for (auto& [name, bytes] : std::exchange(waiting_, {}))
      add_sum(std::move(name), bytes, computed.back());
    add_fetch();
  }

  bool has_servers() const { return training_.algorithm == SumAlgorithm::kServers; }

  void add_sum(std::string name, double bytes, int after) {
    if (part_.devices < 2) return;
    const double seconds = has_servers()
                               ? to_servers_seconds(cluster_, part_, bytes, training_.servers)
                               : all_reduce_seconds(cluster_, part_, bytes, training_.algorithm);
    sums_.push_back(add(StepRunner::kLink, std::move(name), seconds, {after}));
  }

  // Parameters come back once servers have updated all of them.
  void add_fetch() {
    if (!has_servers() || part_.devices < 2) return;
    const double bytes = work_.parameters() * training_.gradient_bytes;
    const double seconds = to_servers_seconds(cluster_, part_, bytes, training_.servers);
    sums_ = {add(StepRunner::kLink, "fetch parameters", seconds, std::exchange(sums_, {}))};
  }

  // Walks back from the end of the step: what each job waited for last is critical, too.
  void mark_critical(double begin, SimulatedStep& step) {
    std::vector<int> before(jobs_.size(), -1);  // on the same runner
    for (const JobRunner& runner : runners_)
      for (std::size_t i = 1; i < runner.jobs.size(); ++i)
        before[at(runner.jobs[i])] = runner.jobs[i - 1];
    critical_.assign(jobs_.size(), false);
    for (int job = updates_.back(); job >= 0 && jobs_[at(job)].ended > begin;) {
      critical_[at(job)] = true;
      const TimedJob& now = jobs_[at(job)];
      step.critical[at(now.runner)] += now.ended - std::max(begin, now.began);
      int latest = before[at(job)];
      for (const int dep : now.deps)
        if (latest < 0 || jobs_[at(dep)].ended > jobs_[at(latest)].ended) latest = dep;
      job = latest;
    }
  }

  void add_pieces(double begin, SimulatedStep& step) const {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const TimedJob& job = jobs_[j];
      if (job.ended <= begin || (job.ended == job.began && !critical_[j])) continue;
      step.pieces.push_back({names_[j], static_cast<StepRunner>(job.runner), job.began - begin,
                             job.ended - begin, static_cast<bool>(critical_[j])});
    }
  }

  // Both lists of pieces are ordered by time, as their runners work in order.
  static void measure_sums(SimulatedStep& step) {
    for (const StepPiece& sum : step.pieces) {
      if (sum.runner != StepRunner::kLink) continue;
      double computing = 0;
      for (const StepPiece& piece : step.pieces)
        if (piece.runner == StepRunner::kCompute)
          computing +=
              std::max(0.0, std::min(sum.ends, piece.ends) - std::max(sum.begins, piece.begins));
      step.sums += sum.ends - sum.begins;
      step.exposed_sums += sum.ends - sum.begins - computing;
    }
  }

  const TrainingWorkload& work_;
  const ClusterDescription& cluster_;
  const SimulatedTraining& training_;
  const ClusterPart part_;
  const double flops_;
  double spread_ = 0, crowding_ = 1;
  std::vector<TimedJob> jobs_;
  std::vector<std::string> names_;
  std::vector<JobRunner> runners_;
  std::vector<int> sums_, updates_;
  Bucket bucket_;
  std::vector<std::pair<std::string, double>> waiting_;  // sums that begin after all gradients
  double arithmetic_ = 0;                                // seconds of a step, without stragglers
  std::vector<char> critical_;
};

}  // namespace

const char* name_of(StepRunner runner) {
  static constexpr const char* kNames[] = {"input", "feed", "host", "compute", "link"};
  return kNames[index_of(runner)];
}

StepRunner SimulatedStep::bound_by() const {
  return static_cast<StepRunner>(std::ranges::max_element(critical) - critical.begin());
}

SimulatedStep simulate_step(const TrainingWorkload& work, const ClusterDescription& cluster,
                            const SimulatedTraining& training, int devices) {
  return StepJobs(work, cluster, training, devices).run();
}

double calibrated_slowness(const TrainingWorkload& work, const ClusterDescription& cluster,
                           const SimulatedTraining& training, int devices,
                           double samples_per_second) {
  SimulatedTraining tried = training;
  const auto rate = [&](double slowness) {
    tried.slowness = slowness;
    return simulate_step(work, cluster, tried, devices).samples_per_second;
  };
  constexpr double kMostSlowness = 1e9;
  double low = 0, high = 1;
  while (high < kMostSlowness && rate(high) > samples_per_second) high *= 2;
  require(rate(high) <= samples_per_second, devices, " devices of ", cluster.name,
          " train more than ", samples_per_second, " samples per second, even if arithmetic took ",
          high, " times as long");
  require(rate(low) > samples_per_second, devices, " devices of ", cluster.name, " cannot train ",
          samples_per_second,
          " samples per second, even if arithmetic took no "
          "time: links, hosts, inputs or kernels take too long");
  constexpr double kTolerance = 1e-9;
  while (high - low > kTolerance * high) {
    const double middle = (low + high) / 2;
    (rate(middle) > samples_per_second ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace belfry
