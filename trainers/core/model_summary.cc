#include "belfry/trainers/core/model_summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// "conv0" of "conv0/W" and "conv0/Conv2d"; of "Relu", which is in no scope, itself.
std::string layer_of(std::string_view node) {
  const std::size_t slash = node.rfind('/');
  return std::string(slash == std::string_view::npos ? node : node.substr(0, slash));
}

// All that `ends` are made of, in order of creation. `waits`: what they wait for, too.
std::vector<const Node*> made_of(std::vector<const Node*> ends, bool waits) {
  std::map<int, const Node*> found;
  while (!ends.empty()) {
    const Node* const node = ends.back();
    ends.pop_back();
    if (!found.emplace(node->id(), node).second) continue;
    for (const Output& input : node->inputs()) ends.push_back(&input.node());
    if (waits)
      for (const Node* const before : node->control_inputs()) ends.push_back(before);
  }
  std::vector<const Node*> nodes;
  for (const auto& [id, node] : found) nodes.push_back(node);
  return nodes;
}

std::int64_t known_elements(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape.dims()) elements *= std::max<std::int64_t>(1, dim);
  return elements;
}

class SummaryBuilder {
 public:
  explicit SummaryBuilder(const TowerRecord& tower) : tower_(tower) {
    std::vector<const Node*> ends{&tower.loss.node()};
    for (const NamedOutput& output : tower.outputs) ends.push_back(&output.value.node());
    for (const Node* const node : made_of(ends, false)) add(*node);
    std::set<const Node*> moments;  // which PyTorch does not count, either
    for (const BatchMoments& layer : tower.moments)
      moments.insert({&layer.mean_average.node(), &layer.variance_average.node()});
    for (const Variable& variable : tower.variables)
      if (!moments.contains(&variable.node())) add(variable);
    for (const auto& [first, layer] : layers_) summary_.layers.push_back(layer);
    if (!tower.inputs.empty())
      summary_.samples = std::max<std::int64_t>(1, tower.inputs[0].shape()[0]);
  }
  ModelSummary take() { return std::move(summary_); }

 private:
  // Nodes of the data; others make something of variables or constants alone.
  void add(const Node& node) {
    const bool input = &node.op() == &kPlaceholder;
    const bool of_data = input || std::ranges::any_of(node.inputs(), [&](const Output& from) {
                           return of_data_.contains(&from.node());
                         });
    if (!of_data) return;
    of_data_.insert(&node);
    if (input || node.outputs() == 0) return;
    LayerSummary& layer = find(layer_of(node.logical_name()), node);
    layer.last = node.output();
    layer.output = node.output_type(0);
    layer.multiply_adds += work_of(node).multiply_adds;
    summary_.multiply_adds += work_of(node).multiply_adds;
    for (std::size_t i = 0; i < node.outputs(); ++i) {
      const TensorType& type = node.output_type(i);
      const auto bytes =
          known_elements(type.shape) * static_cast<std::int64_t>(size_of(type.dtype));
      layer.bytes += bytes;
      summary_.bytes += bytes;
    }
  }

  void add(const Variable& variable) {
    const std::string name(variable.logical_name());
    const bool owned = first_.contains(layer_of(name));
    LayerSummary& layer = find(owned ? layer_of(name) : name, variable.node());
    if (!owned) layer.output = variable.ref().type();
    layer.parameters += variable.shape().elements();
    summary_.parameters += variable.shape().elements();
    if (variable.trainable()) summary_.trained += variable.shape().elements();
  }

  LayerSummary& find(const std::string& name, const Node& node) {
    const int first = first_.emplace(name, node.id()).first->second;
    LayerSummary& layer = layers_[first];
    layer.name = name;
    return layer;
  }

  const TowerRecord& tower_;
  std::set<const Node*> of_data_;
  std::map<std::string, int> first_;    // node of a layer
  std::map<int, LayerSummary> layers_;  // by that
  ModelSummary summary_;
};

// "25,557,032".
std::string grouped(double number) {
  const std::string digits = rounded(number, 0);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

using Line = std::array<std::string, 5>;

Line line_of(std::string name, std::string output, std::int64_t parameters, double work,
             std::int64_t bytes) {
  return {std::move(name), std::move(output), grouped(static_cast<double>(parameters)),
          grouped(work), grouped(static_cast<double>(bytes))};
}

}  // namespace

