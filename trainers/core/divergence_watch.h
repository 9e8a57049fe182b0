// Watches a training for a loss that is not finite, and for its likely cause.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/bad_value.h"
#include "belfry/trainers/core/loss_watch.h"

namespace belfry {

class BuiltTraining;
class TrainingProgress;
struct Batch;

class DivergenceWatch {
 public:
  DivergenceWatch(BuiltTraining& built, const TrainingProgress& progress)
      : built_(built), progress_(progress) {}

  const LossWatch& losses() const { return losses_; }
  const Suspects& suspects() const { return suspects_; }
  // Where the last step that was not finite went wrong; none if that is not known.
  const std::optional<BadValue>& bad_value() const { return bad_value_; }
  // Of several losses, the name of the one that was last not finite; else "".
  const std::string& bad_loss() const { return bad_loss_; }
  // For the callback that has evaluated, in all processes: the loss, and not_finite_input() of the
  // test samples of this process.
  void note_test_loss(double loss, const std::string& input);

  // What the last step that was not finite has changed: "no variable", "only the variables of
  // 'disc'"; "" if that is not known.
  const std::string& changes() const { return changes_; }
  bool changed_nothing() const { return changes_ == kNoVariable; }

  // For the loop: begin() before the first step. The others are called after each batch (with
  // free-running towers, with what these found in their batches), for each of several losses
  // (`finite`: it and its gradients are, or a loss scale mends these; `applied`: it has updated
  // variables), and after each step, with its loss.
  void begin();
  void look_at_batch(const Batch& batch, std::size_t loss, bool finite, bool applied);
  void note_input(std::string input) { suspects_.input = std::move(input); }
  // For a step that is not finite, where steps are guarded: the losses that were updated all the
  // same, of several that take turns.
  void note_changes(const std::vector<std::string>& updated);
  // For a finite step: whether its update may have made values that are not, so that the variables
  // must be looked at. note_overflow(): it has made some.
  bool update_may_overflow(std::size_t loss, double rate) const;
  void note_overflow();
  bool overflowed() const { return overflowed_; }
  // `finite`: its gradients are; `applied`: it has updated the variables, of all losses. A step
  // that the training leaves behind is skipped instead; `what` became of it is for the first
  // warning.
  void look_at_step(double loss, bool finite, bool applied);
  void skip_step(double loss, const std::string& what);
  // The steps with an update that was skipped, by f16 too, since the first step of the first run.
  std::int64_t skipped_steps() const { return skipped_; }
  // The first of the steps that were skipped since the last finite one; none if that was the last.
  std::optional<std::int64_t> skipped_since() const { return skipped_since_; }
  // The last finite step of this run, from 1; 0: none. Variables from before it are useful.
  std::int64_t last_finite_step() const { return last_finite_; }
  void resume(std::int64_t skipped) { skipped_ = skipped; }

 private:
  static constexpr std::string_view kNoVariable = "no variable";

  void look_for_bad_value(const Batch& batch, std::size_t loss);
  void look_beside_scale(const Batch& batch, std::size_t loss);
  bool searches() const;
  bool has_bad_value() const;
  void look_at_loss(double loss, bool finite);
  void agree_on_input();
  void look_at_first_update();
  void look_at_weights();
  bool skipped_all() const;
  void look_at_scale();
  bool warns() const;

  BuiltTraining& built_;
  const TrainingProgress& progress_;
  LossWatch losses_;
  SkipWatch skips_;
  Suspects suspects_;
  std::optional<BadValue> bad_value_;
  std::string bad_loss_, changes_;
  std::vector<double> safe_rates_;   // by loss: up to it, no update overflows; -1: unknown
  std::int64_t bad_step_ = 0;        // of bad_loss_, from 1
  std::int64_t skipped_before_ = 0;  // the first step of this run
  std::int64_t skipped_ = 0, last_finite_ = 0;
  std::optional<std::int64_t> skipped_since_;
  bool overflowed_ = false;  // the update of the last step that was not finite
  bool saw_update_ = false, warned_ = false, warned_of_skip_ = false, warned_of_test_ = false;
};

}  // namespace belfry
