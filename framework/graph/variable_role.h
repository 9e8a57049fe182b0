// What a variable is for. Exports, hashes, predictions and reports all depend on it.
#pragma once
#include <cstdint>
#include <string_view>

namespace belfry {

enum class VariableRole : std::uint8_t {
  kWeight,  // of the model, trained or not: layers and tower functions make these. The moments that
            // batch norm keeps are weights, too
  kAverage,  // the moving average of a weight
  kState,    // everything else: slots of optimizers, counters, the loss scale
};

// "weight".
std::string_view name_of(VariableRole role);
// Throws InvalidArgument, with the known names.
VariableRole find_variable_role(std::string_view name);

// Whether infinities of such a variable are on purpose: those of weights that are not trained, such
// as a mask. NaN never is.
bool may_be_infinite(VariableRole role, bool trainable);

// The moving average of a weight is called "<weight>/ExponentialMovingAverage", as in TensorFlow.
inline constexpr std::string_view kWeightAverage = "ExponentialMovingAverage";
// "fc/W" of "fc/W/ExponentialMovingAverage"; "" of other names.
std::string_view name_of_averaged(std::string_view name);

}  // namespace belfry
