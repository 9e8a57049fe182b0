#include "belfry/trainers/core/auto_choice.h"

#include <algorithm>

#include "belfry/allreduce/buckets.h"
#include "belfry/allreduce/prediction/choice.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// Why the choice does not hold for these options; "" if it does.
std::string outdated(const KeptChoice& kept, const TrainerOptions& options,
                     const StrategyCandidates& candidates) {
  if (options.aggregation.choice.choose_anew) return "is set aside, as a new choice was asked for";
  if (kept.devices != options.devices) return cat("was made for ", short_names(kept.devices));
  if (kept.gradient_repacking != options.aggregation.gradient_repacking ||
      kept.small_tensors_kb != options.aggregation.small_tensors_kb)
    return "was made with gradients packed otherwise";
  const std::vector<double>& sizes = options.aggregation.choice.buckets;
  if (options.aggregation.gradient_repacking == 0 && sizes.size() == 1 &&
      sizes[0] != kept.bucket_mb)
    return cat("has buckets of ", kept.bucket_mb, " MiB, not ", sizes[0]);
  try {
    if (!candidates.accepts(kept.allreduce)) return "is not taken by this trainer";
    const auto towers = static_cast<int>(options.devices.size());
    if (!make_strategy(kept.allreduce)->canonical(towers) && !options.aggregation.choice.any)
      return "is not canonical, as this run asks for";
    return "";
  } catch (const InvalidArgument& error) {
    return cat("is no use here: ", error.what());
  }
}

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
  const MachineDescription machine =
      choice.machine ? choice.machine()
                     : find_machine(local_file_system(), measured_devices(options));
  return choose_strategy(accepted_strategies(candidates.accepts), types,
                         machine.devices_for(options.devices), machine,
                         {.any = choice.any,
                          .buckets = options.aggregation.gradient_repacking > 0
                                         ? std::vector<double>{0}
                                         : sizes_that_differ(choice.buckets, gradients),
                          .packing = candidates.packing});
}

}  // namespace

MeasuredDevices measured_devices(const TrainerOptions& options) {
  return {options.devices, options.session.threads, options.session.logical_gpus};
}

std::string choose_allreduce(TrainerOptions& options, const GradientTable& gradients,
                             const StrategyCandidates& candidates) {
  if (options.aggregation.allreduce != "auto") return "";
  std::string lines;
  if (const std::optional<KeptChoice>& kept = options.aggregation.choice.kept) {
    const std::string title = describe_strategy(kept->allreduce, kept->bucket_mb);
    const std::string why = outdated(*kept, options, candidates);
    if (why.empty()) {
      options.aggregation.allreduce = kept->allreduce;
      options.aggregation.bucket_mb = kept->bucket_mb;
      return cat("auto: ", title, ", as ", kept->from, " chose on these devices");
    }
    lines = cat("auto: choosing anew: the choice of ", kept->from, " (", title, ") ", why, "\n");
  }
  const StrategyChoice choice = predict(options, gradients, candidates);
  options.aggregation.allreduce = choice.best().strategy;
  options.aggregation.bucket_mb = choice.best().bucket_mb;
  lines += cat("auto: predicted for ", gradients.variables(), " gradients on ",
               short_names(options.devices), "\n", choice.str());
  lines.pop_back();  // the last line break
  return lines;
}

}  // namespace belfry
