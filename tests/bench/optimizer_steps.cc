// Writes what optimizers make of weights in some steps for scripts/compare_with_torch, in one
// safetensors file of f64: `first` and `slope`, of which the gradient is made, and
// `CASE/STEP` for each case and step. The cases are those of the script, and `CASE_groups`, whose
// rows are variables in groups.
#include <string>
#include <utility>
#include <vector>

#include "belfry/belfry.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/program.h"

namespace belfry::bench {
namespace {

constexpr int kSteps = 20;

// By names that the script knows.
std::vector<std::pair<std::string, Optimizer>> cases() {
  constexpr DecayForm kDecoupled = DecayForm::kDecoupled;
  return {{"sgd", sgd(0.1, {.weight_decay = 0.2})},
          {"momentum", momentum(0.1, {.momentum = 0.8, .weight_decay = 0.2})},
          {"nesterov", momentum(0.1, {.momentum = 0.8, .nesterov = true, .weight_decay = 0.2})},
          {"rms_prop", rms_prop(0.01, {.alpha = 0.9, .momentum = 0.5, .weight_decay = 0.2})},
          {"adam", adam({.rate = 0.05, .weight_decay = 0.2})},
          {"adamw", adamw(0.05, {.weight_decay = 0.2})},
          {"amsgrad", amsgrad(0.05, {.beta2 = 0.5, .weight_decay = 0.2})},
          {"amsgrad_decoupled",
           amsgrad(0.05, {.beta2 = 0.5, .weight_decay = 0.2}).with_decay_form(kDecoupled)},
          {"adagrad", adagrad(0.1, {.weight_decay = 0.2})},
          {"lion", lion(0.01, {.weight_decay = 0.2})},
          {"lars", lars(0.1, {.momentum = 0.8, .trust_coefficient = 0.05, .weight_decay = 0.2})},
          {"lamb", lamb(0.05, {.weight_decay = 0.2})}};
}

// A row of weights each; the last is in no group.
constexpr const char* kRows[] = {"slow", "undecayed", "frozen", "other"};
const std::vector<VariableGroup> kGroups{{.pattern = "slow", .rate = 0.1},
                                         {.pattern = "undecayed", .weight_decay = 0},
                                         {.pattern = "frozen", .freeze = true}};

// Values in [-1, 1) that look random.
Tensor values(std::uint64_t seed) {
  std::vector<double> numbers;
  for (int i = 0; i < 12; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    numbers.push_back(static_cast<double>(seed >> 33) / (1u << 30) - 1);
  }
  return Tensor({4, 3}, std::move(numbers));
}

// Part p of `parts` equal parts.
Tensor part_of(const Tensor& all, std::size_t p, std::size_t parts) {
  const std::span<const double> values = all.data<double>();
  const auto some = values.subspan(p * values.size() / parts, values.size() / parts);
  return Tensor({4 / static_cast<std::int64_t>(parts), 3}, std::vector(some.begin(), some.end()));
}

// The weights are `parts` variables. The gradient is the weights times a half, plus a slope.
std::vector<Tensor> weights_after(const Optimizer& optimizer, const Tensor& first,
                                  const Tensor& slope, std::size_t parts) {
  Graph graph;
  FreezingGetter freezing(optimizer.groups());
  const VariableScope scope(graph, freezing);
  std::vector<Variable> variables;
  std::vector<Gradient> gradients;
  for (std::size_t p = 0; p < parts; ++p) {
    const Tensor values = part_of(first, p, parts);
    const Initializer given = [&](Graph& in, const Shape&, DType) { return constant(in, values); };
    variables.push_back(
        variable(graph, kRows[p], values.shape(), {.dtype = DType::kF64, .initializer = given}));
    const Variable w = variables.back();
    if (w.trainable())
      gradients.push_back({w * 0.5 + constant(graph, part_of(slope, p, parts)), w});
  }
  Node& step = optimizer.apply(gradients);
  Session session(graph);
  std::vector<Tensor> after;
  for (int i = 0; i < kSteps; ++i) {
    session.run({step});
    std::vector<double> all;
    for (const Variable w : variables) {
      const Tensor read = session.read(w);
      all.insert(all.end(), read.data<double>().begin(), read.data<double>().end());
    }
    after.emplace_back(first.shape(), std::move(all));
  }
  return after;
}

int write_steps(const std::string& file) {
  std::vector<std::pair<std::string, Tensor>> tensors{{"first", values(1)}, {"slope", values(2)}};
  const Tensor first = tensors[0].second, slope = tensors[1].second;
  const auto add = [&](const std::string& name, const std::vector<Tensor>& after) {
    for (std::size_t i = 0; i < after.size(); ++i)
      tensors.emplace_back(cat(name, "/", i + 1), after[i]);
  };
  for (const auto& [name, optimizer] : cases()) {
    add(name, weights_after(optimizer, first, slope, 1));
    add(name + "_groups", weights_after(optimizer.with_groups(kGroups), first, slope, 4));
  }
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors)
    stored.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
  std::string text = lay_out_safetensors(stored);
  for (const StoredTensor& laid : stored)
    for (const auto& [name, tensor] : tensors)
      if (name == laid.name)
        text.append(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes());
  write_text_file(local_file_system(), file, text);
  return 0;
}

struct WantedSteps {
  std::string file, help;
};

WantedSteps parse_steps(std::span<const char* const> arguments, const std::string& program) {
  WantedSteps wanted;
  FlagParser parser("Writes the weights after each of some steps of each optimizer.", program);
  parser.add_argument("FILE", wanted.file, "safetensors", FlagParser::Needed::kYes);
  wanted.help = parser.parse(arguments);
  return wanted;
}

}  // namespace
}  // namespace belfry::bench

int main(int argc, char** argv) {
  using namespace belfry::bench;
  return belfry::run_program(argc, argv, parse_steps,
                             [](const WantedSteps& wanted) { return write_steps(wanted.file); });
}
