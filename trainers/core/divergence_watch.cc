#include "belfry/trainers/core/divergence_watch.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/partitioned_update.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/core/values_of_all.h"
#include "belfry/trainers/data/not_finite_input.h"
#include "belfry/trainers/data/prefetch.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

constexpr double kLargeWeight = 1e6;    // no first update makes such ones
constexpr double kUselessWeight = 1e9;  // a cause of values that are not finite
constexpr std::size_t kMostBytesToRead = std::size_t{1} << 26;  // of the weights, once

// The largest absolute value; NaN if one is NaN.
double largest_weight_of(Session& session, Variable variable) {
  double largest = 0;
  session.look_at(variable, [&](std::span<const std::byte> bytes) {
    visit_floating(variable.dtype(), [&](auto type) {
      const auto* const values = reinterpret_cast<const decltype(type)*>(bytes.data());
      for (const auto value : std::span(values, bytes.size() / sizeof type)) {
        const double size = std::abs(static_cast<double>(value));
        if (!(size <= largest)) largest = size;
        if (std::isnan(size)) break;
      }
    });
  });
  return largest;
}

// The largest rate at which no update of checked gradients can make a value that is not finite. The
// check or `clip` leaves none above 1e16 (GradientRange::largest()), and most updates move a value
// by little more than the rate times that: at a rate of 10, 1e20 of them would have to follow each
// other. Adagrad would need a million for an infinite sum of squares. Nothing is known of rules of
// a program. Coupled decay adds weights to gradients.
double safe_rate_of(const Optimizer& optimizer, double clip, double largest_weight) {
  constexpr double kSafeRate = 10, kSafeGradient = 1e16, kSafeWeight = 1e15;
  if (optimizer.kind().empty()) return -1;
  if (clip > kSafeGradient || !(largest_weight <= kSafeWeight)) return -1;
  double largest = 1;
  for (const VariableGroup& group : optimizer.groups())
    largest = std::max(largest, std::abs(group.rate));
  return kSafeRate / largest;
}

bool adds_weights_to_gradients(const Optimizer& optimizer) {
  const auto decays = [](const VariableGroup& group) { return group.weight_decay.value_or(0) > 0; };
  return optimizer.decay_form() == DecayForm::kCoupled &&
         (optimizer.weight_decay() > 0 || std::ranges::any_of(optimizer.groups(), decays));
}

// The largest of the weights that are trained, and its variable.
struct LargestWeight {
  double size = 0;
  Variable variable;
};

LargestWeight largest_weight_of(BuiltTraining& built) {
  LargestWeight largest;
  for (const Variable variable : originals_of(built.graph().variables(kTrainableVariables))) {
    if (variable.dtype() != DType::kF32 && variable.dtype() != DType::kF64) continue;
    const double size = largest_weight_of(built.session(), variable);
    if (!(size <= largest.size)) largest = {size, variable};
    if (std::isnan(size)) break;
  }
  return largest;
}

}  // namespace

void DivergenceWatch::begin() {
  const TrainerOptions& options = built_.options();
  const double clip = options.clip_value > 0 ? options.clip_value : options.clip_norm;
  safe_rates_.clear();
  for (const Optimizer& optimizer : options.optimizers()) {
    const bool decays = built_.guards() && adds_weights_to_gradients(optimizer);
    safe_rates_.push_back(
        safe_rate_of(optimizer, clip, decays ? largest_weight_of(built_).size : 0));
  }
  skipped_before_ = skipped_;
  skips_.begin(skipped_);
}

// The batch has been run for this loss, and the variables are those before that run.
void DivergenceWatch::look_for_bad_value(const Batch& batch, std::size_t loss) try {
  // A step of several batches is not finite if one of them was.
  if (auto found =
          find_bad_value(built_, batch, loss, progress_.steps() + 1, built_.session().step() - 1))
    bad_value_ = std::move(found);
} catch (const Error& error) {
  log_warning("the step is not finite, and the op that is to blame was not found: ", error.what());
}

