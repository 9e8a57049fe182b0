// Rows of flags that inspect a model, a plan or a run.
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/options/option_fields.h"
#include "belfry/trainers/program/flag_groups_impl.h"

namespace belfry {
namespace {

constexpr int kMostPlannedProcesses = 1 << 12;

class InspectionRows {
 public:
  explicit InspectionRows(bool benchmark) : benchmark_(benchmark) {}

  Options<TrainFlags> make() {
    add_plans();
    add_looks();
    add_reports();
    add_comparisons();
    return std::move(rows_);
  }

 private:
  template <class S, class Part>
  void add_of(const Option<S>& option, Part part) {
    rows_.push_back(of_part<TrainFlags>(option, part));
  }
  void add(const Option<InspectionFlags>& option) {
    add_of(
        option, [](auto& flags) -> auto& { return flags.inspection; });
  }
  void add(const Option<FileFlags>& option) {
    add_of(
        option, [](auto& flags) -> auto& { return flags.files; });
  }
  void add(const Option<GroupFlags>& option) {
    add_of(
        option, [](auto& flags) -> auto& { return flags.group; });
  }
  void add(const Option<SessionOptions>& option) {
    add_of(
        option, [](auto& flags) -> auto& { return flags.trainer.session; });
  }

  void add_plans() {
    add(on_off(&SessionOptions::log_device_placement,
               {.name = "log_device_placement",
                .text = "print the device of every node, and the balance of variables",
                .otherwise = "false",
                .noted = false,
                .benchmarks = false,
                .compared = false}));
    add(on_off(&InspectionFlags::dry_run,
               {.name = "dry_run",
                .text = cat("print the ", benchmark_ ? "" : "device of every node and the ",
                            "memory planned per device, and exit; takes no samples of data; "
                            "`devices` may name GPUs that this machine lacks"),
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .compared = false}));
    add(whole_number(
        &GroupFlags::processes, 1, kMostPlannedProcesses,
        {.name = "processes",
         .unit = "N",
         .text = "with `dry_run`: plan one of N processes, each with `devices`, without "
                 "starting any; prints the bytes that it sends within its host and between "
                 "hosts",
         .otherwise = "those that a launcher started",
         .scope = Scope::kThisCall,
         .own_process = true}));
    add(whole_number(&SessionOptions::planned_per_host, 1, kMostPlannedProcesses,
                     {.name = "processes_per_host",
                      .unit = "N",
                      .text = "with `processes`: how many of them share a host",
                      .otherwise = "1",
                      .scope = Scope::kThisCall,
                      .own_process = true}));
  }

  void add_looks() {
    add(on_off(&InspectionFlags::summary,
               {.name = "summary",
                .text = "print layers with output shapes, parameters, multiply-adds and bytes, and "
                        "exit; reads no data; takes GPUs as `dry_run` does",
                .otherwise = "false",
                .scope = Scope::kThisCall,
                .compared = false}));
    add(on_off(
        &InspectionFlags::mfu,
        {.name = "mfu",
         .text = "before training, measure the peak of the devices with products of matrices, "
                 "for a second or so on CPUs; then report the share of it that training "
                 "reaches, at twice the multiply-adds of `summary` per step",
         .otherwise = "false",
         .trains = true,
         .noted = false}));
    add(any_text(&InspectionFlags::explain,
                 {.name = "explain",
                  .unit = "NODE",
                  .text = "print why this node is on its device, and exit; takes GPUs as "
                          "`dry_run` does",
                  .otherwise = "none",
                  .scope = Scope::kThisCall,
                  .benchmarks = false,
                  .compared = false}));
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
                  .compared = false}));
  }

  void add_reports() {
    add(any_text(
        &FileFlags::metrics,
        {.name = "metrics_file",
         .unit = "FILE",
         .text = "while training, write steps, loss, metrics, rates, speed and memory there "
                 "every 5 seconds, as Prometheus' node exporter reads them",
         .otherwise = "none",
         .scope = Scope::kThisCall,
         .own_process = true,
         .of_training = true,
         .benchmarks = false}));
    auto trace = any_text(
        &FileFlags::trace_file,
        {.name = "trace_file",
         .unit = "FILE",
         .text = cat("record ", benchmark_ ? "the last warm-up step" : "step 2 (or the only one)",
                     " for Perfetto or chrome://tracing; several processes share one file"),
         .otherwise = "none",
         .scope = Scope::kThisCall,
         .of_training = true,
         .trains = true});
    // All processes make traces together, and rank 0 writes them.
    trace.value = [](const FileFlags& files) {
      return JsonValue(files.trace_file.empty() ? "not given" : "given");
    };
    add(trace);
    add(any_text(
        &FileFlags::memory_report,
        {.name = "memory_report",
         .unit = "FILE",
         .text = "write there what the planned memory is for, by kind and device, and its largest "
                 "tensors, as one JSON object; also with `dry_run`. planned_bytes, which `json` "
                 "has, too, is the sum over all devices and other memory of the process",
         .otherwise = "none",
         .scope = Scope::kThisCall,
         .own_process = true}));
  }

  void add_comparisons() {
    add(whole_number(
        &InspectionFlags::check_equivalence, 1, std::numeric_limits<int>::max(),
        {.name = "check_equivalence",
         .unit = "N",
         .text = "instead of training, run N steps with every trainer and strategy and compare "
                 "all variables, memory, transfers and time; the exit code is 1 if modes that "
                 "must agree do not, or training diverges",
         .otherwise = "none",
         .scope = Scope::kThisCall}));
    add(any_text(
        &InspectionFlags::replay,
        {.name = "replay",
         .unit = "RUN",
         .text = "compare each step with the hashes that this run has noted, and end after "
                 "`replay_step`, as belfry replay asks it to",
         .otherwise = "none",
         .scope = Scope::kThisCall,
         .trains = true,
         .benchmarks = false,
         .compared = false}));
    add(whole_number(&InspectionFlags::replay_step, 1, std::numeric_limits<std::int64_t>::max(),
                     {.name = "replay_step",
                      .unit = "S",
                      .text = "the last step that `replay` compares, counted from 1",
                      .otherwise = "none",
                      .scope = Scope::kThisCall,
                      .trains = true,
                      .benchmarks = false,
                      .compared = false}));
  }

  bool benchmark_;
  Options<TrainFlags> rows_;
};

}  // namespace

Options<TrainFlags> inspection_options(const FlagDefaults& defaults) {
  return InspectionRows(defaults.benchmark).make();
}

}  // namespace belfry
