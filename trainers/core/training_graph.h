// Builds the graph of a trainer: training towers, their update, and towers that predict.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/trainers/core/training_nodes.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

struct TrainerKind;
struct TrainerOptions;

// The arguments of build_training_graph(), which borrows them.
struct TrainingGraphOptions {
  const TrainerKind& kind;        // where variables live, and how gradients change them
  const TrainerOptions& trainer;  // model, devices, optimizer and all that changes the graph
  std::span<const Dataset::Field> fields;
  // The forms of batches, for the towers of all processes. With several processes, each form feeds
  // rows to every tower.
  std::span<const BatchForm> forms;
  const LengthBuckets* buckets = nullptr;  // of the forms' batches, if there are some
  // Called once, with the towers' gradients, before `kind` first combines them. It may change
  // `trainer`, the options above.
  std::function<void(const GradientTable&)> choose = {};
  std::size_t predictors = 1;  // at most one per device
};

// Builds the training towers, what updates their variables, and the towers that predict. For an
// evaluation alone, it builds the first training tower, and nothing that updates its variables.
//
// The model is built once per device, with a placeholder per field: [rows, sample...]. The forms of
// batches give the rows, "?" if they differ or a form has none. Towers that predict take
// [?, sample...]. For each form, TrainerKind::combine combines the gradients of the losses, and the
// optimizer applies them; or update_parts() or TrainerKind::update does both. Several losses have a
// step each, with the gradients of their own variables. The nodes of kUpdateOps run with the first
// update. If the towers run free, TrainerKind::update_free makes a node per
// tower, and each tower's own moments move averages. There must then be one form, in which all
// towers have equally many samples. If the towers of a form have different numbers of samples,
// losses and moments of batch norms are weighted by these. A tower that a form feeds no rows is not
// part of its step.
//
// With buckets of lengths, the model is built once per device and bucket, with the same variables.
// It may then have no updates of its own (kUpdateOps), such as those of batch norm.
//
// If K is a power of two and all towers have equal weights, loss gradients start at 1 / K, which is
// exact, and ReduceOptions ask for the sum. Throws InvalidArgument as ModelFunction, replicate()
// and GradientTable do, and if names of fields are empty, equal, or have one of ":/ ".
//
// With f16 the loss is scaled. In all precisions, unless options say kContinue, each tower's loss
// and gradients are checked before gradients are combined. One node for all towers decides whether
// the update is applied (Unscaling). If a loss or gradient is not finite, or a gradient is so large
// that the sum over towers could overflow, the step leaves
// variables, slots and moving averages unchanged.
//
// A model with layers that are synchronised over towers (TowerRecord::contributions) is
// differentiated once: the mean of all towers' losses, weighted by samples. StepNodes::zeros has
// the tensors that towers without samples would contribute, with their numbers of samples.
// Free-running towers cannot have such layers. With several processes, every tower needs samples in
// every form.
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
