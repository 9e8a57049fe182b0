#include "belfry/trainers/program/run_flags.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/weight_rows.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/runs/replica_check.h"
#include "belfry/trainers/runs/save_rows.h"

namespace belfry {

StepRange parse_steps(const std::string& written, std::string_view text) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const std::string none =
      cat(written, " names no steps; they count from 1, the first before the last: 100-102");
  const auto number = [&](std::string_view part) {
    require<FlagError>(!part.empty(), none);
    return parse_number<std::int64_t>(cat(written, ": '", shown(part), "'"), part);
  };
  StepRange steps;
  steps.first = number(text.substr(0, dash));
  steps.last = dash == text.size() ? steps.first : number(text.substr(dash + 1));
  require<FlagError>(steps.first >= 1 && steps.first <= steps.last, none);
  return steps;
}

double parse_duration(const std::string& written, std::string_view text) {
  constexpr double kSeconds[] = {1, 60, 3600, 86400};
  double seconds = 0;
  std::vector<std::string_view> parts = split(text, ':');
  std::ranges::reverse(parts);
  require<FlagError>(parts.size() <= std::size(kSeconds), written,
                     " has more than days, hours, minutes and seconds");
  for (std::size_t i = 0; i < parts.size(); ++i)
    seconds += kSeconds[i] * static_cast<double>(parse_number<std::uint32_t>(
                                 cat(written, ": '", shown(parts[i]), "'"), parts[i]));
  require<FlagError>(seconds > 0, written, " is no time to train in");
  return seconds;
}

Options<RunFlags> config_options() {
  return {any_text(&RunFlags::config_file,
                   {.name = "config",
                    .unit = "FILE",
                    .text = "read flags from this JSON file, as `print_config` prints it and "
                            "`run_dir` keeps it; flags on the command line override it",
                    .otherwise = "none",
                    .scope = Scope::kThisCall,
                    .own_process = true}),
          on_off(&RunFlags::print_config, {.name = "print_config",
                                           .text = "print the flags of this run as JSON, and exit",
                                           .otherwise = "false",
                                           .scope = Scope::kThisCall,
                                           .own_process = true})};
}

namespace {

constexpr std::int64_t kMostStepsApart = std::numeric_limits<std::int64_t>::max();

// What a run starts from.
void add_start_options(Options<RunFlags>& all) {
  all.push_back(any_text(&RunFlags::directory,
                         {.name = "run_dir",
                          .unit = "DIR",
                          .text = "folder of this run: checkpoints, logs, TensorBoard files, "
                                  "results; the same command resumes the run",
                          .otherwise = "none",
                          .scope = Scope::kThisCall,
                          .of_training = true,
                          .elsewhere = {"output_dir", "log_dir", "logdir"}}));
  all.push_back(any_text(
      &RunFlags::resume,
      {.name = "resume",
       .unit = "WAY",
       .text = "auto: resume from the newest checkpoint of `run_dir`, if there is one; never: "
               "start anew; PATH: resume from this checkpoint or run",
       .otherwise = "auto",
       .scope = Scope::kThisCall,
       .of_training = true,
       .elsewhere = {"checkpoint"}}));
  all.push_back(any_text(
      &RunFlags::load,
      {.name = "load",
       .unit = "PATH",
       .text = "start from the weights of this checkpoint or run, matched by name, or with `names` "
               "of a safetensors file, index or folder of another program; everything else starts "
               "as usual",
       .otherwise = "none",
       .scope = Scope::kThisCall,
       .of_training = true}));
}

Option<RunFlags> max_time_option() {
  const auto read = [](const WrittenFlag& flag) {
    return parse_duration(flag.written, flag.value);
  };
  return parsed(&RunFlags::max_seconds, read,
                {.name = "max_time",
                 .unit = "TIME",
                 .text = "DD:HH:MM:SS, or fewer parts: save and end after this time, as by "
                         "SIGTERM; a run that hangs ends without saving, when nothing has moved "
                         "for `stall_warn_seconds`",
                 .otherwise = "none"});
}

Option<RunFlags> every_option(std::string name, std::int64_t RunFlags::*steps, std::string text,
                              std::string otherwise) {
  return whole_number(steps, 0, kMostStepsApart,
                      {.name = std::move(name),
                       .unit = "N",
                       .text = std::move(text),
                       .otherwise = std::move(otherwise),
                       .scope = Scope::kRunDirectory});
}

std::vector<std::string> parse_patterns(const WrittenFlag& list) {
  std::vector<std::string> patterns;
  for (const std::string_view pattern : split(list.value, ',')) {
    require<FlagError>(!pattern.empty(), list.written,
                       ": a pattern is missing beside a comma; write */W,gradients/*");
    patterns.emplace_back(pattern);
  }
  return patterns;
}

Option<RunFlags> histograms_option() {
  Option<RunFlags> option = parsed(
      &RunFlags::histograms, parse_patterns,
      {.name = "histograms",
       .unit = "PATTERNS",
       .text = "what histograms show, separated by commas, where * stands for any characters: "
               "names or scopes of trained variables (fc0/W, */W), of combined gradients "
               "(gradients/fc0/W, gradients/*) and of the outputs of tower 0's layers "
               "(activations/fc0, activations/block*), which `summary` lists",
       .otherwise = "*: all trained variables",
       .scope = Scope::kRunDirectory,
       .noted = false},
      [](const std::vector<std::string>& patterns) { return join(patterns, ","); });
  option.refusal_if_given = [](const RunFlags& flags, const OptionQuestion&) -> std::string {
    return flags.histograms_every > 0
               ? ""
               : cat(" has no use without ", option_name("histograms_every"), "=N");
  };
  return option;
}

void add_record_options(Options<RunFlags>& all) {
  all.push_back(every_option(
      "histograms_every", &RunFlags::histograms_every,
      "write histograms for TensorBoard after every N steps, of what `histograms` names; 0: never",
      "0"));
  all.push_back(histograms_option());
  all.push_back(every_option(
      "hash_every", &RunFlags::hash_every,
      "record a hash of each variable and each gradient, of each tower and combined, in "
      "`run_dir` after every N steps, for belfry bisect and belfry replay; no gradient "
      "is then fused with its update; 0: never",
      "0"));
  all.push_back(whole_number(
      &RunFlags::check_replicas_every, std::int64_t{0}, kMostStepsApart,
      {.name = "check_replicas_every",
       .unit = "N",
       .text = "end the run if copies of a variable differ, on devices or in processes, after "
               "every N steps, not only before each save; 0: only then",
       .otherwise = cat(ReplicaCheck::kEvery, " with several processes, else 0"),
       .scope = Scope::kExecution,
       .kept = true,
       .trains = true}));
  all.push_back(whole_number(
      &RunFlags::check_contribution_every, 0, kMostStepsApart,
      {.name = "check_contribution_every",
       .unit = "N",
       .text = "of several processes, each computes the gradients of the next one's towers once "
               "more, before every Nth step, and the run ends if a bit differs; 0: never",
       .otherwise = "0",
       .scope = Scope::kExecution,
       .kept = true,
       .trains = true}));
  all.push_back(
      every_option("memory_every", &RunFlags::memory_every,
                   "record the memory of the process and of the devices in `run_dir` after every N "
                   "steps, for TensorBoard, too; 0: never",
                   "100"));
  const auto read = [](const WrittenFlag& flag) { return parse_steps(flag.written, flag.value); };
  all.push_back(parsed(
      &RunFlags::traced, read,
      {.name = "trace_steps",
       .unit = "FIRST-LAST",
       .text = "record these steps for Perfetto or chrome://tracing, each in a file in `run_dir`",
       .otherwise = "none",
       .scope = Scope::kThisCall,
       .needs_run_dir = true},
      [](const std::optional<StepRange>& steps) {
        return steps ? cat(steps->first, "-", steps->last) : std::string("not given");
      }));
}

}  // namespace

