#include "belfry/trainers/commands/flags_command.h"

#include <cstdio>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/help_text.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {
namespace {

constexpr const char* kHead =
    "# Flags of programs that train\n\n"
    "`belfry flags` prints this page from the table of options that programs read. To change it, "
    "change a row of the table, and build the target `flags_page`.\n"
    "A program also has its own flags: `PROGRAM --help` lists them, and the program's defaults for "
    "batches and epochs.\n";

// The page, with the flags of a recipe that has no settings of its own.
std::string flags_page() {
  FlagParser parser("", "PROGRAM");
  const TrainFlagSet set(parser, {.program = "PROGRAM"});
  parser.parse({});
  return cat(kHead, flag_tables(parser.rows()));
}

}  // namespace

int run_flags_command(std::span<const char* const> arguments, const std::string& program) {
  FlagParser parser("Prints the flags of programs that train, as tables of Markdown.", program);
  const std::string help = parser.parse(arguments);
  std::fputs((help.empty() ? flags_page() : help).c_str(), stdout);
  return 0;
}

}  // namespace belfry
