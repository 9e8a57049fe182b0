// Writes models with random weights as ONNX, and what they predict, for scripts/check_onnx.
#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "belfry/belfry.h"
#include "belfry/tests/bench/onnx_test_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/models/vit.h"

namespace belfry::bench {
namespace {

struct NamedModel {
  std::string name;
  ModelFunction build;
  TensorType input;  // without the batch
  int classes;
  Shape label;
};

Tensor random_tensor(const TensorType& type, int classes, std::mt19937& random) {
  Tensor value(type.shape, type.dtype);
  if (type.dtype == DType::kI32) {
    std::uniform_int_distribution<int> below(0, classes - 1);
    for (std::int32_t& x : value.mutable_data<std::int32_t>()) x = below(random);
  } else {
    std::normal_distribution<float> normal;
    for (float& x : value.mutable_data<float>()) x = normal(random);
  }
  return value;
}

Shape with_batch(Shape shape, std::int64_t batch) {
  std::vector<std::int64_t> dims = shape.dims();
  dims.insert(dims.begin(), batch);
  return Shape(dims);
}

// New weights of norms and biases are zeros and ones, which would hide mistakes.
void move_vectors(const Graph& graph, Session& session, std::mt19937& random) {
  std::uniform_real_distribution<float> change(0, 0.5);
  for (const Variable& variable : graph.variables()) {
    if (variable.shape().rank() != 1 || variable.dtype() != DType::kF32) continue;
    Tensor value = session.read(variable);
    for (float& x : value.mutable_data<float>()) x += change(random);
    session.write(variable, value);
  }
}

void write_model(const NamedModel& model, const std::string& folder, const OnnxOptions& options) {
  Graph graph;
  const TensorType label{model.label, DType::kI32};
  const TowerRecord tower = predict_tower(graph, {}, [&](Tower& t) {
    std::vector<Output> inputs;
    for (const auto& [name, type] : {std::pair("input", model.input), std::pair("label", label)})
      inputs.push_back(placeholder(graph, name, type.dtype, with_batch(type.shape, kUnknownSize)));
    model.build.build(t, inputs);
  });
  Session session(graph);
  std::mt19937 random(1);
  move_vectors(graph, session, random);
  std::vector<std::vector<Tensor>> batches;
  for (const int batch : {2, 3})
    batches.push_back({random_tensor({with_batch(model.input.shape, batch), model.input.dtype},
                                     model.classes, random)});
  PredictingGraph predicting{.inputs = {tower.inputs[0]}, .outputs = {}};
  for (const auto& [name, output] : tower.outputs) predicting.outputs.emplace_back(name, output);
  write_onnx_test(cat(folder, "/", model.name), predicting, session, batches, options);
}

// Those of find_model(), a Llama and a vision transformer.
std::vector<NamedModel> all_models() {
  std::vector<NamedModel> all;
  const auto add = [&](const std::string& name, const ModelSpec& spec) {
    const Dataset::Field &input = spec.fields[0], &label = spec.fields[1];
    all.push_back({name, spec.model, {input.shape, input.dtype}, spec.classes, label.shape});
  };
  for (const char* const name : {"mnist", "mlp", "resnet20", "resnet50", "gpt", "lstm", "gru"})
    add(name, find_model(name));
  const models::GptSize llama{
      .architecture = "llama", .layers = 4, .heads = 8, .kv_heads = 4, .width = 256};
  add("llama-tiny", find_model("gpt", 0, {.gpt = llama}));
  const ModelFunction vit = [](Tower& tower, Output image, Output label) {
    return models::vit(tower, image, label, {});
  };
  all.push_back({"vit", vit, {{32, 32, 3}, DType::kF32}, 10, {}});
  return all;
}

struct WantedModels {
  std::string folder, names, help;
  std::int64_t most_mb = 2000;
};

int write_models(const WantedModels& wanted) {
  const std::vector<std::string_view> names = split(wanted.names, ',');
  for (const NamedModel& model : all_models())
    if (wanted.names.empty() || std::ranges::find(names, model.name) != names.end())
      write_model(model, wanted.folder, {.most_bytes = wanted.most_mb << 20});
  return 0;
}

WantedModels parse_models(std::span<const char* const> arguments, const std::string& program) {
  WantedModels wanted;
  FlagParser parser("Writes models with random weights as ONNX, and what they predict.", program);
  parser.add_argument("FOLDER", wanted.folder, "for a folder per model", FlagParser::Needed::kYes);
  parser.add_argument("MODELS", wanted.names, "only these, separated by commas",
                      FlagParser::Needed::kNo);
  parser.add("--most_mb", wanted.most_mb, 0, 2000, "MB",
             "more than this goes to a second file [2000]");
  wanted.help = parser.parse(arguments);
  return wanted;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  using namespace belfry::bench;
  return belfry::run_program(argc, argv, parse_models, write_models);
}
