#include "belfry/trainers/runs/predictor.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/run/session.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

DType type_of(const PredictorInput& input) {
  return input.dtype.value_or(input.shape.rank() == 1 ? DType::kI32 : DType::kF32);
}

}  // namespace

struct Predictor::State {
  State(const ModelFunction& model, std::vector<PredictorInput> given, const DeviceSpec& device)
      : inputs(std::move(given)) {
    const auto build = [&](Tower& t) {
      std::vector<Output> outputs;
      for (const PredictorInput& input : inputs)
        outputs.push_back(placeholder(t.graph(), input.name, type_of(input), input.shape));
      model.build(t, outputs);
    };
    tower = predict_tower(graph, {.device = device}, build);
    const DeviceSpec devices[] = {device};
    session.emplace(graph, SessionOptions{.device_count = device_count(devices)});
  }

  Graph graph;
  std::vector<PredictorInput> inputs;
  TowerRecord tower;
  std::optional<Session> session;
};

Predictor::Predictor(const std::string& path, const ModelFunction& model,
                     std::vector<PredictorInput> inputs, const PredictorOptions& options)
    : state_(std::make_unique<State>(model, std::move(inputs), options.device)) {
  restore_weights(*state_->session, checkpoint_at(path, options.checkpoint), options.weights);
}

Predictor::~Predictor() = default;

Tensor Predictor::operator()(std::string_view output, const std::map<std::string, Tensor>& feeds) {
  const Output wanted = state_->tower.get(output);
  std::vector<FeedValue> values;
  for (const auto& [name, value] : feeds) {
    const auto at = std::ranges::find(state_->inputs, name, &PredictorInput::name);
    std::vector<std::string> names;
    for (const PredictorInput& input : state_->inputs) names.push_back(input.name);
    require(at != state_->inputs.end(), "the model has no input '", name, "'",
            did_you_mean(name, names), " (there are ", join(names), ")");
    const auto index = static_cast<std::size_t>(at - state_->inputs.begin());
    values.push_back({state_->tower.inputs[index], value});
  }
  return state_->session->run(wanted, values);
}

}  // namespace belfry
