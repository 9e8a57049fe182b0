#include "belfry/trainers/training_graph.h"

#include <set>

#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"

namespace belfry {
namespace {

// Fields become placeholders that are found by name.
void require_names(std::span<const Dataset::Field> fields) {
  std::set<std::string> seen;
  for (const Dataset::Field& field : fields) {
    require(!field.name.empty() && field.name.find_first_of(":/ ") == std::string::npos,
            "the data have a field called '", field.name,
            "'; a name is not empty and has no colon, slash or space");
    require(seen.insert(field.name).second, "the data have two fields called '", field.name, "'");
  }
}

std::vector<Output> placeholders(Graph& graph, std::span<const Dataset::Field> fields,
                                 std::int64_t batch) {
  std::vector<Output> result;
  for (const Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims{batch};
    dims.insert(dims.end(), field.shape.dims().begin(), field.shape.dims().end());
    result.push_back(placeholder(graph, field.name, field.dtype, Shape(dims)));
  }
  return result;
}

Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others) {
  std::vector<Node*> updates{&update};
  updates.insert(updates.end(), others.begin(), others.end());
  return updates.size() == 1 ? update : group(graph, updates, "train_step");
}

}  // namespace

double scalar_value(const Tensor& tensor) {
  return visit_floating(tensor.dtype(), [&](auto type) {
    return static_cast<double>(tensor.data<decltype(type)>()[0]);
  });
}

TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options) {
  require_names(options.fields);
  TrainingGraph result;
  std::vector<std::vector<Gradient>> rows;
  const auto build = [&](Tower& tower) {
    const std::int64_t batch = tower.is_training() ? options.batch_size : kUnknown;
    tower.loss(options.model(tower, placeholders(tower.graph(), options.fields, batch)));
    if (tower.is_training()) rows.push_back(compute_gradients(tower.loss(), tower.trainables()));
  };
  const bool apart = static_cast<bool>(options.update_apart);
  result.towers = replicate(graph, options.devices, options.variables, build,
                            apart ? Averages::kOfEachTower : Averages::kOfAllTowers);
  const GradientTable gradients(std::move(rows));
  if (apart) {
    const std::vector<Node*> updates = options.update_apart(gradients);
    for (std::size_t t = 0; t < updates.size(); ++t)
      result.tower_ops.push_back(&train_step(graph, *updates[t], result.towers[t].updates));
  } else {
    Node& update = options.update(gradients);
    result.train_op = &train_step(graph, update, graph.nodes(kUpdateOps));
  }
  for (Node* rate : graph.nodes(kLearningRates)) result.learning_rates.push_back(rate->output());
  for (const TowerRecord& tower : result.towers)
    result.predictors.push_back(
        predict_tower(graph, {.device = tower.device, .index = tower.index}, build));
  return result;
}

}  // namespace belfry
