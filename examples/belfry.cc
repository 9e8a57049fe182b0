// The command of Belfry: looks at what runs have left.
//   belfry checkpoint ls|verify|diff|export|import ...
//   belfry plot RUN... [--out=FILE.svg]
//   belfry bisect RUN_A RUN_B
#include "belfry/trainers/commands/bisect_command.h"
#include "belfry/trainers/commands/checkpoint_commands.h"
#include "belfry/trainers/commands/plot_command.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/program/program.h"
using namespace belfry;

int main(int argc, char** argv) {
  const Subcommand commands[] = {
      {"checkpoint", "list, check, compare, export and import checkpoints", run_checkpoint_command},
      {"plot", "draw the loss and the speed of runs", run_plot_command},
      {"bisect", "find the step at which two runs part", run_bisect_command}};
  return run_program([&] {
    return run_subcommand(commands, "Looks at what training runs have left.",
                          program_arguments(argc, argv), program_name(argc, argv));
  });
}
