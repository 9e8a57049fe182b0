#include <utility>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/text.h"
#include "belfry/trainers/flags_impl.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

// Fills in trainer and allreduce, and checks that they go together.
void choose_trainer(TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  flags.trainer = raw.trainer.empty() ? (towers == 1 ? "simple" : "replicated") : raw.trainer;
  const TrainerKind& kind =
      as_flag("--trainer", [&]() -> const TrainerKind& { return find_trainer(flags.trainer); });
  const std::string chosen =
      cat("--trainer=", kind.name,
          raw.trainer.empty() ? cat(" (chosen for --devices=", raw.devices, ")") : "");
  require<FlagError>(!kind.one_device || towers == 1, chosen,
                     " takes one device, but --devices=", raw.devices, " has ", towers);
  flags.allreduce = raw.allreduce.empty() ? kind.default_strategy : raw.allreduce;
  if (!flags.allreduce.empty()) {
    as_flag("--allreduce", [&] { return make_strategy(flags.allreduce) != nullptr; });
    require<FlagError>(kind.accepts && kind.accepts(flags.allreduce), chosen,
                       kind.accepts ? " does not take --allreduce="
                       : kind.async
                           ? " combines no gradients: each tower's update the variables on "
                             "their own, so it takes no --allreduce="
                           : " takes no --allreduce; it has "
                             "no use for --allreduce=",
                       flags.allreduce);
  }
  require<FlagError>(flags.allreduce != "hierarchical" || towers % 2 == 0,
                     "--allreduce=hierarchical needs an even number of devices, but --devices=",
                     raw.devices, " has ", towers);
  require<FlagError>(flags.gradient_repacking == 0 || kind.packs,
                     "--gradient_repacking=", flags.gradient_repacking,
                     " needs --trainer=replicated, not ", chosen);
  require<FlagError>(raw.async.empty() || kind.async, "--async=", raw.async,
                     " needs --trainer=async, not ", chosen);
  flags.async = kind.async && raw.async.empty() ? "ordered" : raw.async;
  require<FlagError>(flags.async.empty() || flags.async == "ordered" || flags.async == "free",
                     "--async=", raw.async, " is neither ordered nor free");
}

// What inspects trains nothing, so it writes and restores nothing.
void refuse_unused_files(const TrainFlags& flags) {
  const std::string_view why = flags.dry_run            ? "--dry_run"
                               : !flags.explain.empty() ? "--explain"
                                                        : "";
  if (why.empty()) return;
  const std::pair<const char*, const std::string&> files[] = {
      {"--trace_file", flags.trace_file},
      {"--save_checkpoint", flags.save_checkpoint},
      {"--restore_checkpoint", flags.restore_checkpoint}};
  for (const auto& [flag, value] : files)
    require<FlagError>(value.empty(), flag, "=", value, " has no use beside ", why,
                       ", which trains nothing; leave one of them out");
}

void refuse_shared_files(const TrainFlags& flags) {
  const std::pair<const char*, const std::string&> files[] = {
      {"--json", flags.json},
      {"--trace_file", flags.trace_file},
      {"--save_checkpoint", flags.save_checkpoint}};
  for (const auto& [flag, value] : files)
    for (const auto& [other, same] : files)
      require<FlagError>(value.empty() || flag == other || value != same, flag, "=", value, " and ",
                         other, "=", same, " would overwrite each other");
}

}  // namespace

void check_flags(TrainFlags& flags, const RawFlags& raw) {
  refuse_unused_files(flags);
  refuse_shared_files(flags);
  choose_trainer(flags, raw);
}

}  // namespace belfry
