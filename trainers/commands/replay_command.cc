#include "belfry/trainers/commands/replay_command.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/commands/child_process.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace {

struct ReplayFlags {
  std::string help;
  std::string run, devices = "cpu:1", program;
  std::int64_t step = 0;
  std::optional<std::int64_t> from = {};
};

ReplayFlags parse_replay(std::span<const char* const> arguments, const std::string& program) {
  ReplayFlags flags;
  FlagParser parser(
      "Computes a step of a run again, from the newest checkpoint before it, for the towers of all "
      "processes on one device, and says which process computed otherwise than it had noted. The "
      "run is to be trained with --hash_every. Writes nothing.",
      program);
  parser.add_argument("RUN", flags.run, "the directory of the run", FlagParser::Needed::kYes);
  parser.add("--step", flags.step, std::int64_t{1}, std::numeric_limits<std::int64_t>::max(), "S",
             "the step, counted from 1 [needed]");
  parser.add(
      "--from",
      [&](const WrittenFlag& flag) {
        flags.from = parse_number<std::uint32_t>(cat(flag.written, ": the step"), flag.value);
      },
      "S", "the checkpoint to begin with; 0: the start of the run [the newest before the step]");
  parser.add("--devices", flags.devices, "KIND:N",
             "cpu:1, or gpu:N for a run on GPUs: the towers share them [cpu:1]");
  parser.add("--program", flags.program, "PROGRAM",
             "the program of the run: a path, or a name in a folder of PATH or in that of belfry "
             "[the name that the run has noted]");
  flags.help = parser.parse(arguments);
  require<FlagError>(!flags.help.empty() || flags.step > 0,
                     "say which step, counted from 1: --step=S");
  return flags;
}

// The name of the program that the run has noted.
std::string program_of(const JsonValue& config, const std::string& run) {
  const JsonValue* const chosen = config.find(kChosen);
  const JsonValue* const program = chosen ? chosen->find(kProgramMember) : nullptr;
  require<FlagError>(program != nullptr, run, "/", kConfigFile,
                     " names no program; say which it was, by --program");
  return program->text();
}

// "cpu:8", or "gpu:8" and "--logical_gpus=8": a device for each tower.
void add_devices(const std::string& devices, std::int64_t towers,
                 std::vector<std::string>& command) {
  const std::size_t colon = devices.find(':');
  const std::string kind = lower(devices.substr(0, colon));
  require<FlagError>(colon != devices.npos && (kind == "cpu" || kind == "gpu"),
                     "--devices=", shown(devices), " is cpu:1, or gpu:N");
  const auto count =
      parse_number<std::int32_t>(cat("--devices=", shown(devices)), devices.substr(colon + 1));
  require<FlagError>(count >= 1, "--devices=", shown(devices), " has no device");
  command.push_back(cat("--devices=", kind, ":", towers));
  const std::int64_t shared = (towers + count - 1) / count;
  if (kind == "gpu" && shared > 1) command.push_back(cat("--logical_gpus=", shared));
}

int replay(const ReplayFlags& flags) {
  FileSystem& files = local_file_system();
  const std::optional<JsonValue> config = run_config(files, flags.run);
  require<FlagError>(config.has_value(), flags.run, " is no directory of a run");
  const std::vector<std::int64_t> saved = checkpoints_in(files, flags.run);
  require<FlagError>(!saved.empty(), flags.run,
                     " has no checkpoint, which would say how its bits were made");
  std::int64_t from = flags.from.value_or(0);
  for (const std::int64_t step : saved)
    if (!flags.from && step < flags.step) from = std::max(from, step);
  require<FlagError>(from == 0 || std::ranges::count(saved, from) > 0, "--from=", from, ": ",
                     flags.run, " has no checkpoint of that step; it has those of ", join(saved));
  require<FlagError>(from < flags.step, "--from=", from, " is not before --step=", flags.step);
  const std::string began = member_text(config->at(kChosen), kBeganFrom);
  require<FlagError>(from > 0 || began.empty(), flags.run, " began with ", began,
                     ", so its steps can be computed again from its checkpoints alone, of steps ",
                     join(saved), "; take a later --step");
  const CheckpointInfo info = inspect_checkpoint(latest_checkpoint_of(flags.run));
  const std::int64_t towers = std::max<std::int64_t>(saved_integer(info, "devices"), 1);
  std::vector<std::string> command{
      find_program(flags.program.empty() ? program_of(*config, flags.run) : flags.program),
      cat("--config=", flags.run, "/", kConfigFile),
      cat("--replay=", flags.run),
      cat("--replay_step=", flags.step),
      from == 0 ? std::string("--resume=never") : cat("--resume=", checkpoint_in(flags.run, from)),
      "--mpi=off",
      "--check_contribution_every=0",
      "--eval_every_epochs=0",
      "--eval_every_steps=0"};
  // There is no run directory to take variables from.
  if (member_text(*config, "on_nonfinite") == "restore")
    command.emplace_back("--on_nonfinite=skip");
  add_devices(flags.devices, towers, command);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw IoError(cat(command[0], " cannot be started: ", std::strerror(errno)));
}

}  // namespace

int run_replay_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse_replay, replay)(arguments, program);
}

}  // namespace belfry
