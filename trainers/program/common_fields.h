// JSON members that training programs and train_bench share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

// The settings of steps.
struct StepSettings {
  std::string precision = "f32";
  bool deterministic = false;                              // as in SessionOptions
  bool fuse = true;                                        // as in SessionOptions
  double weight_decay = 0, clip_norm = 0, clip_value = 0;  // 0: none
  std::vector<std::string> recompute = {};                 // name scopes
  int gradient_accumulation_steps = 1;                     // batches of a step
};

StepSettings settings_of(const TrainerOptions& options);

// The speed of training, on all devices together.
struct TrainingSpeed {
  double examples_per_second = 0;
  std::optional<double> tokens_per_second = {};  // none unless samples are rows of tokens
  std::optional<double> mfu = {};                // share of the measured peak; none without --mfu
  // Of the traced steps; none without a trace, or without messages.
  std::optional<double> communication_hidden_share = {};
};

// Each function adds a member per field; missing values are null. Commas separate scopes.
void set_settings(JsonValue& json, const StepSettings& settings);
// A row of tokens counts as an example.
void set_speed(JsonValue& json, const TrainingSpeed& speed);

}  // namespace belfry
