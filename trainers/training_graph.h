// The graph that a trainer builds: training towers, their update, and towers that predict.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/gradient_table.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/dataset.h"
#include "belfry/trainers/model.h"
#include "belfry/trainers/optimizer.h"

namespace belfry {

struct NamedValue {
  std::string name;
  double value = 0;
};

// Of a floating-point scalar.
double scalar_value(const Tensor& tensor);

struct TrainingGraph {
  std::vector<TowerRecord> towers;
  // One per training tower, on its device; all on tower 0's variables, for any number of samples.
  std::vector<TowerRecord> predictors;
  Node* train_op = nullptr;  // one step: updates of variables, slots and moving averages
  // Instead of it, if the towers train apart: such a node of each, which needs nothing of the
  // others.
  std::vector<Node*> tower_ops;
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
};

struct TrainingGraphOptions {
  const Model& model;
  std::span<const DeviceSpec> devices;
  VariablePolicy variables;
  std::span<const Dataset::Field> fields;
  std::int64_t batch_size;  // per tower
  std::function<Node&(const GradientTable&)> update;
  // Instead of `update`, for towers that train apart: a node per tower. Averages are then moved by
  // each tower's moments.
  std::function<std::vector<Node*>(const GradientTable&)> update_apart = {};
};

// Builds the model once per device with one placeholder per field, [batch_size, sample...]; lets
// `update` turn the gradients of the losses into one node, or `update_apart` into one per tower;
// binds the nodes of kUpdateOps, or of each tower's updates, to them; and builds the predictor with
// placeholders [?, sample...]. Throws InvalidArgument as Model, replicate() and GradientTable do,
// and if names of fields are empty, equal, or have one of ":/ ".
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
