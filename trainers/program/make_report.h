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
// variables. `peak`: multiplications and additions a second of this process's devices, if it was
// measured.
Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer, std::optional<double> peak = {});
// The same without what variables hold, and without asking other processes: of a run that failed.
Report report_without_values(const std::string& program, const TrainFlags& flags,
                             const Recipe& recipe, Trainer& trainer,
                             std::optional<double> peak = {});

// measure_peak() for the devices, sessions and precision of the flags.
double measured_peak(const TrainFlags& flags);

// The memory that --memory_report plans, the peak, and `rss_before_plan`. `saves`: the plan has a
// copy of the variables, from which checkpoints are written.
ProcessMemory memory_use(Trainer& trainer, std::int64_t rss_before_plan, bool saves);

// These log a warning that the run has ended before it traced a step: the step of --trace_file, or
// all of the steps of --trace_steps.
void warn_of_no_trace(const TrainFlags& flags, const Trainer& trainer);
void warn_of_no_traces(const StepRange& asked, const Trainer& trainer);

}  // namespace belfry
