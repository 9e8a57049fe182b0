// The files for reports that flags of training name.
#pragma once
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

// The files of a run, opened before anything is built. So a file that cannot be written costs no
// training.
struct ReportFiles {
  // Throws FlagError for a file that cannot be written, that two flags name, or that the program
  // reads.
  explicit ReportFiles(const TrainFlags& flags);
  // Throws FlagError if a flag names a file of the data.
  void reserve_data(const TrainFlags& flags, const Dataset& data);

  OutputFiles files;
  OutputFile *json = nullptr, *memory = nullptr, *metrics = nullptr, *trace = nullptr,
             *step = nullptr;  // null: not requested
};

}  // namespace belfry
