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
  result.towers = replicate(graph, options.devices, options.variables, build);
  std::vector<Node*> updates{&options.update(GradientTable(std::move(rows)))};
  for (Node* update : graph.nodes(kUpdateOps)) updates.push_back(update);
  result.train_op = updates.size() == 1 ? updates[0] : &group(graph, updates, "train_step");
  for (Node* rate : graph.nodes(kLearningRates)) result.learning_rates.push_back(rate->output());
  for (const TowerRecord& tower : result.towers)
    result.predictors.push_back(
        predict_tower(graph, {.device = tower.device, .index = tower.index}, build));
  return result;
}

}  // namespace belfry