Options<RunFlags> run_options() {
  Options<RunFlags> all;
  add_start_options(all);
  add_part(all, weight_options("load_"), "", [](auto& flags) {
    return WeightFlags{flags.load_weights, flags.load_checkpoint};
  });
  add_part(all, name_options("`load`"), "", [](auto& flags) {
    return NameFlags{flags.names, flags.partial};
  });
  add_part(
      all, save_options(), "", [](auto& flags) -> auto& { return flags.schedule; });
  all.push_back(max_time_option());
  add_record_options(all);
  return all;
}

void check_run_flags(const FlagParser& parser, RunFlags& flags, bool overwrite) {
  const bool has_directory = !flags.directory.empty();
  for (const WrittenFlag& flag : parser.line()) {
    flags.given.push_back(flag.name);
    require_flag(has_directory || !parser.row(flag.name)->is_about_run_dir(), flag.name,
                 flag.written, " is about what a run directory keeps; name one by --run_dir=DIR");
  }
  require_flag(!(parser.given("--trace_steps") && parser.given("--trace_file")), "trace_steps",
               parser.flag("--trace_steps").written, " and ", parser.flag("--trace_file").written,
               " record steps into different files; leave one of them out");
  const bool resumes = flags.resume != "never" && flags.resume != "auto";
  require<FlagError>(
      flags.load.empty() || !resumes, parser.flag("--load").written,
      " starts a run from weights, so it cannot also resume from a checkpoint; leave "
      "one of them out");
  for (const char* const flag : {"--load_weights", "--load_checkpoint", "--names", "--partial"})
    require_flag(!flags.load.empty() || !parser.given(flag), parser.flag(flag).name,
                 parser.flag(flag).written, " is about what --load takes; name that, too");
  for (const char* const flag : {"--load_weights", "--load_checkpoint"})
    require_flag(flags.names.empty() || !parser.given(flag), parser.flag(flag).name,
                 parser.flag(flag).written, " has no use beside --names=", flags.names,
                 ", as files of other programs hold one value of each weight; leave it out");
  require_flag(!flags.names.empty() || !flags.partial, "partial",
               "--partial has no use without --names; leave it out");
  require_flag(!overwrite || has_directory, "overwrite",
               "--overwrite is for what --run_dir replaces; name that, too");
}

}  // namespace belfry
