#include "belfry/trainers/commands/subcommands.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/arithmetic.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

std::string help_of(std::span<const Subcommand> commands, const std::string& description,
                    const std::string& program) {
  constexpr int kColumn = 12;
  std::string text = cat(description, "\nUsage: ", program, " COMMAND ...\n\nCommands:\n");
  for (const Subcommand& command : commands)
    text += cat("  ", belfry::padded(command.name, -kColumn), command.summary, "\n");
  return cat(text, "\n", program,
             " COMMAND --help says what each takes. --version prints the version.\n");
}

std::vector<std::string> names_of(std::span<const Subcommand> commands) {
  std::vector<std::string> names;
  for (const Subcommand& command : commands) names.push_back(command.name);
  return names;
}

}  // namespace

int run_subcommand(std::span<const Subcommand> commands, const std::string& description,
                   std::span<const char* const> arguments, const std::string& program) {
  const std::vector<std::string> names = names_of(commands);
  require<FlagError>(!arguments.empty(), program, " needs a command: ", join(names, " or "),
                     " (see --help)");
  const std::string first = arguments[0];
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(help_of(commands, description, program).c_str(), stdout);
    return 0;
  }
  if (first == "--version") {
    std::printf("%s of Belfry %s\n", program.c_str(), agreed_version().value.c_str());
    return 0;
  }
  const auto found = std::ranges::find(commands, first, &Subcommand::name);
  if (found == commands.end()) {
    std::string hint = did_you_mean(first, names);
    for (const Subcommand& command : commands)
      if (std::ranges::find(command.commands, first) != command.commands.end())
        hint = cat("; did you mean '", program, " ", command.name, " ", first, "'?");
    throw FlagError(cat(program, " has no command '", shown(first), "'", hint, " (there are ",
                        join(names), "; see --help)"));
  }
  return found->run(arguments.subspan(1), cat(program, " ", first));
}

}  // namespace belfry
