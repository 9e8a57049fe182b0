// The header that a training program prints before a run, and the report after it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/report.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Prints the choice of "auto", the trainer and its devices, the data, and how batches are divided.
void print_header(Console& console, const std::string& program, const TrainFlags& flags,
                  Trainer& trainer, const Dataset& train, const Dataset* test);

// A report without times and memory of the process. Logs copies that differ from tower 0's
// variables. `peak`: multiplications and additions per second of this process's devices, if
// measured.
Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer, std::optional<double> peak = {});
// The report of a run that failed: without values of variables, and without asking other processes.
Report report_without_values(const std::string& program, const TrainFlags& flags,
                             const Recipe& recipe, Trainer& trainer,
                             std::optional<double> peak = {});

// measure_peak() for the devices, sessions and precision of the flags.
double measured_peak(const TrainFlags& flags);

// The planned memory as in --memory_report, the peak of the process, and `rss_before_plan`.
// `copies` of the variables as in TellMemory.
ProcessMemory memory_use(Trainer& trainer, std::int64_t rss_before_plan, int copies);

// Each logs a warning if the run has ended before it traced a requested step: that of --trace_file,
// or any of --trace_steps.
void warn_of_no_trace(const TrainFlags& flags, const Trainer& trainer);
void warn_of_no_traces(const StepRange& asked, const Trainer& trainer);

}  // namespace belfry
