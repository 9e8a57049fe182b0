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
  Node* train_op = nullptr;            // one step: updates of variables, slots and moving averages
  std::vector<Output> learning_rates;  // scalar placeholders to be fed with the optimizer's rate
};

struct TrainingGraphOptions {
  const Model& model;
  std::span<const DeviceSpec> devices;
  VariablePolicy variables;
  std::span<const Dataset::Field> fields;
  std::int64_t batch_size;  // per tower
  std::function<Node&(const GradientTable&)> update;
};

// Builds the model once per device with one placeholder per field, [batch_size, sample...]; lets
// `update` turn the gradients of the losses into one node; binds the nodes of kUpdateOps to it; and
// builds the predictor with placeholders [?, sample...]. Throws InvalidArgument as Model,
// replicate() and GradientTable do, and if names of fields are empty, equal, or have one of ":/ ".
TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options);

}  // namespace belfry
