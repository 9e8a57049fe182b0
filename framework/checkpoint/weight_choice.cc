#include "belfry/framework/checkpoint/weight_choice.h"

#include <array>

#include "belfry/framework/base/find_word.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 3> kWeightChoices = {"validated", "raw", "average"};

// What a training evaluated. If it did not record that: the averages, if there are any.
WeightChoice validated_choice(const Manifest& manifest) {
  const JsonValue* const said = manifest.extra.find(kValidatedWeights);
  const bool raw = said && said->kind() == JsonValue::Kind::kString &&
                   said->text() == name_of(WeightChoice::kRaw);
  return raw ? WeightChoice::kRaw : WeightChoice::kAverage;
}

}  // namespace

std::string_view name_of(WeightChoice choice) {
  return kWeightChoices[static_cast<std::size_t>(choice)];
}

WeightChoice find_weight_choice(std::string_view name) {
  return find_word<WeightChoice>(kWeightChoices, name, "choice of weights");
}

std::string_view ChosenWeights::what() const {
  return values == WeightChoice::kRaw ? "raw weights" : "moving averages of the weights";
}

ChosenWeights choose_weights(const Manifest& manifest, WeightChoice choice,
                             const std::string& directory, std::string_view option) {
  ChosenWeights chosen;
  bool has_averages = false;
  for (const auto& [name, entry] : manifest.tensors) {
    if (entry.role == VariableRole::kWeight) chosen.tensors[name] = name;
    has_averages = has_averages || entry.role == VariableRole::kAverage;
  }
  if (choice == WeightChoice::kAverage && !has_averages)
    throw InvalidArgument(about_option(
        option, "the checkpoint ", directory,
        " has no moving averages of its weights; take its raw ones (", the_option(option), ")"));
  if (choice == WeightChoice::kValidated) choice = validated_choice(manifest);
  if (choice == WeightChoice::kRaw || !has_averages) return chosen;
  chosen.values = WeightChoice::kAverage;
  for (const auto& [name, entry] : manifest.tensors)
    if (entry.role == VariableRole::kAverage) chosen.tensors[entry.average_of] = name;
  return chosen;
}

}  // namespace belfry
