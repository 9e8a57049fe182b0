#include "belfry/trainers/core/auto_choice.h"

#include <algorithm>

#include "belfry/allreduce/buckets.h"
#include "belfry/allreduce/prediction/choice.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// The sizes, without those that cut these gradients as one before them does.
std::vector<double> sizes_that_differ(const std::vector<double>& sizes,
                                      const GradientTable& gradients) {
  std::vector<double> result;
  std::vector<std::vector<Bucket>> cuts;
  for (const double size : sizes) {
    std::vector<Bucket> cut;  // none for 0
    if (size > 0) cut = cut_buckets(gradients, bucket_bytes(size));
    if (std::ranges::find(cuts, cut) != cuts.end()) continue;
    cuts.push_back(std::move(cut));
    result.push_back(size);
  }
  return result;
}

StrategyChoice predict(const TrainerOptions& options, const GradientTable& gradients,
                       const StrategyCandidates& candidates) {
  std::vector<TensorType> types;
  for (const Gradient& gradient : gradients.row(0))
    types.push_back({gradient.variable.shape(), gradient.value.dtype()});
  const AutoOptions& choice = options.aggregation.choice;
  require(choice.machine != nullptr, "the strategy 'auto' is chosen for a machine, and none is ",
          "described (AutoOptions::machine); describe one, or name a strategy");
  return choose_strategy(accepted_strategies(candidates.accepts), types,
                         choice.machine->devices_for(options.devices), *choice.machine,
                         {.any = choice.any,
                          .buckets = options.aggregation.gradient_repacking > 0
                                         ? std::vector<double>{0}
                                         : sizes_that_differ(choice.buckets, gradients),
                          .packing = candidates.packing});
}

}  // namespace

std::string choose_allreduce(TrainerOptions& options, const GradientTable& gradients,
                             const StrategyCandidates& candidates) {
  if (options.aggregation.allreduce != "auto") return "";
  const StrategyChoice choice = predict(options, gradients, candidates);
  options.aggregation.allreduce = choice.best().strategy;
  options.aggregation.bucket_mb = choice.best().bucket_mb;
  std::string lines = cat("auto: predicted for ", gradients.variables(), " gradients on ",
                          short_names(options.devices), "\n", choice.str());
  lines.pop_back();  // the last line break
  return lines;
}

}  // namespace belfry
