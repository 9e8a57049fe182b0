#include "belfry/trainers/callbacks/progress.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

constexpr int kNoRank = std::numeric_limits<int>::max();  // higher than any rank

std::string metric_text(const NamedValue& metric) {
  return cat("  ", metric.name, " ", significant(metric.value));
}

// The text of the parts below this rank.
std::string visible_text(std::span<const Progress::Part> parts, int rank) {
  std::string text;
  for (const Progress::Part& part : parts)
    if (part.rank < rank) text += part.text;
  return text;
}

// The highest rank of the parts below `rank`; 0 if only the most important one is left.
int highest_rank(std::span<const Progress::Part> parts, int rank) {
  int highest = 0;
  for (const Progress::Part& part : parts)
    if (part.rank < rank) highest = std::max(highest, part.rank);
  return highest;
}

// How many epochs the run takes: fewer than it may, if --max_steps ends it before.
int epochs_of(const Trainer& trainer, int epoch, std::int64_t total_steps) {
  const std::int64_t per_epoch = trainer.built().batches().steps_per_epoch();
  const std::int64_t needed = (total_steps + per_epoch - 1) / per_epoch;
  return static_cast<int>(std::clamp<std::int64_t>(
      needed, epoch + 1, std::max(trainer.built().options().epochs, epoch + 1)));
}

}  // namespace

void Progress::setup(Trainer& trainer) {
  total_steps_ = trainer.progress().total_steps();
  if (peak_) flops_ = 2 * mean_step_multiply_adds(trainer.built());
}

void Progress::before_step(Trainer&, const StepInfo& info) { began_ = info.seconds; }

void Progress::after_step(Trainer& trainer, const StepInfo& info) {
  done_ = info.step + 1;
  epoch_ = info.epoch;
  ended_ = info.seconds;
  const bool first = first_step_ < 0;
  // The first step allocates, so its speed is not typical.
  if (first) {
    first_step_ = info.step;
    first_ended_ = ended_;
  } else {
    ++rate_steps_;
    rate_seconds_ += ended_ - began_;
  }
  const bool due = console_.due();
  if (first || due || done_ == total_steps_) show(trainer);
}

void Progress::after_epoch(Trainer& trainer, const StepInfo&) {
  if (!console_.has_status() && shown_step_ != done_) show(trainer);
}

// The speed's unit is in two parts: "ex" is short for "examples".
std::vector<Progress::Part> Progress::parts(const Trainer& trainer) const {
  std::vector<NamedValue> metrics = trainer.record().step_metrics();
  if (const std::vector<NamedValue> norms = trainer.record().gradient_norms(); !norms.empty())
    metrics.push_back(norms[0]);
  enum { kStep, kLoss, kLeft, kRate };
  const int epoch = kRate + static_cast<int>(metrics.size()), unit = epoch + 1, device = unit + 1;
  std::vector<Part> parts{
      {cat("step ", done_, "/", total_steps_), kStep},
      {cat("  epoch ", epoch_ + 1, "/", epochs_of(trainer, epoch_, total_steps_)), epoch},
      {metric_text(metrics[0]), kLoss}};
  for (std::size_t m = 1; m < metrics.size(); ++m)
    parts.push_back({metric_text(metrics[m]), kRate + static_cast<int>(m)});
  if (rate_seconds_ > 0) {
    const BatchPlan& plan = trainer.built().batches();
    const double steps = static_cast<double>(rate_steps_) / rate_seconds_;
    const double rate = steps * static_cast<double>(plan.samples_per_epoch()) /
                        static_cast<double>(plan.steps_per_epoch());
    parts.push_back({cat("  ", rounded(rate, 0), " ex"), kRate});
    parts.push_back({"amples", unit});
    parts.push_back({"/s", kRate});
    parts.push_back(
        {cat(" (", rounded(rate / static_cast<double>(plan.towers()), 0), " per device)"), device});
    if (const std::int64_t tokens = tokens_of_sample(trainer.built()); tokens > 0)
      parts.push_back(
          {cat("  ", rounded(rate * static_cast<double>(tokens), 0), " tokens/s"), unit});
    if (peak_)
      parts.push_back({cat("  ", rounded(100 * steps * flops_ / *peak_, 1), " % of peak"), unit});
  }
  const std::int64_t made = done_ - first_step_ - 1, left = total_steps_ - done_;
  if (made > 0 && left > 0) {
    const double pace = (ended_ - first_ended_) / static_cast<double>(made);
    parts.push_back({cat("  ", duration_text(pace * static_cast<double>(left)), " left"), kLeft});
  }
  return parts;
}

void Progress::show(const Trainer& trainer) {
  const std::vector<Part> all = parts(trainer);
  if (console_.has_status()) {
    const std::size_t width = console_.status_columns();
    if (std::exchange(width_, width) != width) hidden_rank_ = kNoRank;
    std::string text = visible_text(all, hidden_rank_);
    for (int next; columns_of(text) > width && (next = highest_rank(all, hidden_rank_)) > 0;) {
      hidden_rank_ = next;
      text = visible_text(all, hidden_rank_);
    }
    console_.show(text);
  } else {
    console_.show(visible_text(all, kNoRank));
  }
  shown_step_ = done_;
  rate_steps_ = 0;
  rate_seconds_ = 0;
}

}  // namespace belfry
