#include "belfry/trainers/modes/modes.h"

#include <algorithm>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

constexpr double kBucketMb = 0.25;

// The variants of each strategy, besides the plain mode, for trainers that replicate.
constexpr void (*kVariants[])(Mode&) = {
    [](Mode& mode) { mode.fuse = false; },
    [](Mode& mode) { mode.share_replicas = false; },
    [](Mode& mode) { mode.fuse = mode.share_replicas = false; },
};

// The strategies that the trainer accepts, or "" if it takes none.
std::vector<std::string> strategies_of(const TrainerKind& kind) {
  return kind.accepts ? accepted_strategies(kind.accepts) : std::vector<std::string>{""};
}

// Why the strategy cannot serve these devices; "" if it can, or none is chosen yet.
std::string refusal_of(const std::string& allreduce, const std::vector<DeviceSpec>& devices) {
  return allreduce.empty() || allreduce == "auto" ? "" : make_strategy(allreduce)->refusal(devices);
}

}  // namespace

std::string Mode::name() const {
  return cat(trainer, allreduce.empty() ? "" : " ", allreduce,
             gradient_repacking > 0 ? cat(" packed:", gradient_repacking) : "",
             bucket_mb.value_or(0) > 0 ? " bucketed" : "", fuse ? "" : " unfused",
             share_replicas ? "" : " unshared", async.empty() ? "" : " ", async);
}

bool Mode::canonical(const std::vector<DeviceSpec>& devices) const {
  return combines_canonically(find_trainer(trainer), allreduce, devices);
}

bool combines_canonically(const TrainerKind& kind, const std::string& allreduce,
                          const std::vector<DeviceSpec>& devices) {
  const auto towers = static_cast<int>(devices.size());
  if (!kind.canonical) return false;
  if (allreduce.empty()) return towers == 1 || (!kind.accepts && !kind.takes_one_device);
  if (allreduce == "auto") return true;
  try {
    const std::unique_ptr<Strategy> strategy = make_strategy(allreduce);
    // One tower's gradients are left alone.
    return strategy->refusal(devices).empty() && (towers == 1 || strategy->canonical(towers));
  } catch (const InvalidArgument&) {
    return false;
  }
}

TrainerOptions Mode::applied_to(TrainerOptions options) const {
  options.aggregation.allreduce = allreduce;
  options.aggregation.gradient_repacking = gradient_repacking;
  options.aggregation.bucket_mb =
      gradient_repacking > 0 ? 0 : bucket_mb.value_or(options.aggregation.bucket_mb);
  if (bucket_mb) options.aggregation.choice.buckets = {*bucket_mb};
  options.session.fuse = options.session.fuse && fuse;
  options.session.share_replicas = options.session.share_replicas && share_replicas;
  if (!async.empty()) options.async = async;
  return options;
}

std::vector<Mode> all_modes(const std::vector<DeviceSpec>& devices) {
  const auto towers = static_cast<int>(devices.size());
  std::vector<Mode> modes;
  for (const std::string& trainer : trainer_names()) {
    const TrainerKind& kind = find_trainer(trainer);
    if (kind.takes_one_device && towers != 1) continue;
    for (const std::string& strategy : strategies_of(kind)) {
      Mode plain{.trainer = trainer, .allreduce = strategy, .bucket_mb = 0};
      if (kind.takes_async()) plain.async = "ordered";
      modes.push_back(plain);
      if (kind.takes_async()) modes.emplace_back(plain).async = "free";
      if (!refusal_of(strategy, devices).empty()) continue;
      if (kind.makes_buckets) modes.emplace_back(plain).bucket_mb = kBucketMb;
      if (kind.packs_gradients) modes.emplace_back(plain).gradient_repacking = 2;
      if (!kind.replicates_variables()) continue;
      for (const auto& change : kVariants) change(modes.emplace_back(plain));
    }
  }
  std::ranges::stable_partition(modes, [&](const Mode& mode) { return mode.canonical(devices); });
  return modes;
}

std::unique_ptr<Trainer> make_in_mode(const Mode& mode, const TrainerOptions& options,
                                      const Dataset& train, std::string& refusal) {
  const TrainerKind& kind = find_trainer(mode.trainer);
  try {
    refusal = refusal_of(mode.allreduce, options.devices);
    if (!refusal.empty()) return nullptr;
    TrainerOptions wanted = mode.applied_to(options);
    require(kind.packs_gradients || (wanted.aggregation.gradient_repacking == 0 &&
                                     wanted.aggregation.small_tensors_kb == 0),
            "the trainer ", mode.trainer,
            " lays no gradients end to end; leave out gradient_repacking and small_tensors_kb");
    const Busy busy(cat("building the model for ", mode.name()));
    return std::make_unique<Trainer>(kind, std::move(wanted), train);
  } catch (const TrainerMistake& error) {
    refusal = error.what();
    return nullptr;
  } catch (const OptionMistake&) {
    throw;
  } catch (const InvalidArgument& error) {
    refusal = error.what();
    return nullptr;
  }
}

std::optional<Mode> chosen_mode(const Mode& mode, const BuiltTraining& built) {
  if (built.choice().empty()) return {};
  Mode chosen = mode;
  chosen.allreduce = built.options().aggregation.allreduce;
  chosen.bucket_mb = built.options().aggregation.bucket_mb;
  return chosen;
}

bool is_canonical(const Mode& mode, const BuiltTraining& built) {
  const std::vector<DeviceSpec>& own = built.options().devices;
  std::vector<DeviceSpec> all;  // of all processes, which have equal ones
  while (std::ssize(all) < built.batches().towers()) all.insert(all.end(), own.begin(), own.end());
  return built.nodes().canonical() && built.other_bits().empty() &&
         chosen_mode(mode, built).value_or(mode).canonical(all);
}

bool repeats(const TrainerOptions& options) {
  return options.session.deterministic || !any_gpu(options.devices);
}

}  // namespace belfry
