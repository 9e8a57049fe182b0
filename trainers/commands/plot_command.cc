#include "belfry/trainers/commands/plot_command.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/commands/plot_runs.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

struct PlotFlags {
  std::string help, out = "plot.svg";
  std::vector<std::string> runs;
  PlotOptions options;
};

void read_scale(const WrittenFlag& flag, PlotOptions& options) {
  require<FlagError>(flag.value == "auto" || flag.value == "linear" || flag.value == "log",
                     flag.written, " is none of auto, linear and log");
  if (flag.value == "linear") options.scale = Axis::Scale::kLinear;
  if (flag.value == "log") options.scale = Axis::Scale::kLog;
}

PlotFlags parse(std::span<const char* const> arguments, const std::string& program) {
  PlotFlags flags;
  FlagParser parser(
      "Draws the loss of runs, in training and validation, and their examples per second, as SVG. "
      "Runs may still go on.",
      program);
  parser.add_arguments("RUN", flags.runs, "the directory of a run, or a file like its stats.jsonl");
  parser.add("--out", flags.out, "FILE", "where to write; -: to stdout [plot.svg]");
  parser.add("--metric", flags.options.metric, "NAME", "what to draw: loss, accuracy, ... [loss]");
  parser.add(
      "--scale", [&](const WrittenFlag& flag) { read_scale(flag, flags.options); },
      "auto|linear|log", "of the metric [auto]");
  flags.help = parser.parse(arguments);
  return flags;
}

// Renames runs of one name by their paths.
void name_apart(std::vector<RunStats>& runs, const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const RunStats& run : runs) names.push_back(run.name);
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (std::ranges::count(names, names[i]) > 1) runs[i].name = paths[i];
}

int run(const PlotFlags& flags) {
  OutputFiles outputs(local_file_system());
  OutputFile* const out = outputs.open("--out", flags.out);
  std::vector<RunStats> runs;
  for (const std::string& path : flags.runs)
    runs.push_back(read_run_stats(path, flags.options.metric));
  name_apart(runs, flags.runs);
  out->write(plot_runs(runs, flags.options));
  outputs.finish();
  if (!outputs.on_stdout()) std::printf("wrote %s\n", flags.out.c_str());
  return 0;
}

}  // namespace

int run_plot_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse, run)(arguments, program);
}

}  // namespace belfry
