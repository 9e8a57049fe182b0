// --algorithms=FILE: the algorithms that libraries use on GPUs, kept from run to run.
#pragma once
#include <string>

#include "belfry/framework/device/gpus.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

class AlgorithmsFile {
 public:
  // Gives the GPUs' module the choices of the file, if it exists, for deterministic steps or for
  // others, as `deterministic` says. Does nothing for an empty path. Throws IoError if the file
  // cannot be read or written, and InvalidArgument, naming it, if it is no file of algorithms.
  // `found` replaces gpus(), which is called only if there is a path.
  AlgorithmsFile(FileSystem& files, OutputFiles& outputs, const std::string& path,
                 bool deterministic, const Gpus* found = nullptr);

  // Writes all choices, old and new, if there are new ones.
  void write();

 private:
  const GpuBackend* backend_ = nullptr;  // null: no path
  OutputFile* file_ = nullptr;
  bool deterministic_;
  std::string text_;  // of the file
};

}  // namespace belfry
