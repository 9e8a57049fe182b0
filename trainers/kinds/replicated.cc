#include <algorithm>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/gradient_packer.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

bool accepts(std::string_view spec) { return !parse_all_reduce_spec(spec).uses("colocate"); }

Packing packing_of(const AggregationOptions& how) {
  return {.small_bytes = std::int64_t{how.small_tensors_kb} * 1024,
          .parts = how.gradient_repacking,
          .bucket_mb = how.gradient_repacking > 0 ? 0 : how.bucket_mb};
}

// Called first, so that the user hears of the option even if one tower leaves nothing to combine.
void check_packing(const TrainerOptions& options, const GradientTable& gradients) {
  if (options.aggregation.gradient_repacking == 0) return;
  GradientPacker packer(options.aggregation.gradient_repacking);
  require_option<TrainerMistake>(packer.prepare(gradients.row(0)), "gradient_repacking", "=",
                                 options.aggregation.gradient_repacking, ": ", packer.reason());
}

std::string choose(TrainerOptions& options, const GradientTable& gradients) {
  check_packing(options, gradients);
  return choose_allreduce(options, gradients, {accepts, packing_of(options.aggregation)});
}

// Two processes on two hosts send whole buckets, unless these are on GPUs (sum_over_processes()).
double own_bucket_mb(const AggregationOptions& how, const GradientTable& gradients) {
  const auto [rank, processes, per_host] = gradients.graph().process();
  const bool whole = processes == 2 && per_host == 1 && !gradients.device(0).is_gpu();
  const bool asked_for = how.choice.buckets.size() == 1;
  if (processes == 1 || asked_for) return how.bucket_mb;
  double bytes = 0;
  for (const Gradient& gradient : gradients.row(0))
    if (const TensorType& type = gradient.value.type(); type.shape.is_fully_known())
      bytes += static_cast<double>(type.bytes());
  return bucket_mb_of_processes(how.bucket_mb, bytes, processes, whole);
}

GradientTable combine_replicas(const TrainerOptions& options, const GradientTable& gradients,
                               ReduceOptions how) {
  how.packing = packing_of(options.aggregation);
  if (how.packing.bucket_mb > 0)
    how.packing.bucket_mb = own_bucket_mb(options.aggregation, gradients);
  return make_strategy(options.aggregation.allreduce)->reduce(gradients, how);
}

const TrainerRegistration kReplicated({
    .name = "replicated",
    .summary = "a copy of all variables per device",
    .variables = VariablePolicy::kReplicated,
    .default_strategy = "collective",
    .accepts = accepts,
    .choose = choose,
    .combine = combine_replicas,
    .packs_gradients = true,
    .makes_buckets = true,
    .spans_processes = true,
    .takes_partition = true,
    .canonical = true,
});

}  // namespace
}  // namespace belfry
