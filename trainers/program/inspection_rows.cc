// Rows of flags that inspect a model, a plan or a run.
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_groups_impl.h"

namespace belfry {
namespace {

constexpr int kMostPlannedProcesses = 1 << 12;

}  // namespace

Options<TrainFlags> inspection_options(const FlagDefaults& defaults) {
  constexpr auto inspection_in = [](auto& flags) -> auto& { return flags.inspection; };
  constexpr auto files_in = [](auto& flags) -> auto& { return flags.files; };
  constexpr auto group_in = [](auto& flags) -> auto& { return flags.group; };
  constexpr auto session_in = [](auto& flags) -> auto& { return flags.trainer.session; };
  Options<TrainFlags> rows;
  const auto add = [&](const auto& option, auto part) {
    rows.push_back(of_part<TrainFlags>(option, part));
  };
  add(on_off(&SessionOptions::log_device_placement,
             {.name = "log_device_placement",
              .text = "print the device of every node, and the balance of variables",
              .otherwise = "false",
              .noted = false,
              .benchmarks = false,
              .compared = false}),
      session_in);
  add(on_off(&InspectionFlags::dry_run,
             {.name = "dry_run",
              .text = cat("print the ", defaults.benchmark ? "" : "device of every node and the ",
                          "memory planned per device, and exit; takes no samples of data; "
                          "`devices` may name GPUs that this machine lacks"),
              .otherwise = "false",
              .scope = Scope::kThisCall,
              .compared = false}),
      inspection_in);
  add(whole_number(
          &GroupFlags::processes, 1, kMostPlannedProcesses,
          {.name = "processes",
           .unit = "N",
           .text = "with `dry_run`: plan one of N processes, each with `devices`, without "
                   "starting any; prints the bytes that it sends within its host and between "
                   "hosts",
           .otherwise = "those that a launcher started",
           .scope = Scope::kThisCall,
           .own_process = true}),
      group_in);
  add(whole_number(&SessionOptions::planned_per_host, 1, kMostPlannedProcesses,
                   {.name = "processes_per_host",
                    .unit = "N",
                    .text = "with `processes`: how many of them share a host",
                    .otherwise = "1",
                    .scope = Scope::kThisCall,
                    .own_process = true}),
      session_in);
  add(on_off(&InspectionFlags::summary,
             {.name = "summary",
              .text = "print layers with output shapes, parameters, multiply-adds and bytes, and "
                      "exit; reads no data; takes GPUs as `dry_run` does",
              .otherwise = "false",
              .scope = Scope::kThisCall,
              .compared = false}),
      inspection_in);
  add(on_off(&InspectionFlags::mfu,
             {.name = "mfu",
              .text = "before training, measure the peak of the devices with products of matrices, "
                      "for a second or so on CPUs; then report the share of it that training "
                      "reaches, at twice the multiply-adds of `summary` per step",
              .otherwise = "false",
              .trains = true,
              .noted = false}),
      inspection_in);
  add(any_text(&InspectionFlags::explain,
               {.name = "explain",
                .unit = "NODE",
                .text = "print why this node is on its device, and exit; takes GPUs as "
                        "`dry_run` does",
                .otherwise = "none",
                .scope = Scope::kThisCall,
                .benchmarks = false,
                .compared = false}),
      inspection_in);
  add(any_text(&FileFlags::step,
               {.name = "write_step",
                .unit = "FILE",
                .text = "instead of training, compute one step on the first device, with the "
                        "weights of `load` if it is given; write its samples, random numbers, "
                        "variables, loss and gradients there (safetensors), to compare them with "
                        "those of another program",
                .otherwise = "none",
                .scope = Scope::kThisCall,
                .benchmarks = false,
                .compared = false}),
      files_in);
  add(any_text(&FileFlags::metrics,
               {.name = "metrics_file",
                .unit = "FILE",
                .text = "while training, write steps, loss, metrics, rates, speed and memory there "
                        "every 5 seconds, as Prometheus' node exporter reads them",
                .otherwise = "none",
                .scope = Scope::kThisCall,
                .own_process = true,
                .of_training = true,
                .benchmarks = false}),
      files_in);
  auto trace = any_text(
      &FileFlags::trace_file,
      {.name = "trace_file",
       .unit = "FILE",
       .text =
           cat("record ", defaults.benchmark ? "the last warm-up step" : "step 2 (or the only one)",
               " for Perfetto or chrome://tracing; several processes share one file"),
       .otherwise = "none",
       .scope = Scope::kThisCall,
       .of_training = true,
       .trains = true});
  // All processes make traces together, and rank 0 writes them.
  trace.value = [](const FileFlags& files) {
    return JsonValue(files.trace_file.empty() ? "not given" : "given");
  };
  add(trace, files_in);
  add(any_text(
          &FileFlags::memory_report,
          {.name = "memory_report",
           .unit = "FILE",
           .text =
               "write there what the planned memory is for, by kind and device, and its largest "
               "tensors, as one JSON object; also with `dry_run`. planned_bytes, which `json` "
               "has, too, is the sum over all devices and other memory of the process",
           .otherwise = "none",
           .scope = Scope::kThisCall,
           .own_process = true}),
      files_in);
  add(whole_number(
          &InspectionFlags::check_equivalence, 1, std::numeric_limits<int>::max(),
          {.name = "check_equivalence",
           .unit = "N",
           .text = "instead of training, run N steps with every trainer and strategy and compare "
                   "all variables, memory, transfers and time; the exit code is 1 if modes that "
                   "must agree do not, or training diverges",
           .otherwise = "none",
           .scope = Scope::kThisCall}),
      inspection_in);
  add(any_text(&InspectionFlags::replay,
               {.name = "replay",
                .unit = "RUN",
                .text = "compare each step with the hashes that this run has noted, and end after "
                        "`replay_step`, as belfry replay asks it to",
                .otherwise = "none",
                .scope = Scope::kThisCall,
                .trains = true,
                .benchmarks = false,
                .compared = false}),
      inspection_in);
  add(whole_number(&InspectionFlags::replay_step, 1, std::numeric_limits<std::int64_t>::max(),
                   {.name = "replay_step",
                    .unit = "S",
                    .text = "the last step that `replay` compares, counted from 1",
                    .otherwise = "none",
                    .scope = Scope::kThisCall,
                    .trains = true,
                    .benchmarks = false,
                    .compared = false}),
      inspection_in);
  return rows;
}

}  // namespace belfry
