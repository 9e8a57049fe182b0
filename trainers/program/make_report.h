// What a training program tells of a run: before it begins, and what it has come to.
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

// The choice of "auto", the trainer on its devices, the data, and how batches are divided.
void print_header(Console& console, const std::string& program, const TrainFlags& flags,
                  Trainer& trainer, const Dataset& train, const Dataset* test);

// Without times and memory of the process. Logs copies that differ from tower 0's variables.
// `peak`: multiplications and additions a second of the devices of this process, if that was
// measured.
Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer, std::optional<double> peak = {});
// The same without what variables hold, and without asking other processes: of a run that failed.
Report report_without_values(const std::string& program, const TrainFlags& flags,
                             const Recipe& recipe, Trainer& trainer,
                             std::optional<double> peak = {});

// measure_peak() of the devices, sessions and precision that the flags ask for.
double measured_peak(const TrainFlags& flags);

// The memory that --memory_report plans, the peak, and `rss_before_plan`. `saves`: the plan has the
// copy that checkpoints are written from.
ProcessMemory memory_use(Trainer& trainer, std::int64_t rss_before_plan, bool saves);

// Log a warning: the run has ended before the step that --trace_file traces. The second one logs it
// only if the run has made none of the steps of --trace_steps.
void warn_of_no_trace(const TrainFlags& flags, const Trainer& trainer);
void warn_of_no_traces(const StepRange& asked, const Trainer& trainer);

}  // namespace belfry
