#include "belfry/trainers/program/report_files.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {
namespace {

void reserve_inputs(OutputFiles& files, const TrainFlags& flags) {
  files.reserve_input(cat("--config=", flags.run.config_file), flags.run.config_file);
  files.reserve_input(cat("--links=", flags.links), flags.links);
  const std::string& from = flags.run.resume;
  if (from != "auto" && from != "never") files.reserve_input(cat("--resume=", from), from);
  files.reserve_input(cat("--load=", flags.run.load), flags.run.load);
}

}  // namespace

ReportFiles::ReportFiles(const TrainFlags& flags) : files(local_file_system()) {
  reserve_inputs(files, flags);
  const std::string& run = flags.run.directory;
  if (!run.empty()) reserve_run(files, cat("--run_dir=", run), run);
  json = files.open("--json", flags.files.json);
  memory = files.open("--memory_report", flags.files.memory_report);
  metrics = files.open("--metrics_file", flags.files.metrics);
  require<FlagError>(!metrics || metrics->replaces(), "--metrics_file=", flags.files.metrics,
                     " is replaced again and again, which only a file can be; name one");
  step = files.open("--write_step", flags.files.step);
  trace = files.open("--trace_file", speaks(flags) ? flags.files.trace_file : "");
}

void ReportFiles::reserve_data(const TrainFlags& flags, const Dataset& data) {
  for (const std::string& file : data.files())
    files.reserve_input(cat("--data_dir=", flags.files.data_dir), file);
}

}  // namespace belfry
