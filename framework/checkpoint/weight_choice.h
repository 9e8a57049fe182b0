// Which values of the weights to take from a checkpoint that also has their moving averages.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace belfry {

struct Manifest;

enum class WeightChoice : std::uint8_t {
  kValidated,  // what the training evaluated: the averages if it kept any, else the weights
  kRaw,        // the weights as trained
  kAverage,  // their moving averages; weights without one, such as those of batch norm, as they are
};
// "validated".
std::string_view name_of(WeightChoice choice);
// Throws InvalidArgument, with the known names.
WeightChoice find_weight_choice(std::string_view name);

// The member of CheckpointInfo::extra in which a training records what it evaluated: "raw" or
// "average".
inline constexpr char kValidatedWeights[] = "validated";

// The tensors that hold the chosen values of the weights.
struct ChosenWeights {
  WeightChoice values = WeightChoice::kRaw;    // kRaw or kAverage
  std::map<std::string, std::string> tensors;  // by the names of the weights

  // "raw weights", or "moving averages of the weights".
  std::string_view what() const;
};

// Throws InvalidArgument, naming `directory`, for kAverage if the checkpoint has no averages.
// `option` is the caller's that chooses.
ChosenWeights choose_weights(const Manifest& manifest, WeightChoice choice,
                             const std::string& directory, std::string_view option = "weights");

}  // namespace belfry
