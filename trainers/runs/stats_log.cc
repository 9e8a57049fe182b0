#include "belfry/trainers/runs/stats_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/log.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  std::array<char, 40> text;
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

void add(std::string& line, std::string_view name, double value) {
  line += cat(",", Json(name).str(), ":", number_text(value));
}

std::string line_of(std::int64_t steps, int epoch) {
  return cat("{\"step\":", steps, ",\"epoch\":", epoch);
}

}  // namespace

void StatsLog::go_on(std::uint64_t bytes) {
  if (bytes > 0) {
    const std::uint64_t there = files_.exists(path_) ? files_.open(path_)->size() : 0;
    if (there < bytes)
      log_warning(path_, " has ", there, " bytes where the checkpoint has noted ", bytes,
                  "; the lines of some steps are lost");
    bytes = std::min(bytes, there);
  }
  file_ = files_.extend(path_, bytes);
  bytes_ = bytes;
}

void StatsLog::sync() {
  if (file_) file_->sync();
}

void StatsLog::write(std::string line) {
  line += "}\n";
  waiting_ += line;
  try {
    if (!file_) go_on(bytes_);
    file_->append(std::as_bytes(std::span(waiting_)));
    bytes_ += waiting_.size();
    waiting_.clear();
  } catch (const IoError& error) {
    // Half of it may be there: the next line begins behind the last whole one.
    file_.reset();
    if (first_time(cat("no stats: ", path_)))
      log_warning(error.what(), "; the lines of the next steps wait until it can be written");
  }
}

void StatsLog::after_step(Trainer& trainer, const StepInfo& info) {
  std::string line = line_of(info.step + 1, info.epoch + 1);
  for (const NamedValue& metric : trainer.step_metrics()) add(line, metric.name, metric.value);
  add(line, "learning_rate", trainer.options().optimizer.rate().at(info));
  add(line, "examples_per_second", trainer.step_examples_per_second());
  add(line, "seconds", info.seconds);
  write(std::move(line));
}

void StatsLog::after_evaluation(Trainer& trainer, const StepInfo& info) {
  std::string line = line_of(info.step, info.epoch + 1);
  for (const NamedValue& metric : trainer.set_metrics()) add(line, metric.name, metric.value);
  write(std::move(line));
}

}  // namespace belfry
