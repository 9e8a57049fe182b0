// What TensorBoard shows of a training run.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/event_file.h"
#include "belfry/trainers/runs/memory_watch.h"

namespace belfry {

struct TensorBoardOptions {
  std::int64_t histograms_every = 0;               // steps; 0: none
  std::shared_ptr<const MemoryWatch> memory = {};  // whose values are shown; null: none
};

// Writes event files under DIRECTORY/train and DIRECTORY/validation, which TensorBoard takes for
// two runs and draws into one chart where their tags are equal:
//   train       behind each step: "loss", each metric by its name, "learning_rate",
//               "examples_per_second"; those of a MemoryWatch by theirs; the trainable variables by
//               theirs, if that is asked for
//   validation  behind each evaluation: "loss", each metric by its name
// A point stands at the number of complete steps. A run that goes on hides what another wrote of
// the steps that it makes again. Stands before what saves, so that no step of a checkpoint is
// missing.
//
// Needs two or three microseconds per step. If a file cannot be written any more, it warns, and
// training goes on without.
class TensorBoard final : public Callback {
 public:
  explicit TensorBoard(std::string directory, TensorBoardOptions options = {},
                       FileSystem& files = local_file_system());
  // Throws IoError if the files cannot be made.
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;

 private:
  template <class F>
  void write(const F& f);
  void add_histograms(Trainer& trainer);

  std::string directory_;
  TensorBoardOptions options_;
  FileSystem& files_;
  std::int64_t first_step_ = 0;  // complete ones when the run begins
  std::optional<EventFile> train_, validation_;
};

}  // namespace belfry
