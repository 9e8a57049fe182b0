#include "belfry/trainers/core/loss_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

// A loss has grown if it is kGrowth times the recent losses, or kGrowthFromFirst times the first.
constexpr double kGrowth = 4, kGrowthFromFirst = 10;
constexpr double kLossMemory = 0.9;  // of the moving mean, per step
constexpr double kLeastScale = 0x1p-126;
// If a quarter of the updates in this many calls were skipped, that is too many.
constexpr std::size_t kCallsOfShare = 5;
constexpr std::int64_t kMostSkippedShare = 4;

}  // namespace

void LossWatch::note(std::int64_t step, double loss, bool finite) {
  steps_ = step;
  if (!finite || !std::isfinite(loss)) {
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

std::string SkipWatch::warning(std::int64_t all_skipped, std::optional<double> scale) {
  recent_.push_back(all_skipped - skipped_);
  skipped_ = all_skipped;
  if (recent_.size() > kCallsOfShare) recent_.pop_front();
  const std::int64_t steps = std::ssize(recent_) * kMostSkippedInARow;
  const std::int64_t skipped = std::reduce(recent_.begin(), recent_.end());
  const bool all = recent_.back() >= kMostSkippedInARow;
  const bool many = recent_.size() == kCallsOfShare && kMostSkippedShare * skipped >= steps;
  const int level = !scale || *scale > kLeastScale ? 1 : 2;
  if ((!all && !many) || level <= said_) return "";
  said_ = level;
  const std::string which = all ? cat("the last ", recent_.back(), " updates")
                                : cat(skipped, " of the last ", steps, " updates");
  if (!scale)
    return cat(which,
               " were skipped, as losses or gradients were not finite; if that continues, the ",
               "model learns ", all ? "nothing" : "little", ": look for NaN in the data, and for ",
               "divisions, logarithms and square roots in the model");
  const std::string advice = cat(
      "look for NaN in the data, and for divisions, logarithms and square roots in the model, or "
      "use bf16, whose range is that of f32 (",
      the_option("precision"), ")");
  if (level == 1)
    return cat("f16 skipped ", which, ", as gradients were not finite, and the loss scale is ",
               significant(*scale), "; if that continues, the model learns ",
               all ? "nothing: " : "little: ", advice);
  return cat(
      "f16 still skips ", all ? "all updates" : which, ", and the loss scale is ",
      significant(*scale),
      ", the smallest there is: gradients are not finite at any scale, and the model learns ",
      all ? "nothing; " : "little; ", advice);
}

}  // namespace belfry
