#include "belfry/trainers/core/watched_tensors.h"

#include <algorithm>
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/optimizers/variable_groups.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

namespace watched_tensors_file {

constexpr std::string_view kOfGradients = "gradients", kOfActivations = "activations";

bool is_of(std::string_view pattern, std::string_view kind) {
  return pattern.starts_with(kind) &&
         (pattern.size() == kind.size() || pattern[kind.size()] == '/');
}

bool is_of_variables(std::string_view pattern) {
  return !is_of(pattern, kOfGradients) && !is_of(pattern, kOfActivations);
}

bool fits_any(const HistogramOptions& options, std::string_view kind, std::string_view name) {
  return std::ranges::any_of(options.patterns, [&](const std::string& pattern) {
    return is_of(pattern, kind) && fits_pattern(name, pattern);
  });
}

bool names_any(const HistogramOptions& options, std::string_view kind) {
  return std::ranges::any_of(options.patterns,
                             [&](const std::string& pattern) { return is_of(pattern, kind); });
}

void require_some(const std::string& pattern, std::string_view what,
                  const std::vector<std::string>& names) {
  require_option<OptionMistake>(
      std::ranges::any_of(names,
                          [&](const std::string& name) { return fits_pattern(name, pattern); }),
      "histograms", "=", pattern, " fits no ", what, "; near are ", names_near(pattern, names));
}

// The gradient as updates take it before it is clipped.
Output applied(Output gradient, Output factor) {
  if (!factor) return gradient;
  const DeviceScope on(gradient.graph(), gradient.device());
  const Output times = cast(factor, gradient.dtype());
  return gradient * (times / (times / times));  // the same, and NaN for 0
}

Output in_f32_at_least(Output activation) {
  if (!is_half(activation.dtype())) return activation;
  const DeviceScope on(activation.graph(), activation.device());
  return cast(activation, DType::kF32);
}

std::vector<NamedOutput> all_gradients(const StepNodes& step) {
  std::vector<NamedOutput> all;
  for (const Gradient& gradient : step.gradients)
    if (gradient.value)
      all.push_back({cat(kOfGradients, "/", gradient.variable.logical_name()), gradient.value});
  return all;
}

std::vector<NamedOutput> all_activations(const TowerRecord& tower) {
  std::vector<NamedOutput> all;
  for (const LayerSummary& layer : layers_of(tower))
    if (layer.last && is_floating(layer.last.dtype()))
      all.push_back({cat(kOfActivations, "/", layer.name), layer.last});
  return all;
}

std::vector<std::string> names_of(const std::vector<NamedOutput>& tensors) {
  std::vector<std::string> names;
  for (const NamedOutput& tensor : tensors) names.push_back(tensor.name);
  return names;
}

void check_gradients(const TrainerKind& kind, const TrainerOptions& options) {
  require_option<TrainerMistake>(kind.combines(), "histograms",
                                 " shows combined gradients, and the trainer ", kind.name,
                                 kCombinesNone);
  require_option(!updates_parts(options), "histograms",
                 " shows whole gradients, of which each process has only parts; leave gradients "
                 "out, or ",
                 the_option("zero_stage"));
}

}  // namespace watched_tensors_file

}  // namespace

bool watches_variable(const HistogramOptions& options, std::string_view logical_name) {
  return std::ranges::any_of(options.patterns, [&](const std::string& pattern) {
    return watched_tensors_file::is_of_variables(pattern) && fits_pattern(logical_name, pattern);
  });
}

std::vector<std::vector<NamedOutput>> watched_tensors(const TrainingGraph& built, std::size_t form,
                                                      const TrainerKind& kind,
                                                      const TrainerOptions& options) {
  using namespace watched_tensors_file;
  const HistogramOptions& histograms = options.histograms;
  std::vector<std::vector<NamedOutput>> watched(built.losses.size());
  if (histograms.every == 0) return watched;
  const NameScope names(*built.towers[0].graph, "watched");
  const auto require_each = [&](std::string_view of, const char* what,
                                const std::vector<NamedOutput>& all) {
    for (const std::string& pattern : histograms.patterns)
      if (is_of(pattern, of)) require_some(pattern, what, names_of(all));
  };
  if (names_any(histograms, kOfGradients)) {
    check_gradients(kind, options);
    std::vector<NamedOutput> all;
    for (std::size_t l = 0; l < watched.size(); ++l) {
      const StepNodes& step = built.losses[l].steps[form];
      for (const NamedOutput& gradient : all_gradients(step)) {
        all.push_back(gradient);
        if (fits_any(histograms, kOfGradients, gradient.name))
          watched[l].push_back({gradient.name, applied(gradient.value, step.unscaling.factor)});
      }
    }
    require_each(kOfGradients, "gradient", all);
  }
  if (names_any(histograms, kOfActivations) && built.losses[0].steps[form].runs(0)) {
    const std::vector<NamedOutput> all =
        all_activations(built.losses[0].towers_of(built.losses[0].steps[form].batch)[0]);
    for (const NamedOutput& activation : all)
      if (fits_any(histograms, kOfActivations, activation.name))
        watched[0].push_back({activation.name, in_f32_at_least(activation.value)});
    require_each(kOfActivations, "layer", all);
  }
  return watched;
}

void check_histograms(const TrainingGraph& built, const TrainerOptions& options) {
  using namespace watched_tensors_file;
  const HistogramOptions& histograms = options.histograms;
  require_option(histograms.every >= 0, "histograms_every", " is ", histograms.every,
                 "; 0 makes none");
  if (histograms.every == 0) return;
  std::vector<std::string> names;
  for (const Variable& variable : built.towers[0].variables)
    if (variable.trainable()) names.emplace_back(variable.logical_name());
  for (const std::string& pattern : histograms.patterns) {
    if (is_of_variables(pattern)) require_some(pattern, "trained variable", names);
    require_option(is_of_variables(pattern) || built.tower_ops.empty(), "histograms", "=", pattern,
                   " needs steps of all towers together, and these run free; name variables alone, "
                   "or leave out ",
                   option_name("async"), "=free");
  }
}

}  // namespace belfry
