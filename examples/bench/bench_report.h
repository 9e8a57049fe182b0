// Results of training benchmarks, for people and for other programs.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/program/common_fields.h"
#include "mode_bench.h"

namespace belfry {

// The model that all strategies train, and how.
struct BenchedModel {
  std::string name;
  std::vector<DeviceSpec> devices = {};    // of all processes
  int batch_size = 0;                      // per device, on average
  std::vector<double> tower_weights = {};  // none: equal
  StepSettings settings = {};              // JSON has a member per field
  double label_smoothing = 0;              // 0: none
  std::string batch_norm = {};             // ModelSpec::batch_norm; in JSON null for ""
  std::int64_t tokens = 0;                 // of a sample, or 0
  std::optional<double> peak = {};         // measure_peak(), of the devices of this process
  std::vector<std::string> hosts = {};     // of each process; none: one process

  int towers() const { return static_cast<int>(devices.size()); }  // K, of all processes
};

// One strategy. JSON has a member per field and option: `resolved` and `bucket_mb` for "auto"
// alone, `tower_weights` if there are any, `loss_scale` and `skipped_steps` for f16 alone;
// `first_nonfinite_step`, `nonfinite_variable` and the members of StepSettings and TrainingSpeed
// are the same as in training programs.
struct BenchResult {
  BenchedModel model;
  std::string strategy;       // --allreduce, or the trainer if that combines nothing
  std::string resolved = {};  // what "auto" chose, else ""
  double bucket_mb = 0;       // of this choice
  bool canonical = false;
  int shards = 1;  // of the global batch
  std::string k_dependent_because = {};
  std::optional<double> loss_scale = {};                  // of f16, after the last round
  std::int64_t skipped_steps = 0;                         // by it
  Divergence divergence = {};                             // in the last round
  double images_per_second = 0;                           // of all devices: the median over rounds
  std::optional<double> mfu = {};                         // share of the measured peak, or null
  std::optional<double> communication_hidden_share = {};  // of a traced step, or null
  double uncertainty = 0, jitter = 0;                     // of all steps, as in statistics.h
  double ratio = 1;            // to the reference, the median over rounds
  double ratio_spread = 0;     // the largest ratio of a round less the smallest
  double startup_seconds = 0;  // as ModeRuns has it
  ProcessMemory memory = {};   // a member per field
  std::string params_hash, state_hash;

  double images_per_second_per_device() const { return images_per_second / model.towers(); }
  std::optional<double> tokens_per_second() const;  // of all devices, of samples of tokens; or null
};

// One result per entry of `runs`, in their order; ratios are to runs[reference], round by round.
std::vector<BenchResult> bench_results(const BenchedModel& model, std::span<const ModeRuns> runs,
                                       std::size_t reference);

// An object with a member per field, and `processes`.
JsonValue to_json(const BenchResult& result);

// Compares strategies. Differences are in per cent of the reference, with half their spread. Lists
// `refused` with their reasons.
std::string bench_table(std::span<const BenchResult> results, std::span<const ModePlan> refused);

// Commands of gnuplot for a bar per strategy; the error bar is twice the uncertainty.
std::string bench_plot(const BenchedModel& model, std::span<const BenchResult> results);

// The strategies whose training diverged, for people; empty if none did.
std::string divergence(std::span<const BenchResult> results);

// Empty if all canonical results have the same hashes, else the two strategies that do not.
std::string disagreement(std::span<const BenchResult> results);

}  // namespace belfry
