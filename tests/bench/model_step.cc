// Writes the results of one step of a model for scripts/compare_with_torch, in one safetensors
// file: `weight/NAME` and `gradient/NAME` of each variable, the batch as `input/FIELD`, and `loss`.
#include <numeric>
#include <string>
#include <vector>

#include "belfry/belfry.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/program/program.h"

namespace belfry::bench {
namespace {

struct Wanted {
  std::string model = "gpt", file, help;
  int batch_size = 4;
};

Wanted parse(std::span<const char* const> arguments, const std::string& program) {
  Wanted wanted;
  FlagParser parser("Writes weights, batch, loss and gradients of one step of a model.", program);
  parser.add("--model", wanted.model, "NAME", "as of train_bench [gpt]");
  parser.add("--batch_size", wanted.batch_size, 1, 1 << 20, "N", "samples [4]");
  parser.add_argument("FILE", wanted.file, "safetensors", FlagParser::Needed::kYes);
  wanted.help = parser.parse(arguments);
  return wanted;
}

// Makes a batch of synthetic data, one tensor per field.
std::vector<Tensor> make_batch(const ModelSpec& spec, int samples) {
  const auto data = synthetic_data(spec.fields, spec.classes, samples, 1);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<Tensor> batch;
  std::vector<std::byte*> rows;
  for (const Dataset::Field& field : spec.fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), samples);
    batch.emplace_back(Shape(std::move(dims)), field.dtype);
    rows.push_back(batch.back().mutable_raw());
  }
  data->gather(indices, rows);
  return batch;
}

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

NamedTensors compute_step(const ModelSpec& spec, const std::vector<Tensor>& batch) {
  Graph graph;
  Tower tower(graph);
  NamedTensors result;
  std::vector<Output> inputs;
  std::vector<FeedValue> feeds;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::string& name = spec.fields[i].name;
    inputs.push_back(placeholder(graph, name, batch[i].dtype(), batch[i].shape()));
    feeds.push_back({inputs.back(), batch[i]});
    result.emplace_back("input/" + name, batch[i]);
  }
  const Output loss = spec.model(tower, inputs);
  const std::vector<Gradient> gradients = compute_gradients(loss, tower.trainables());
  std::vector<Fetch> fetches{loss};
  for (const Gradient& gradient : gradients) fetches.emplace_back(gradient.value);
  Session session(graph);
  const std::vector<Tensor> values = session.run(fetches, feeds);
  result.emplace_back("loss", values[0]);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Variable variable = gradients[i].variable;
    result.emplace_back(cat("gradient/", variable.name()), values[i + 1]);
    result.emplace_back(cat("weight/", variable.name()), session.read(variable));
  }
  return result;
}

std::string as_safetensors(const NamedTensors& tensors) {
  std::vector<StoredTensor> stored;
  std::map<std::string, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    stored.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
    by_name[name] = &tensor;
  }
  std::string file = lay_out_safetensors(stored);
  for (const StoredTensor& tensor : stored) {
    const Tensor& values = *by_name.at(tensor.name);
    file.append(reinterpret_cast<const char*>(values.raw()), values.bytes());
  }
  return file;
}

int write_step(const Wanted& wanted) {
  const ModelSpec spec = find_model(wanted.model);
  const std::vector<Tensor> batch = make_batch(spec, wanted.batch_size);
  write_text_file(local_file_system(), wanted.file, as_safetensors(compute_step(spec, batch)));
  return 0;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  return belfry::run_program(argc, argv, belfry::bench::parse, belfry::bench::write_step);
}
