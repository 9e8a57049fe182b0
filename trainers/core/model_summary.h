// What a model consists of: layers, parameters, arithmetic (--summary).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

class BuiltTraining;

// The forward nodes of one name scope, for one tower and its batch. A node outside all scopes is a
// layer by itself.
struct LayerSummary {
  std::string name;
  TensorType output;  // type of its last node; for a variable that no layer owns, its own type
  std::int64_t parameters = 0;  // of weights, trained or not, without moments of batch norm
  double multiply_adds = 0;     // as in OpWork
  std::int64_t bytes = 0;       // of the outputs of its nodes
  Output last = {};             // the output of its last node; empty for a variable
};

struct ModelSummary {
  std::vector<LayerSummary> layers;  // in the order of their first nodes
  std::int64_t samples = 0;          // in the batch of a tower
  std::int64_t parameters = 0, bytes = 0;
  std::int64_t trained = 0;       // of the parameters
  double multiply_adds = 0;       // forward
  double step_multiply_adds = 0;  // of a step of all towers of this process: forward, backward
};

// Sums up a graph that was built for training. Its layers are those that the loss and the outputs
// of tower 0 depend on. Nodes that only metrics need are left out. Sizes that are unknown at build
// time count as 1.
ModelSummary summarise(const TrainingGraph& built, std::int64_t batches_per_step = 1);
// The layers alone.
std::vector<LayerSummary> layers_of(const TowerRecord& tower);

// Multiply-adds of a step of all towers of this process, in all its batches, of this form. Counts
// the nodes that the updates depend on, but not recomputed ones (GradientOptions::recompute).
double step_multiply_adds(const TrainingGraph& built, std::int64_t batches_per_step = 1,
                          std::size_t form = 0);
// The mean over the steps of an epoch, whose batches may have several lengths (LengthBuckets). The
// last one counts as full.
double mean_step_multiply_adds(const BuiltTraining& built);
// Dataset::tokens() of each sample that is trained with; 0 if they differ.
std::int64_t tokens_of_sample(const BuiltTraining& built);

// A table for people: a line per layer, and totals.
std::string to_table(const ModelSummary& summary);
// {batch_size, layers: [{name, output, parameters, multiply_adds, bytes}], parameters,
// trained_parameters, multiply_adds, multiply_adds_per_step, bytes}, with the fields above.
// `output` is "f32[8,10]".
JsonValue to_json(const ModelSummary& summary);

}  // namespace belfry
