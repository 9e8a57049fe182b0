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

struct TrainingWorkload {
  std::string name;
  std::string sample;                 // what a sample is: "image"
  double sample_bytes = 0;            // of the inputs and labels of one
  std::vector<WorkloadLayer> layers;  // in the order of the forward pass

  double parameters() const;
  double flops() const;
  double elements() const;
};

// {"name", "made_by", "sample", "sample_bytes", "layers": [{"name", "parameters", "flops",
// "elements"}]}; "made_by" says how the file came about. Or what a program has written for
// --summary and --json, whose tensors count as f32; the workload then has the name `otherwise`.
// Throws InvalidArgument naming the member that is missing, unknown or out of range.
TrainingWorkload parse_workload(const JsonValue& json, const std::string& otherwise = "model");

}  // namespace belfry