double step_multiply_adds(const TrainingGraph& built, std::int64_t batches_per_step,
                          std::size_t form) {
  const std::vector<Node*> copies = built.towers[0].graph->nodes(kRecomputed);
  const std::set<const Node*> again(copies.begin(), copies.end());
  double sum = 0;
  const auto add = [&](const std::vector<const Node*>& ends) {
    for (const Node* const node : made_of(ends, true))
      if (!again.contains(node)) sum += work_of(*node).multiply_adds;
  };
  if (!built.tower_ops.empty())
    add({built.tower_ops.begin(), built.tower_ops.end()});
  else
    for (const TrainedLoss& loss : built.losses) add({loss.steps[form].train_op});  // one run each
  return sum * static_cast<double>(batches_per_step);
}

namespace {

// The batches of an epoch that each bucket has.
std::map<std::size_t, std::int64_t> batches_by_bucket(const BatchPlan& plan) {
  std::map<std::size_t, std::int64_t> batches;
  for (std::int64_t b = 0; b < plan.batches_per_epoch(); ++b)
    ++batches[plan.forms()[plan.form_of(b)].bucket];
  return batches;
}

bool has_one_bucket(const BatchPlan& plan) {
  return std::ranges::all_of(
      plan.forms(), [&](const BatchForm& form) { return form.bucket == plan.forms()[0].bucket; });
}

}  // namespace

double mean_step_multiply_adds(const BuiltTraining& built) {
  const BatchPlan& plan = built.batches();
  if (has_one_bucket(plan)) return step_multiply_adds(built.nodes(), plan.batches_per_step());
  double sum = 0;
  for (const auto& [bucket, batches] : batches_by_bucket(plan)) {
    const auto form = std::ranges::find(plan.forms(), bucket, &BatchForm::bucket);
    sum +=
        static_cast<double>(batches) *
        step_multiply_adds(built.nodes(), 1, static_cast<std::size_t>(form - plan.forms().begin()));
  }
  return sum / static_cast<double>(plan.batches_per_epoch());
}

std::int64_t tokens_of_sample(const BuiltTraining& built) {
  return has_one_bucket(built.batches()) ? built.train_data().tokens() : 0;
}

ModelSummary summarise(const TrainingGraph& built, std::int64_t batches_per_step) {
  ModelSummary summary = SummaryBuilder(built.towers[0]).take();
  summary.step_multiply_adds = step_multiply_adds(built, batches_per_step);
  return summary;
}

std::vector<LayerSummary> layers_of(const TowerRecord& tower) {
  return SummaryBuilder(tower).take().layers;
}

std::string to_table(const ModelSummary& summary) {
  std::vector<Line> lines{{"layer", "output", "parameters", "multiply-adds", "bytes"}};
  for (const LayerSummary& layer : summary.layers)
    lines.push_back(
        line_of(layer.name, cat(layer.output), layer.parameters, layer.multiply_adds, layer.bytes));
  lines.push_back(line_of("total", "", summary.parameters, summary.multiply_adds, summary.bytes));
  std::array<int, 5> widths{0, 22, 14, 18, 16};
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], static_cast<int>(line[i].size()) + (i < 2 ? 0 : 2));
  std::string table;
  for (const Line& line : lines)
    table += cat(padded(line[0], -widths[0]), "  ", padded(line[1], -widths[1]),
                 padded(line[2], widths[2]), padded(line[3], widths[3]), padded(line[4], widths[4]),
                 "\n");
  if (summary.trained < summary.parameters)
    table += cat(grouped(static_cast<double>(summary.trained)), " of the parameters are trained\n");
  const double samples = static_cast<double>(summary.samples);
  table += cat("for a batch of ", summary.samples, " on one device, forward; ",
               grouped(summary.multiply_adds / samples), " multiply-adds a sample\n",
               "a training step, forward and backward, on all devices: ",
               grouped(summary.step_multiply_adds), " multiply-adds");
  return table;
}

JsonValue to_json(const ModelSummary& summary) {
  JsonValue layers = JsonValue::array();
  for (const LayerSummary& layer : summary.layers)
    layers.push(JsonValue::object()
                    .set("name", layer.name)
                    .set("output", cat(layer.output))
                    .set("parameters", layer.parameters)
                    .set("multiply_adds", layer.multiply_adds)
                    .set("bytes", layer.bytes));
  return JsonValue::object()
      .set("batch_size", summary.samples)
      .set("layers", std::move(layers))
      .set("parameters", summary.parameters)
      .set("trained_parameters", summary.trained)
      .set("multiply_adds", summary.multiply_adds)
      .set("multiply_adds_per_step", summary.step_multiply_adds)
      .set("bytes", summary.bytes);
}

}  // namespace belfry
