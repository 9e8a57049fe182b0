// The command of Belfry: starts runs as several processes, and inspects the files of runs.
//   belfry run -n P [--max_restarts=N] [--min_processes=M] -- PROGRAM ...
//   belfry checkpoint ls|verify|diff|export|import ...
//   belfry generate RUN [--prompt=TEXT] ...
//   belfry plot RUN... [--out=FILE.svg]
//   belfry runs DIR... [--metric=NAME,NAME]
//   belfry bisect RUN_A RUN_B
//   belfry replay RUN --step=S [--devices=cpu:1]
//   belfry trace summary FILE [--peak=FILE]
//   belfry machine
//   belfry simulate WORKLOAD --machine=FILE
//   belfry flags
#include "belfry/trainers/commands/bisect_command.h"
#include "belfry/trainers/commands/checkpoint_commands.h"
#include "belfry/trainers/commands/flags_command.h"
#include "belfry/trainers/commands/generate_command.h"
#include "belfry/trainers/commands/machine_command.h"
#include "belfry/trainers/commands/plot_command.h"
#include "belfry/trainers/commands/replay_command.h"
#include "belfry/trainers/commands/run_command.h"
#include "belfry/trainers/commands/runs_command.h"
#include "belfry/trainers/commands/simulate_command.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/commands/trace_command.h"
#include "belfry/trainers/program/program.h"
using namespace belfry;

int main(int argc, char** argv) {
  const Subcommand commands[] = {
      {"run", "start a program as several processes that train together", run_run_command},
      {"checkpoint",
       "list, check, compare, export and import checkpoints",
       run_checkpoint_command,
       {"ls", "verify", "diff", "export", "import"}},
      {"generate", "continue a text by a run of gpt", run_generate_command},
      {"plot", "draw the loss and the speed of runs", run_plot_command},
      {"runs", "list runs, with means over seeds", run_runs_command},
      {"bisect", "find the step at which two runs part", run_bisect_command},
      {"replay", "compute a step again, and find who computed it wrong", run_replay_command},
      {"trace", "sum up the trace of a step", run_trace_command, {"summary"}},
      {"machine", "measure what moving bytes costs here", run_machine_command},
      {"simulate", "predict training on other machines", run_simulate_command},
      {"flags", "print the flags of programs that train", run_flags_command}};
  return run_program([&] {
    return run_subcommand(
        commands, "Starts training runs as several processes, and looks at what runs have left.",
        program_arguments(argc, argv), program_name(argc, argv));
  });
}
