#include "belfry/trainers/program/flags.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/flags/option_flags.h"
#include "belfry/trainers/flags/tf_spellings.h"
#include "belfry/trainers/program/configuration.h"
#include "belfry/trainers/program/flag_groups_impl.h"
#include "belfry/trainers/program/resolve_flags.h"
#include "belfry/trainers/runs/memory_saves.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// Flags of earlier versions, and what to write instead.
constexpr const char* kRemoved[][2] = {
    {"save_checkpoint", "--run_dir=DIR, which keeps the checkpoints of a run"},
    {"restore_checkpoint",
     "--resume=PATH to resume from a checkpoint or run, or --load=PATH to take only its weights"},
    {"nccl_timeout_s", "--stall_abort_seconds=X"},
    {"fuse_updates", "--fuse=0|1"}};

}  // namespace

std::string TrainFlags::async() const {
  return find_trainer(kind).takes_async() ? trainer.async : "";
}

// With state in parts no process has a whole one.
std::int64_t TrainFlags::memory_save_every_steps() const {
  constexpr std::int64_t kDefaultSteps = 10;
  const bool is_whole = trainer.aggregation.zero_stage == 0;
  const bool is_wanted = group.processes > 1 && is_whole;
  if (run.directory.empty() || trainer.evaluates_only) return 0;
  return run.schedule.memory_every_steps.value_or(is_wanted ? kDefaultSteps : 0);
}

int TrainFlags::copies_of_state() const {
  if (run.directory.empty()) return 0;
  return memory_save_every_steps() > 0 ? 1 + kSavesInMemory : 1;
}

TrainFlagSet::TrainFlagSet(FlagParser& parser, FlagDefaults defaults)
    : parser_(parser), defaults_(std::move(defaults)) {
  flags_.trainer.batch_size = defaults_.batch_size;
  flags_.trainer.epochs = defaults_.epochs;
  flags_.table = std::make_shared<const Options<TrainFlags>>(training_options(defaults_));
  for (const Option<TrainFlags>& option : *flags_.table) {
    require(!parser.has("--" + option.name) && !FlagParser::is_of_all(option.name), "the option '",
            option.name, "' has the name of another flag; choose another one");
    add_option(parser, option, flags_);
  }
  for (const Option<TrainFlags>& option : *flags_.table)
    for (const std::string& older : option.older) {
      FlagSpelling spelling = renamed(older, option.unit, option.name);
      spelling.text.clear();
      parser.add_spellings({std::move(spelling)});
    }
  for (const auto& [gone, instead] : kRemoved)
    parser.add_spellings({refused(gone, cat("this flag was removed; use ", instead))});
  parser.add_spellings({only("remeasure", "", "", kInsteadOfRemeasure)});
  parser.add_spellings(tf_spellings(defaults_));
}

TrainFlags TrainFlagSet::read(std::optional<int> batch_size, bool compares_auto) const {
  TrainFlags flags = flags_;
  if (batch_size && !parser_.given("--batch_size")) flags.trainer.batch_size = *batch_size;
  if (!parser_.given("--batch_size") && !parser_.given("--global_batch_size"))
    flags.global_batch_size = defaults_.global_batch_size;
  resolve_devices(parser_, device_flags(flags), flags.plans());
  if (!flags.group.alone) flags.group.launcher = find_launcher(environment_variable);
  // gpu:all in one of several processes of a host: its share of the GPUs.
  if (lower(parser_.flag("--devices").value) == kAllGpus) {
    const std::size_t share =
        flags.trainer.devices.size() / static_cast<std::size_t>(flags.group.launcher.local_size);
    flags.trainer.devices.resize(std::max<std::size_t>(share, 1));
  }
  TcpGroupOptions& tcp = flags.group.launcher.tcp;
  tcp.timeout = flags.group.meeting_timeout;
  tcp.insecure = tcp.insecure || flags.group.insecure;
  count_processes(flags, parser_);
  divide_global_batch(flags, parser_);
  resolve_flags(flags, parser_, compares_auto);
  SessionOptions& session = flags.trainer.session;
  session.dry_run = flags.plans();
  session.log_device_placement = session.log_device_placement || flags.inspection.dry_run;
  if (!defaults_.benchmark) read_run(flags);
  flags.config = resolved_config(flags);
  return flags;
}

void TrainFlagSet::read_run(TrainFlags& flags) const {
  check_run_flags(parser_, flags.run, flags.files.overwrite);
  flags.given.batch = parser_.given("--batch_size") || parser_.given("--global_batch_size");
  flags.given.shards = flags.trainer.shards > 0;
}

TrainerOptions trainer_options(const TrainFlags& flags, const ModelFunction& model,
                               const Optimizer& optimizer, std::vector<LossOptions> losses) {
  TrainerOptions options = flags.trainer;
  options.model = model;
  if (losses.empty()) options.optimizer = with_flags(optimizer, flags.optimizer);
  for (LossOptions& loss : losses) loss.optimizer = with_flags(loss.optimizer, flags.optimizer);
  options.losses = std::move(losses);
  options.keeps_gradients = flags.run.hash_every > 0;
  if (!flags.inspection.replay.empty()) {
    options.keeps_gradients = true;
    options.contributions_every = {1};
  }
  // GPUs would wait after each launch.
  if (!any_gpu(options.devices))
    options.op_hashes_every = flags.inspection.replay.empty() ? flags.run.hash_every : 1;
  for (const std::int64_t every : {flags.run.hash_every, flags.run.check_contribution_every})
    if (every > 0) options.contributions_every.push_back(every);
  options.histograms = {.every = flags.run.histograms_every, .patterns = flags.run.histograms};
  if (!flags.links.empty())
    options.aggregation.choice.machine =
        machine_for(flags.links, options.devices, options.session.logical_gpus);
  return options;
}

TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults) {
  FlagParser parser("Trains on one or more devices. Flags may be spelled with - or _.",
                    defaults.program);
  const TrainFlagSet set(parser, defaults);
  std::string help = parse_with_config(parser, arguments);
  if (!help.empty()) return {.help = std::move(help)};
  return set.read();
}

}  // namespace belfry
