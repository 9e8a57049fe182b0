#include "belfry/trainers/commands/bisect_command.h"

#include <cstdio>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/runs/hash_log.h"

namespace belfry {
namespace {

struct BisectFlags {
  std::string help;
  std::vector<std::string> runs;
};

BisectFlags parse(std::span<const char* const> arguments, const std::string& program) {
  BisectFlags flags;
  FlagParser parser(
      "Names the first step after which two runs have other values, and the variables "
      "and gradients that differ then. Both are to be trained with --hash_every.",
      program);
  parser.add_arguments("RUN", flags.runs, "two run directories, or files like their hashes.jsonl");
  flags.help = parser.parse(arguments);
  require<FlagError>(!flags.help.empty() || flags.runs.size() == 2, "there are ", flags.runs.size(),
                     " runs to compare; name two");
  return flags;
}

int run(const BisectFlags& flags) {
  const Parting parting = find_parting(flags.runs[0], flags.runs[1]);
  if (!parting.differs) {
    std::puts(
        cat("equal: all ", parting.compared, " steps that both have, the last is ", *parting.equal)
            .c_str());
    return 0;
  }
  std::puts(cat("step ", *parting.differs, ": ", parting.variables[0], " differs",
                parting.variables.size() > 1
                    ? cat(", and ", parting.variables.size() - 1, " more: ",
                          join(std::vector(parting.variables.begin() + 1, parting.variables.end())))
                    : "",
                parting.equal ? cat("; step ", *parting.equal, " was equal")
                              : "; no step before was compared")
                .c_str());
  return 1;
}

}  // namespace

int run_bisect_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse, run)(arguments, program);
}

}  // namespace belfry
