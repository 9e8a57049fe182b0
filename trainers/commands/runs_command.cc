#include "belfry/trainers/commands/runs_command.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/run_table.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

struct RunsFlags {
  std::string help, json;
  std::vector<std::string> folders;
  std::vector<BestMetric> metrics;
};

// "validation_loss", or "validation_loss:min". The largest accuracy is the best, and else the least
// value.
BestMetric read_metric(const WrittenFlag& flag, std::string_view text) {
  const std::size_t colon = std::min(text.rfind(':'), text.size());
  const std::string_view name = text.substr(0, colon),
                         way = colon == text.size() ? "" : text.substr(colon + 1);
  require<FlagError>(!name.empty() && (colon == text.size() || way == "min" || way == "max"),
                     flag.written,
                     ": write NAME, NAME:min or NAME:max, and commas between several");
  return {.name = std::string(name),
          .largest = way == "max" || (way.empty() && name.ends_with("accuracy"))};
}

RunsFlags parse(std::span<const char* const> arguments, const std::string& program) {
  RunsFlags flags;
  FlagParser parser(
      "Lists runs by program, with the options that differ, their state, steps and metrics. Shows "
      "mean and deviation over finished runs that differ in nothing but the seed. Runs may still "
      "go on.",
      program);
  parser.add_arguments("DIR", flags.folders, "a folder with run directories, at any depth");
  parser.add(
      "--metric",
      [&flags](const WrittenFlag& flag) {
        flags.metrics.clear();
        for (const std::string_view text : split(flag.value, ','))
          flags.metrics.push_back(read_metric(flag, text));
      },
      "NAMES",
      "metrics, as stats.jsonl names them, and which value is the best: "
      "validation_loss:min,validation_accuracy:max [of validation, or else of training: loss and "
      "accuracy]");
  parser.add("--json", flags.json, "FILE", "write the same there as JSON; -: to stdout [none]");
  flags.help = parser.parse(arguments);
  return flags;
}

// Options about what a run keeps and prints change no result, nor do threads.
bool is_about_results(std::string_view option) {
  static const std::vector<std::string> others = [] {
    FlagParser parser("", "PROGRAM");
    const TrainFlagSet set(parser, {.program = "PROGRAM"});
    parser.parse({});
    std::vector<std::string> names = {"threads", "data_workers"};
    for (const OptionRow& row : parser.rows())
      if (row.scope == Scope::kRunDirectory || row.scope == Scope::kThisCall)
        names.push_back(row.name);
    return names;
  }();
  return std::ranges::find(others, option) == others.end();
}

int run(const RunsFlags& flags) {
  FileSystem& files = local_file_system();
  const std::vector<std::string> paths = runs_below(flags.folders, files);
  OutputFiles outputs(files);
  for (const std::string& path : paths) reserve_run(outputs, cat("DIR=", path), path);
  OutputFile* const json = outputs.open("--json", flags.json);
  const Listing listing = tabulate_runs(paths, flags.metrics, is_about_results, files);
  std::fputs(listing.text.c_str(), outputs.on_stdout() ? stderr : stdout);
  if (json) json->write(listing.json.str(2) + "\n");
  outputs.finish();
  return 0;
}

}  // namespace

int run_runs_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse, run)(arguments, program);
}

}  // namespace belfry
