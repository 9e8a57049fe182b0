// Trainer::k_dependence(): in a file of its own, as it looks at all that a trainer consists of.
#include <bit>

#include "belfry/allreduce/strategy.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace {

bool is_power_of_two(std::int64_t number) {
  return std::has_single_bit(static_cast<std::uint64_t>(number));
}

std::string of_numbers(const TrainerOptions& options, int wanted) {
  const auto devices = std::ssize(options.devices);
  if (!is_power_of_two(devices)) return cat(devices, " devices: not a power of two");
  if (std::ranges::any_of(options.devices, &DeviceSpec::is_gpu))
    return "a GPU has one shard, so the number of shards follows the number of devices";
  if (!is_power_of_two(options.shards)) return cat(options.shards, " shards: not a power of two");
  if (wanted > 0 && wanted != options.shards)
    return cat("the default of ", wanted, wanted == 1 ? " shard" : " shards", " was raised to ",
               options.shards, ", one per device");
  return "";
}

std::string of_batches(std::span<const BatchForm> forms, int shards) {
  for (const BatchForm& form : forms)
    if (!form.equal() || form.total() % shards != 0)
      return cat("a global batch of ", form.total(), " samples (", join(form.samples, " + "),
                 ") does not divide into ", shards, " equal shards");
  return "";
}

std::string of_sums(const TrainerOptions& options, const TrainerKind& kind) {
  const auto towers = static_cast<int>(options.devices.size());
  if (!kind.canonical) return cat("the trainer ", kind.name, " updates by each tower's gradients");
  const std::string& name = options.aggregation.allreduce;
  if (towers > 1 && !name.empty() && !make_strategy(name)->canonical(towers))
    return cat("the strategy ", name, " does not add in the order of the canonical sum");
  return "";
}

}  // namespace

std::string Trainer::k_dependence() const {
  for (const std::string& because :
       {of_numbers(options_, default_shards_), of_batches(batches_.forms(), options_.shards),
        of_sums(options_, kind_)})
    if (!because.empty()) return because;
  if (options_.precision == Precision::kF16) return "f16 scales the loss";
  if (!built_.canonical)
    return "a variable has two uses, or a tower no samples, under layers that are synchronised "
           "over "
           "towers which share variables";
  for (const TrainingStep& step : training_steps_)
    if (const Node* node = step.plan()->tower_dependent)
      return cat(node->describe(), " takes the whole batch of its tower");
  return "";
}

}  // namespace belfry
