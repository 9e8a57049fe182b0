// Writes what optimizers make of weights in some steps for scripts/compare_with_torch, in one
// safetensors file of f64: `first` and `slope`, of which the gradient is made, and
// `CASE/STEP` for each case and step. The cases are those of the script.
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

// Values in [-1, 1) that look random.
Tensor values(std::uint64_t seed) {
  std::vector<double> numbers;
  for (int i = 0; i < 12; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    numbers.push_back(static_cast<double>(seed >> 33) / (1u << 30) - 1);
  }
  return Tensor({4, 3}, std::move(numbers));
}

// The gradient is the weights times a half, plus a slope.
std::vector<Tensor> weights_after(const Optimizer& optimizer, const Tensor& first,
                                  const Tensor& slope) {
  Graph graph;
  const Initializer given = [&](Graph& in, const Shape&, DType) { return constant(in, first); };
  const Variable w =
      variable(graph, "w", first.shape(), {.dtype = DType::kF64, .initializer = given});
  const Gradient gradient{w * 0.5 + constant(graph, slope), w};
  Node& step = optimizer.apply({&gradient, 1});
  Session session(graph);
  std::vector<Tensor> after;
  for (int i = 0; i < kSteps; ++i) {
    session.run({step});
    after.push_back(session.read(w));
  }
  return after;
}

int write_steps(const std::string& file) {
  std::vector<std::pair<std::string, Tensor>> tensors{{"first", values(1)}, {"slope", values(2)}};
  const Tensor first = tensors[0].second, slope = tensors[1].second;
  for (const auto& [name, optimizer] : cases()) {
    const std::vector<Tensor> after = weights_after(optimizer, first, slope);
    for (std::size_t i = 0; i < after.size(); ++i)
      tensors.emplace_back(cat(name, "/", i + 1), after[i]);
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
