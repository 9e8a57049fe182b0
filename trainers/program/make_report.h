// What a training run has come to, for its report.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/report.h"
#include "belfry/trainers/program/train.h"

namespace belfry {

// Without times and memory of the process. Logs copies that differ from tower 0's variables.
// `peak`: multiplications and additions a second of the devices of this process, if that was
// measured.
Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer, std::optional<double> peak = {});

// measure_peak() of the devices, sessions and precision that the flags ask for.
double measured_peak(const TrainFlags& flags);

// Beside `rss_before_plan`: the plan's memory on hosts with the batches that wait, and the peak.
// `saves`: with the copy that checkpoints are written from.
ProcessMemory memory_use(Trainer& trainer, const Dataset& train, std::int64_t rss_before_plan,
                         bool saves);

}  // namespace belfry
