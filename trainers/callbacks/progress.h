// The line that says how far a training is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Shows steps, loss, metrics, speed (of tokens, too, if samples have some), and the time that is
// left. On a terminal it is one line that updates itself and leaves out details to fit the width.
// Elsewhere there is a line for the first step, for the end of each epoch, and in between whenever
// one is due (Console::due).
//
// The speed is over the steps since the last line, without what happens between steps. The time
// left is until the last step of the run. It assumes that the rest runs as fast as the run so far,
// counted from the end of its first step, including evaluations, checkpoints and other callbacks.
class Progress final : public Callback {
 public:
  // `peak`: the most multiplications and additions per second of this process's devices. If it is
  // known, the line has the share of it that training reaches.
  explicit Progress(Console& console, std::optional<double> peak = {})
      : console_(console), peak_(peak) {}
  CallbackPhase phase() const override { return CallbackPhase::kShow; }
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;

  // A part of the line. If the line is too narrow, parts of the highest rank are hidden first.
  struct Part {
    std::string text;
    int rank;
  };

 private:
  std::vector<Part> parts(const Trainer& trainer) const;
  void show(const Trainer& trainer);

  Console& console_;
  std::optional<double> peak_;
  double flops_ = 0;  // of a step
  std::int64_t total_steps_ = 0;
  std::int64_t first_step_ = -1, done_ = 0;  // of this run; complete steps of all runs
  int epoch_ = 0;                            // of the last step
  // Seconds since training began.
  double began_ = 0, ended_ = 0;  // of the last step
  double first_ended_ = 0;        // of the first step
  std::int64_t shown_step_ = -1;
  // The steps since the last line.
  std::int64_t rate_steps_ = 0;
  double rate_seconds_ = 0;
  // Parts from this rank on are hidden, until the width changes, so that the status line is steady.
  int hidden_rank_ = 0;
  std::size_t width_ = 0;
};

}  // namespace belfry
