#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/bucketed.h"
#include "belfry/allreduce/gradient_packer.h"
#include "belfry/allreduce/small_tensors.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

bool accepts(std::string_view spec) { return !parse_all_reduce_spec(spec).uses("colocate"); }

std::unique_ptr<Strategy> assemble(const TrainerOptions& options) {
  std::unique_ptr<Strategy> strategy = make_strategy(options.aggregation.allreduce);
  if (options.aggregation.gradient_repacking > 0)
    strategy = packed_strategy(std::move(strategy), options.aggregation.gradient_repacking);
  else if (options.aggregation.bucket_mb > 0)
    strategy = bucketed(std::move(strategy), options.aggregation.bucket_mb);
  if (const int kib = options.aggregation.small_tensors_kb; kib > 0)
    strategy = small_tensors_packed(std::move(strategy), std::int64_t{kib} * 1024);
  return strategy;
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
  return choose_allreduce(options, gradients, {accepts, assemble});
}

GradientTable combine_replicas(const TrainerOptions& options, const GradientTable& gradients,
                               const ReduceOptions& how) {
  return assemble(options)->reduce(gradients, how);
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
