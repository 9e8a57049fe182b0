#include "belfry/trainers/commands/plot_command.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/plot_file.h"
#include "belfry/trainers/commands/plot_runs.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/run_stats.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

struct PlotFlags {
  std::string help, out = "plot.svg";
  std::vector<std::string> runs, metrics = kPlottedMetrics;
  PlotOptions options;
};

void read_scale(const WrittenFlag& flag, PlotOptions& options) {
  require<FlagError>(flag.value == "auto" || flag.value == "linear" || flag.value == "log",
                     flag.written, " is none of auto, linear and log");
  options.logarithmic.reset();
  if (flag.value != "auto") options.logarithmic = flag.value == "log";
}

std::vector<std::string> read_metrics(const WrittenFlag& flag) {
  std::vector<std::string> metrics;
  for (const std::string_view name : split(flag.value, ',')) {
    require<FlagError>(!name.empty(), flag.written,
                       ": a name is missing beside a comma; write loss,accuracy");
    metrics.emplace_back(name);
  }
  return metrics;
}

PlotFlags parse(std::span<const char* const> arguments, const std::string& program) {
  PlotFlags flags;
  FlagParser parser(
      "Draws metrics of runs by step, in training and validation, with gnuplot. Runs may still go "
      "on.",
      program);
  parser.add_arguments("RUN", flags.runs, "the directory of a run, or a file like its stats.jsonl");
  parser.add("--out", flags.out, "FILE",
             "the picture, FILE.svg, FILE.png or FILE.pdf, with its script FILE.gp beside it; "
             "another name is that of the script alone; -: the script to stdout [plot.svg]");
  parser.add_parsed("--metric", flags.metrics, read_metrics, "NAMES",
                    cat("what to draw, one below the other: loss, accuracy, learning_rate, ... [",
                        join(kPlottedMetrics, ","), "]"));
  parser.add(
      "--scale", [&](const WrittenFlag& flag) { read_scale(flag, flags.options); },
      "auto|linear|log", "of the metrics [auto]");
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

// Spares what is plotted, and the rest of its run.
void reserve_stats(OutputFiles& outputs, const std::string& path) {
  const std::string written = cat("RUN=", path);
  outputs.reserve_input(written, stats_file_of(path));
  if (run_config(local_file_system(), path)) reserve_run(outputs, written, path);
}

int run(const PlotFlags& flags) {
  OutputFiles outputs(local_file_system());
  for (const std::string& path : flags.runs) reserve_stats(outputs, path);
  PlotFile out(outputs, "--out", flags.out);
  std::vector<RunStats> runs;
  for (const std::string& path : flags.runs) runs.push_back(read_run_stats(path, flags.metrics));
  name_apart(runs, flags.runs);
  const RunsPlot plot = plot_runs(runs, flags.options);
  out.draw(plot.commands, plot.width, plot.height);
  outputs.finish();
  if (!outputs.on_stdout()) std::printf("wrote %s\n", flags.out.c_str());
  return 0;
}

}  // namespace

int run_plot_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse, run)(arguments, program);
}

}  // namespace belfry
