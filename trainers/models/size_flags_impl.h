// Flags for the sizes of a model.
#pragma once
#include <cstdint>
#include <string>

#include "belfry/trainers/options/own_option.h"

namespace belfry::models {

inline constexpr std::int64_t kLargestSize = 1 << 28;

inline OwnOption size_flag(const char* name, std::int64_t& value, std::int64_t least,
                           const char* text) {
  const OwnOption::Range from_0{"a whole number from 0 to 268435456",
                                [](double x) { return x >= 0 && x <= kLargestSize; }};
  const OwnOption::Range from_1{"a whole number from 1 to 268435456",
                                [](double x) { return x >= 1 && x <= kLargestSize; }};
  return {.name = name, .variable = &value, .text = text, .range = least == 0 ? from_0 : from_1};
}

inline OwnOption dropout_flag(double& rate, const char* text) {
  return {.name = "dropout",
          .variable = &rate,
          .text = text,
          .range = {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }},
          .unit = "RATE"};
}

inline OwnOption norm_epsilon_flag(double& epsilon) {
  return {.name = "norm_epsilon",
          .variable = &epsilon,
          .text = "added to variances and mean squares by norms",
          .range = {"a number above 0", [](double x) { return x > 0; }}};
}

// --preset: names that stand for other flags of the size.
inline OwnOption preset_flag(std::string& preset, std::vector<OwnOption::Choice> presets) {
  OwnOption flag{
      .name = "preset",
      .variable = &preset,
      .text = "a size by its name; it stands for flags below, and flags that are given win",
      .unit = "NAME"};
  for (const OwnOption::Choice& choice : presets) flag.choices.push_back(choice.name);
  flag.stands_for = std::move(presets);
  return flag;
}

}  // namespace belfry::models
