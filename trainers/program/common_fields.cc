#include "belfry/trainers/program/common_fields.h"

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

JsonValue number_or_null(const std::optional<double>& number) {
  return number ? JsonValue(*number) : JsonValue();
}

}  // namespace

StepSettings settings_of(const TrainerOptions& options) {
  return {.precision = std::string(name_of(options.precision)),
          .deterministic = options.session.deterministic,
          .fuse = options.session.fuse,
          .weight_decay = options.first_optimizer().weight_decay(),
          .clip_norm = options.clip_norm,
          .clip_value = options.clip_value,
          .recompute = options.recompute,
          .gradient_accumulation_steps = options.batches.gradient_accumulation_steps};
}

void set_settings(JsonValue& json, const StepSettings& settings) {
  json.set("precision", settings.precision)
      .set("deterministic", settings.deterministic)
      .set("fuse", settings.fuse)
      .set("weight_decay", settings.weight_decay)
      .set("clip_norm", settings.clip_norm)
      .set("clip_value", settings.clip_value)
      .set("recompute", join(settings.recompute, ","))
      .set("gradient_accumulation_steps", settings.gradient_accumulation_steps);
}

void set_speed(JsonValue& json, const TrainingSpeed& speed) {
  json.set("examples_per_second", speed.examples_per_second)
      .set("tokens_per_second", number_or_null(speed.tokens_per_second))
      .set("mfu", number_or_null(speed.mfu))
      .set("communication_hidden_share", number_or_null(speed.communication_hidden_share));
}

}  // namespace belfry
