// What one replica of a model computes and moves, layer by layer.
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

struct WorkloadLayer {
  std::string name;
  double parameters = 0;
  double flops = 0;     // forward, per sample; the backward pass needs twice as many
  double elements = 0;  // of its outputs, per sample
};

// A launch of a plan, for the batch that was planned.
struct WorkloadLaunch {
  std::string name;
  bool after_sums = false;  // it depends on gradients of all devices
  double parameters = 0;    // elements of the gradients of which it computes the last part
  double flops = 0, bytes = 0;
  double seconds = -1;  // that it was seen to take; below 0: FLOPs and bytes say it
};

struct TrainingWorkload {
  std::string name;
  std::string sample;                 // what a sample is: "image"
  double sample_bytes = 0;            // of the inputs and labels of one
  std::vector<WorkloadLayer> layers;  // in the order of the forward pass
  // In place of layers: all of a step, in the order of the plan, for a batch of so many samples,
  // with the memory that they need.
  std::vector<WorkloadLaunch> launches = {};
  int batch = 0;
  double device_bytes = 0;

  double parameters() const;
  double flops() const;
  double elements() const;
};

// {"name", "made_by", "sample", "sample_bytes", "layers": [{"name", "parameters", "flops",
// "elements"}]}; "made_by" says how the file came about. Or what a program has written for
// --summary and --json, whose tensors count as f32, or for --dry_run and --json (to_json() as
// "work"); the workload then has the name `otherwise`.
// Throws InvalidArgument naming the member that is missing, unknown or out of range.
TrainingWorkload parse_workload(const JsonValue& json, const std::string& otherwise = "model");

// {"batch", "sample_bytes", "device_bytes", "launches": [{"name", "parameters", "flops", "bytes"}],
// "after_sums": [the same]} of a workload of launches.
JsonValue to_json(const TrainingWorkload& work);

}  // namespace belfry
