#include "belfry/trainers/commands/trace_command.h"

#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/commands/trace_summary.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {
namespace {

struct SummaryFlags {
  std::string help, file, peak, precision = "f32", json;
  int top = 20;
};

SummaryFlags parse(std::span<const char* const> arguments, const std::string& program) {
  SummaryFlags flags;
  FlagParser parser(
      "Adds up the launches of a traced step by phase, op and layer, over all devices, workers and "
      "processes. With --peak it compares their arithmetic with the peak of the machine.",
      program);
  parser.add_argument("FILE", flags.file, "a trace, of --trace_file or --trace_steps",
                      FlagParser::Needed::kYes);
  parser.add("--peak", flags.peak, "FILE",
             "the peak of this machine, as peak_bench --json=FILE has written it: adds the floor, "
             "the time of the arithmetic at this peak [none]");
  parser.add("--precision", flags.precision, "NAME", "of the products in that file [f32]");
  parser.add("--top", flags.top, 0, std::numeric_limits<int>::max(), "N",
             "rows of a table; 0: all [20]");
  parser.add("--json", flags.json, "FILE", "write all rows there as JSON; -: to stdout [none]");
  flags.help = parser.parse(arguments);
  return flags;
}

// What make(text of the file) returns. Errors about the content name the file.
template <class Make>
auto read(const std::string& path, std::uint64_t most, const Make& make) {
  const std::vector<std::byte> bytes = local_file_system().read(path, most);
  try {
    return make(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  } catch (const InvalidArgument& error) {
    throw IoError(cat(path, ": ", error.what()));
  }
}

int run_summary(const SummaryFlags& flags) {
  OutputFiles outputs(local_file_system());
  outputs.reserve_input(cat("FILE=", flags.file), flags.file);
  outputs.reserve_input(cat("--peak=", flags.peak), flags.peak);
  OutputFile* const json = outputs.open("--json", flags.json);
  std::optional<UnitPeak> peak;
  if (!flags.peak.empty())
    peak = read(flags.peak, kMostJsonBytes,
                [&](std::string_view text) { return read_unit_peak(text, flags.precision); });
  const TraceSummary summary = read(
      flags.file, kMostTraceBytes, [&](std::string_view text) { return sum_up_trace(text, peak); });
  std::fputs(to_text(summary, static_cast<std::size_t>(flags.top)).c_str(),
             outputs.on_stdout() ? stderr : stdout);
  if (json) json->write(to_json(summary).str(2) + "\n");
  outputs.finish();
  return 0;
}

}  // namespace

int run_trace_command(std::span<const char* const> arguments, const std::string& program) {
  const Subcommand commands[] = {{"summary", "add up the time of a step by phase, op and layer",
                                  subcommand_of(parse, run_summary)}};
  return run_subcommand(commands, "Looks at traces of steps.", arguments, program);
}

}  // namespace belfry