// Of steps that are skipped, the first one, and the second of those that follow each other: then
// the variables may be to blame.
bool DivergenceWatch::searches() const {
  if (!built_.guards() && !built_.nodes().loss_scale) return false;
  return !bad_value_ || built_.options().on_nonfinite != OnNonfinite::kSkip ||
         skipped_since_ == progress_.steps();
}

bool DivergenceWatch::has_bad_value() const {
  return bad_value_ && bad_value_->step == progress_.steps() + 1;
}

// A scale of f16 below 1 makes gradients smaller than they are in f32.
void DivergenceWatch::look_beside_scale(const Batch& batch, std::size_t loss) {
  if (!built_.guards() || bad_value_ || built_.loss_scale().value_or(1) >= 1) return;
  look_for_bad_value(batch, loss);
  if (bad_value_ && warns())
    log_warning("gradients of step ", progress_.steps() + 1, " ",
                refused_gradients(bad_value_, built_.options()), " even at a loss scale of ",
                significant(*built_.loss_scale()), ": ", bad_value_->text(), "; ",
                bad_value_->advice());
}

// The step is run again, and data are looked at, only then: that takes time.
void DivergenceWatch::look_at_batch(const Batch& batch, std::size_t loss, bool finite,
                                    bool applied) {
  if (finite && !applied) look_beside_scale(batch, loss);
  if (finite || losses_.not_finite_since()) return;
  if (std::exchange(bad_step_, progress_.steps() + 1) != progress_.steps() + 1)  // the first one
    bad_loss_ = built_.nodes().losses[loss].name;
  if (searches()) {
    look_for_bad_value(batch, loss);
    look_at_weights();
  }
  // A field that is not finite is not to blame for an op that does not read it.
  if (!suspects_.input.empty() || (has_bad_value() && bad_value_->input.empty())) return;
  suspects_.input =
      not_finite_input(built_.train_data(), built_.batches(), built_.own_towers(), batch);
}

bool DivergenceWatch::update_may_overflow(std::size_t loss, double rate) const {
  return !(std::abs(rate) <= safe_rates_[loss]);
}

void DivergenceWatch::note_overflow() {
  overflowed_ = true;
  changes_ = "the variables";
}

void DivergenceWatch::note_changes(const std::vector<std::string>& updated) {
  overflowed_ = false;
  if (!updated.empty())
    changes_ = cat("only the variables of '", join(updated, "' and '"), "'");
  else if (built_.moves_averages_by_batch())
    changes_ = cat(kNoVariable, " but averages of batch norm");
  else
    changes_ = kNoVariable;
}

void DivergenceWatch::look_at_step(double loss, bool finite, bool applied) {
  if (!applied) ++skipped_;
  if (finite) {
    if (skipped_since_) suspects_.large_weight.clear();  // others were restored, or only data bad
    last_finite_ = progress_.steps() + 1;
    skipped_since_.reset();
  }
  look_at_loss(loss, finite);
  look_at_first_update();
  look_at_scale();
}

// With f16, too: its loss scale mends gradients that are not finite, and no loss.
void DivergenceWatch::look_at_loss(double loss, bool finite) {
  const bool known = losses_.not_finite_since().has_value();
  losses_.note(progress_.steps() + 1, loss, finite);
  if (known || !losses_.not_finite_since()) return;
  agree_on_input();
  if (built_.options().on_nonfinite != OnNonfinite::kContinue || std::exchange(warned_, true))
    return;
  if (!warns()) return;
  log_warning("the loss is ", significant(loss), " at step ", *losses_.not_finite_since(),
              suspects_.input.empty() ? "" : cat(": ", suspects_.input),
              ", and training continues (", the_option("on_nonfinite"), ")");
}

void DivergenceWatch::agree_on_input() {
  suspects_.input = of_any_process(built_.processes(), suspects_.input);
}

