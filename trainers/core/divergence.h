// Training that has diverged: a loss, in training or in the last evaluation, or a variable is NaN
// or infinite.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/framework/base/error.h"
#include "belfry/trainers/core/bad_value.h"

namespace belfry {

class BuiltTraining;
class TrainingRecord;

struct Divergence {
  double loss = 0;                              // of the last step
  std::string loss_name = {};                   // of several losses, the first not finite; else ""
  std::optional<std::int64_t> loss_since = {};  // LossWatch::not_finite_since(), or of gradients
  std::string changes = {};  // what that step changed (DivergenceWatch::changes()), if it was last
  std::string gradients = {};  // refused_gradients(), if the loss was finite
  // The optimizers, if it was their update that overflowed: the loss and gradients were finite.
  std::string update = {};
  // The first variable with a value that is not finite, and that value: "'fc/W' f32[2,1] (built at
  // model.cc:7) has nan at element 0, as have 2 others of 6 trainable variables". Optimizer slots
  // and other state come last. If all trainable variables have such values, it names none. "" if
  // there is none.
  std::string variable = {};

  std::optional<double> test_loss = {};  // of the last test, if it is not finite
  std::int64_t steps = 0;                // made, in all runs
  std::string advice = {};               // what to check first, according to what the trainer saw
  std::optional<BadValue> bad = {};      // where the loss first was not finite, if that is known

  explicit operator bool() const { return loss_since || !variable.empty() || test_loss; }
  // For people; "" unless it has diverged. Without the advice.
  std::string str() const;
};

// "training diverged: ...", with the advice.
class Diverged : public Error {
 public:
  explicit Diverged(Divergence found);
  const Divergence& found() const { return found_; }

 private:
  Divergence found_;
};

// Divergence::variable of the present values. Infinities of weights that are not trained, such as
// those of a mask, are on purpose. Reads all variables; all processes call it.
std::string bad_variable(BuiltTraining& built);

// Reads all variables. Call it between two runs, such as after Trainer::train().
Divergence find_divergence(BuiltTraining& built, const TrainingRecord& record);

}  // namespace belfry
