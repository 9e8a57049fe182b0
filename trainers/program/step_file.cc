#include "belfry/trainers/program/step_file.h"

#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/precision.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/core/trained_losses.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/data/gatherer.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// A file of tensors that remembers their order.
class StepTensors {
 public:
  void add(std::string name, Tensor tensor) {
    stored_.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
    order_.push_back(name);
    tensors_.emplace(std::move(name), std::move(tensor));
  }

  std::string file(std::map<std::string, std::string> metadata) {
    metadata["order"] = join(order_, "\n");
    std::string file = lay_out_safetensors(stored_, metadata);
    for (const StoredTensor& stored : stored_) {
      const Tensor& tensor = tensors_.at(stored.name);
      file.append(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes());
    }
    return file;
  }

 private:
  std::vector<StoredTensor> stored_;
  std::vector<std::string> order_;
  std::map<std::string, Tensor> tensors_;
};

std::vector<Tensor> first_samples(const TrainerOptions& options, const Dataset& data) {
  const std::int64_t samples = samples_of_step(options, 1);
  require(data.size() >= samples, "a step takes ", samples, " samples, and the training data have ",
          data.size());
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<Tensor> batch = batch_tensors(data, samples);
  std::vector<std::byte*> rows;
  for (Tensor& field : batch) rows.push_back(field.mutable_raw());
  Gatherer(data, 1, "the samples of a step").gather(DataPass{.seed = options.seed}, indices, rows);
  return batch;
}

// What ops that `value` depends on draw, in order of creation.
std::vector<Output> drawn_for(Output value) {
  const Graph& graph = value.node().graph();
  std::vector<bool> needed(static_cast<std::size_t>(value.node().id()) + 1);
  needed.back() = true;
  std::vector<Output> drawn;
  for (std::size_t id = needed.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const Node& node = graph.node(id);
    for (const Output& input : node.inputs())
      needed[static_cast<std::size_t>(input.node().id())] = true;
    if (node.op().random) drawn.insert(drawn.begin(), node.output(&node.op() == &kDropout ? 1 : 0));
  }
  return drawn;
}

// The model on one device, with the gradients of its losses.
class OneStep {
 public:
  OneStep(const TrainerOptions& options, const Dataset& data)
      : graph_(options.seed),
        losses_(losses_of(options)),
        fields_(data.signature()),
        batch_(first_samples(options, data)) {
    const DeviceSpec devices[] = {options.devices[0].of_process(graph_.process())};
    LossFreezing frozen(losses_);
    tower_ = replicate(graph_, devices, VariablePolicy::kReplicated, [&](Tower& tower) {
      for (std::size_t i = 0; i < fields_.size(); ++i)
        inputs_.push_back(
            placeholder(graph_, fields_[i].name, fields_[i].dtype, batch_[i].shape()));
      const AutocastScope types(graph_, autocasting(options.precision));
      const VariableScope freezing(graph_, frozen);
      options.model.build(tower, inputs_);
      require_losses(tower, losses_, frozen.frozen());
      outputs_ = tower.outputs();
    })[0];
    for (const LossOptions& loss : losses_) {
      values_.push_back(value_of_loss(loss, tower_.metrics, tower_.loss));
      for (const Gradient& gradient :
           compute_gradients(values_.back(), variables_of_loss(loss, tower_.trainables)))
        gradients_.emplace(gradient.variable.name(), gradient.value);
    }
  }

  const Graph& graph() const { return graph_; }

  std::string file(Session& session) const {
    StepTensors tensors;
    std::vector<FeedValue> feeds;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      tensors.add(cat("input/", fields_[i].name), batch_[i]);
      feeds.push_back({inputs_[i], batch_[i]});
    }
    std::vector<std::string> names;
    std::vector<Fetch> fetches;
    const auto fetch = [&](std::string name, Output value) {
      names.push_back(std::move(name));
      fetches.emplace_back(value);
    };
    for (const Output& drawn : drawn_for(tower_.loss))
      fetch(cat("random/", drawn.node().logical_name()), drawn);
    for (const auto& [name, output] : outputs_) fetch(cat("output/", name), output);
    for (std::size_t l = 0; l < losses_.size(); ++l)
      fetch(losses_[l].loss.empty() ? "loss" : cat("loss/", losses_[l].loss), values_[l]);
    for (const Variable& variable : tower_.trainables)
      if (const auto found = gradients_.find(std::string(variable.name()));
          found != gradients_.end()) {
        tensors.add(cat("variable/", variable.name()), session.read(variable));
        fetch(cat("gradient/", variable.name()), found->second);
      }
    std::vector<Tensor> values = session.run(fetches, feeds);
    for (std::size_t i = 0; i < values.size(); ++i)
      tensors.add(std::move(names[i]), std::move(values[i]));
    return tensors.file(variables_of_losses());
  }

 private:
  std::map<std::string, std::string> variables_of_losses() const {
    std::map<std::string, std::string> result;
    for (const LossOptions& loss : losses_) {
      if (loss.loss.empty()) continue;
      std::vector<std::string> names;
      for (const Variable& variable : variables_of_loss(loss, tower_.trainables))
        names.emplace_back(variable.name());
      result[cat("variables/", loss.loss)] = join(names, "\n");
    }
    return result;
  }

  Graph graph_;
  std::vector<LossOptions> losses_;
  std::vector<Dataset::Field> fields_;
  std::vector<Tensor> batch_;
  std::vector<Output> inputs_;
  TowerRecord tower_;
  std::vector<NamedOutput> outputs_;
  std::vector<Output> values_;  // of the losses
  std::map<std::string, Output> gradients_;
};

}  // namespace

std::string step_file(const TrainerOptions& options, const Dataset& data,
                      const std::function<void(Session&)>& load) {
  const OneStep step(options, data);
  SessionOptions session_options = options.session;
  session_options.device_count = device_count(std::span(options.devices).first(1));
  Session session(step.graph(), session_options);
  if (load) load(session);
  return step.file(session);
}

}  // namespace belfry
