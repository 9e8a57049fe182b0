#include "belfry/trainers/core/loss_watch.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// A loss has grown if it is so many times what losses were shortly before, or the first.
constexpr double kGrowth = 4, kGrowthFromFirst = 10;
constexpr double kLossMemory = 0.9;  // of the moving mean, per step
constexpr double kLeastScale = 0x1p-126;

}  // namespace

void LossWatch::note(std::int64_t step, double loss) {
  if (!std::isfinite(loss)) {
    if (!since_) since_ = step;
    return;
  }
  since_.reset();
  if (!first_) first_ = loss;
  if (last_) usual_ = usual_ ? kLossMemory * *usual_ + (1 - kLossMemory) * *last_ : *last_;
  last_ = loss;
  last_step_ = step;
}

std::string LossWatch::growth() const {
  if (!usual_) return "";
  const auto grew = [this](double before, double times) {
    return *last_ > before && std::abs(*last_) > times * std::abs(before);
  };
  if (!grew(*usual_, kGrowth) && !grew(*first_, kGrowthFromFirst)) return "";
  return cat("the loss grew from ", significant(std::min(*usual_, *first_)), " to ",
             significant(*last_), " in step ", last_step_);
}

std::string SkipWatch::warning(const LossScaleState& state) {
  const std::int64_t skipped = state.skipped_steps - skipped_;
  skipped_ = state.skipped_steps;
  const int level = state.scale > kLeastScale ? 1 : 2;
  if (skipped < kMostSkippedInARow || level <= said_) return "";
  said_ = level;
  const std::string advice = cat(
      "look for NaN in the data, and for divisions, logarithms and square roots in the model, or "
      "use bf16, whose range is that of f32 (",
      the_option("precision"), ")");
  if (level == 1)
    return cat("f16 skipped the last ", skipped,
               " updates, as gradients were not finite, and the loss scale is ",
               significant(state.scale), "; if that goes on, the model learns nothing: ", advice);
  return cat("f16 still skips all updates, and the loss scale is ", significant(state.scale),
             ", the smallest there is: gradients are not finite at any scale, and the model learns "
             "nothing; ",
             advice);
}

}  // namespace belfry
