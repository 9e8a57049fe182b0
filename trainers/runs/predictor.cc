#include "belfry/trainers/runs/predictor.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/graph_file.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/run/session.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

TowerRecord predicting_tower(Graph& graph, const ModelFunction& model,
                             const std::vector<PredictorInput>& inputs, const DeviceSpec& device) {
  return predict_tower(graph, {.device = device}, [&](Tower& t) {
    std::vector<Output> outputs;
    for (const PredictorInput& input : inputs)
      outputs.push_back(placeholder(t.graph(), input.name, input.type(), input.shape));
    model.build(t, outputs);
  });
}

template <class Named>
auto names_in(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all) {
    if constexpr (requires { one.name; })
      names.push_back(one.name);
    else
      names.push_back(one.first);
  }
  return names;
}

}  // namespace

struct Predictor::State {
  State(const ModelFunction& model, std::vector<PredictorInput> given, const DeviceSpec& device)
      : graph(std::make_unique<Graph>()),
        inputs(std::move(given)),
        tower(predicting_tower(*graph, model, inputs, device)),
        fed(tower.inputs) {
    for (const NamedOutput& named : tower.outputs) outputs.emplace_back(named.name, named.value);
    start(device);
  }

  State(GraphInFile file, const DeviceSpec& device)
      : graph(std::move(file.graph)), fed(file.ends.inputs), outputs(file.ends.outputs) {
    for (const Output& input : fed)
      inputs.push_back({std::string(input.node().logical_name()), input.shape(), input.dtype()});
    start(device);
    session->restore(file.weights, 0);
  }

  void start(const DeviceSpec& device) {
    const DeviceSpec devices[] = {device};
    session.emplace(*graph, SessionOptions{.device_count = device_count(devices)});
  }

  Output find(std::string_view output) const {
    if (tower.graph) return tower.get(output);
    const auto found = std::ranges::find(outputs, output, &std::pair<std::string, Output>::first);
    require<NotFoundError>(found != outputs.end(), "the plan has no output '", output, "'",
                           did_you_mean(std::string(output), names_in(outputs)), " (there are ",
                           join(names_in(outputs)), ")");
    return found->second;
  }

  Output input_called(const std::string& name) const {
    const auto at = std::ranges::find(inputs, name, &PredictorInput::name);
    require(at != inputs.end(), "the model has no input '", name, "'",
            did_you_mean(name, names_in(inputs)), " (there are ", join(names_in(inputs)), ")");
    return fed[static_cast<std::size_t>(at - inputs.begin())];
  }

  std::unique_ptr<Graph> graph;
  std::vector<PredictorInput> inputs;
  TowerRecord tower;  // none of a plan
  std::vector<Output> fed;
  std::vector<std::pair<std::string, Output>> outputs;
  std::optional<Session> session;
  std::mutex mutex;  // TowerRecord::get() may add a node
};

Predictor::Predictor(std::unique_ptr<State> state) : state_(std::move(state)) {}

Predictor::Predictor(const std::string& path, const ModelFunction& model,
                     std::vector<PredictorInput> inputs, const PredictorOptions& options)
    : state_(std::make_unique<State>(model, std::move(inputs), options.device)) {
  restore_weights(*state_->session, checkpoint_at(path, options.checkpoint), options.weights);
}

Predictor Predictor::open(const std::string& file, const DeviceSpec& device) {
  const std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  const Safetensors stored(read_large_file(local_file_system(), file, all), file);
  GraphInFile read = read_graph(stored, device);
  require(read.weights.size() == read.graph->variables().size(), file,
          ": has a graph without its weights; `belfry checkpoint export` writes a plan with both");
  return Predictor(std::make_unique<State>(std::move(read), device));
}

Predictor::~Predictor() = default;

Tensor Predictor::operator()(std::string_view output, const std::map<std::string, Tensor>& feeds) {
  const std::lock_guard lock(state_->mutex);
  const Output wanted = state_->find(output);
  std::vector<FeedValue> values;
  for (const auto& [name, value] : feeds) values.push_back({state_->input_called(name), value});
  return state_->session->run(wanted, values);
}

const std::vector<PredictorInput>& Predictor::inputs() const { return state_->inputs; }

std::vector<std::string> Predictor::outputs() const { return names_in(state_->outputs); }

std::optional<std::string> predicting_graph_file(const ModelFunction& model,
                                                 const std::vector<PredictorInput>& inputs) {
  Graph graph;
  const TowerRecord tower = predicting_tower(graph, model, inputs, {});
  if (tower.outputs.empty()) return {};
  PredictingGraph ends{.inputs = tower.inputs, .outputs = {}};
  for (const NamedOutput& named : tower.outputs) ends.outputs.emplace_back(named.name, named.value);
  return write_graph(ends);
}

}  // namespace belfry