void DivergenceWatch::skip_step(double loss, const std::string& what) {
  agree_on_input();
  ++skipped_;
  if (!skipped_since_) skipped_since_ = progress_.steps() + 1;
  if (warns() && !std::exchange(warned_of_skip_, true))
    log_warning(
        overflowed_ ? cat("the update of step ", progress_.steps() + 1, " overflowed")
        : std::isfinite(loss)
            ? cat("gradients of step ", progress_.steps() + 1, " ",
                  refused_gradients(has_bad_value() ? bad_value_ : std::nullopt, built_.options()))
            : cat("the loss of step ", progress_.steps() + 1, " is ", significant(loss)),
        bad_loss_.empty() ? "" : cat(", by its part '", bad_loss_, "'"),
        suspects_.input.empty() ? "" : cat(" (", suspects_.input, ")"),
        has_bad_value() ? cat(": ", bad_value_->text()) : "", ": ", what, " (",
        the_option("on_nonfinite"), "); steps that follow are counted without a warning");
  suspects_.input.clear();
  look_at_scale();
}

// A rate that is far too large shows here, before the loss is not finite at once. Updates of parts
// are not looked at: reading would wait for other processes. Towers that run free are a step ahead.
void DivergenceWatch::look_at_first_update() {
  if (saw_update_ || updates_parts(built_.options()) || !built_.nodes().tower_ops.empty()) return;
  saw_update_ = !skipped_all();
  if (!saw_update_) return;
  std::size_t bytes = 0;
  for (const Variable variable : originals_of(built_.graph().variables(kTrainableVariables))) {
    bytes += static_cast<std::size_t>(variable.shape().elements()) * size_of(variable.dtype());
    if (bytes > kMostBytesToRead) return;
    if (variable.dtype() != DType::kF32 && variable.dtype() != DType::kF64) continue;
    const double largest = largest_weight_of(built_.session(), variable);
    const std::string made = cat("the first update made '", variable.logical_name(), "' ");
    if (!std::isfinite(largest))
      suspects_.first_update =
          cat(made, significant(largest), ", though the loss before it was finite");
    else if (largest > kLargeWeight)
      suspects_.large_weight = cat(made, "as large as ", significant(largest));
    if (!std::isfinite(largest) || largest > kLargeWeight) return;
  }
}

// For a step or a test that is not finite: whether the variables before it were of any use.
void DivergenceWatch::look_at_weights() {
  const bool reads = built_.guards() || built_.options().evaluates_only;
  if (!reads || !suspects_.large_weight.empty()) return;
  const LargestWeight largest = largest_weight_of(built_);
  if (std::isfinite(largest.size) && largest.size > kUselessWeight)
    suspects_.large_weight = cat("'", largest.variable.logical_name(), "' has become as large as ",
                                 significant(largest.size));
}

// As f16 does while the loss scale is too large.
bool DivergenceWatch::skipped_all() const {
  return skipped_ - skipped_before_ > progress_.steps_of_run();
}

void DivergenceWatch::look_at_scale() {
  if ((progress_.steps_of_run() + 1) % kMostSkippedInARow != 0) return;
  const std::string warning = skips_.warning(skipped_, built_.loss_scale());
  if (!warning.empty() && built_.graph().process().rank == 0) log_warning(warning);
}

bool DivergenceWatch::warns() const {
  return built_.options().warn_of_loss && built_.graph().process().rank <= 0;
}

void DivergenceWatch::note_test_loss(double loss, const std::string& input) {
  suspects_.test_input.clear();
  if (std::isfinite(loss)) return;
  suspects_.test_input = of_any_process(built_.processes(), input);
  if (suspects_.test_input.empty()) look_at_weights();
  if (std::exchange(warned_of_test_, true) || !warns()) return;
  log_warning("the test loss is ", significant(loss), " after step ", progress_.steps(),
              suspects_.test_input.empty() ? "" : cat(": ", suspects_.test_input));
}

}  // namespace belfry
