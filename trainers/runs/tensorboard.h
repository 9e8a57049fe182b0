// Shows a training run in TensorBoard.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/event_file.h"
#include "belfry/trainers/runs/memory_watch.h"

namespace belfry {

struct TensorBoardOptions {
  std::shared_ptr<const MemoryWatch> memory = {};  // its values are shown; null: none
};

// Writes event files under DIRECTORY/train and DIRECTORY/validation. TensorBoard takes them for two
// runs, and draws equal tags into one chart. The tags:
//   train       after each step: "loss", each metric by its name, "learning_rate" (of several
//               losses, "learning_rate/gen"), "examples_per_second"; norms of gradients, if they
//               are logged; values of a MemoryWatch by their names; and, when they are due,
//               histograms of variables by their names, and of gradients and activations
//               ("gradients/fc0/W", "activations/fc0")
//   validation  after each evaluation: "loss", each metric by its name
// Metrics that callbacks set are points of validation if their names begin with "validation_",
// which is left out; else of train. A point stands at the number of complete steps. A resumed run
// hides the old points of steps that it repeats. It is called before callbacks that save, so that
// no step of a checkpoint is missing.
//
// Needs two or three microseconds per step. If a file can no longer be written, it warns, and
// training continues without it.
class TensorBoard final : public Callback {
 public:
  explicit TensorBoard(std::string directory, TensorBoardOptions options = {},
                       FileSystem& files = local_file_system());
  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  // Throws IoError if the files cannot be made.
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_metrics(Trainer& trainer, const StepInfo& info,
                     const std::vector<NamedValue>& metrics) override;

 private:
  template <class F>
  void write(const F& f);
  void add_histograms(Trainer& trainer);

  std::string directory_;
  TensorBoardOptions options_;
  FileSystem& files_;
  std::int64_t first_step_ = 0;  // complete steps when the run begins
  std::optional<EventFile> train_, validation_;
};

}  // namespace belfry
