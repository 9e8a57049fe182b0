// A whole training program in one call.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/model.h"
#include "belfry/trainers/core/trained_losses.h"
#include "belfry/trainers/data/dataset.h"
#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/options/own_option.h"

namespace belfry {

// The data of a program: a function that makes the training data (train = true) or the test data
// (train = false; null if there are none). A function that takes RunDirs first reads files, so the
// program has --data_dir.
class DataSource {
 public:
  DataSource() = default;
  template <class F>
  requires(std::is_invocable_v<F&, const RunDirs&, bool> || std::is_invocable_v<F&, bool>)
      DataSource(F make)
      : reads_files_(std::is_invocable_v<F&, const RunDirs&, bool>) {  // NOLINT
    if constexpr (std::is_invocable_v<F&, const RunDirs&, bool>) {
      make_ = std::move(make);
    } else {
      // Empty for a function pointer that is null and for an empty std::function.
      std::function<std::unique_ptr<Dataset>(bool)> call(std::move(make));
      if (call) make_ = [call](const RunDirs&, bool train) { return call(train); };
    }
  }

  explicit operator bool() const { return static_cast<bool>(make_); }
  bool reads_files() const { return reads_files_; }
  std::unique_ptr<Dataset> operator()(const RunDirs& dirs, bool train) const {
    return make_(dirs, train);
  }

 private:
  DatasetFactory make_;
  bool reads_files_ = false;
};

// Data to evaluate beside the test data, made as these are. Metrics are called
// "validation_<name>_loss" and so on.
struct NamedData {
  std::string name;  // letters, digits and _
  DataSource data;
};

// The parts of a training program. train() refuses a recipe without model, data or optimizer, or
// with a null callback. Flags of the optimizer change those of all losses.
struct Recipe {
  ModelFunction model;  // takes the tower and one tensor per field of the data
  DataSource data;
  Optimizer optimizer = {};
  // Several losses instead of one, each with its optimizer (TrainerOptions::losses).
  std::vector<LossOptions> losses = {};
  // Samples per step, of all devices together, so that results do not depend on how many there are;
  // flag --global_batch_size. The number of devices must divide it. Where no devices are named, and
  // the machine's GPUs do not divide it, a step takes the next multiple.
  int global_batch_size = 64;
  int batch_size = 0;  // on each device, instead of global_batch_size; flag --batch_size
  int epochs = 1;      // --epochs
  std::vector<std::shared_ptr<Callback>> callbacks = {};  // called by phase (callbacks.h)
  std::vector<OwnOption> flags = {};                      // added to those of flags.h
  std::vector<NamedData> validation = {};                 // more sets to evaluate
};

// The body of main. It reads the flags (flags.h), trains, prints progress and a closing table, and
// writes the JSON of report.h. Errors go to stderr, one line each. After a failure in training the
// line names the last checkpoint saved. Returns the exit code. 0: success. 2: the command line is
// wrong by itself, or asks for something that the model lacks. 1: any other error, such as flags
// that do not fit the data, training that diverged (divergence.h), or modes that differ
// (--check_equivalence). 75, or --stall_exit_code: the run stalled. 76: bits have flipped. 128 plus
// a signal: it or
// --max_time ended the run. Throws nothing.
int train(int argc, char** argv, const Recipe& recipe);

}  // namespace belfry
