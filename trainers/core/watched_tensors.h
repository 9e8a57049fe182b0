// What histograms show (HistogramOptions): gradients and activations, which a step has to fetch,
// and variables.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

struct HistogramOptions;
struct TrainerKind;
struct TrainerOptions;

// Whether a pattern is about variables and fits this one.
bool watches_variable(const HistogramOptions& options, std::string_view logical_name);

// The gradients and activations of a step that patterns fit, for each loss, by names such as
// "gradients/fc0/W": f32 or f64, and NaN for gradients in a step that updates nothing. Activations
// are those of the run for the first loss. `form` is the number of the step's form of batches.
// Throws OptionError for a pattern that fits nothing, and for
// gradients and activations that this trainer does not have in a step.
std::vector<std::vector<NamedOutput>> watched_tensors(const TrainingGraph& built, std::size_t form,
                                                      const TrainerKind& kind,
                                                      const TrainerOptions& options);
// The same checks for variables, and for trainers that run free, which have no such steps.
void check_histograms(const TrainingGraph& built, const TrainerOptions& options);

}  // namespace belfry
