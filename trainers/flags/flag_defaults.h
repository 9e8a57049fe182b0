// The settings of a program's recipe that its flags need.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/options/own_option.h"

namespace belfry {

struct FlagDefaults {
  std::string program;  // for --help
  int batch_size = 32;
  int global_batch_size = 0;  // of all devices, instead of batch_size; 0: none
  int epochs = 1;
  bool reads_files = true;  // false: the program has no --data_dir
  // A benchmark chooses data, steps and batch size itself, so it has no flags of epochs, files and
  // single nodes.
  bool benchmark = false;
  std::vector<OwnOption> own = {};
};

}  // namespace belfry
