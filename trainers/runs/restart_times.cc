#include "belfry/trainers/runs/restart_times.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <locale>
#include <optional>
#include <sstream>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/launcher.h"

namespace belfry {
namespace {
namespace restart_times {

std::string seconds_text(double seconds) {
  constexpr std::size_t kMost = 32;
  char text[kMost];
  std::snprintf(text, kMost, "%.3f", seconds);
  return text;
}

std::optional<RestartMark> read(const char* text) {
  RestartMark mark;
  std::istringstream words(text ? text : "");
  words.imbue(std::locale::classic());
  if (words >> mark.number >> mark.detection >> mark.started_at) return mark;
  return {};
}

}  // namespace restart_times
}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string RestartMark::str() const {
  return cat(number, " ", restart_times::seconds_text(detection), " ",
             restart_times::seconds_text(started_at));
}

std::int64_t newest_step_in(FileSystem& files, const std::string& stats_file) try {
  constexpr std::uint64_t kMost = 1 << 20;  // lines are shorter
  const auto file = files.open(stats_file);
  const std::uint64_t bytes = std::min(file->size(), kMost);
  file->seek(file->size() - bytes);
  std::string text(bytes, '\0');
  text.resize(file->read(std::as_writable_bytes(std::span(text))));
  const std::vector<std::string_view> lines = split(text, '\n');
  // The text after the last line break is no whole line.
  for (auto line = lines.rbegin() + 1; line < lines.rend(); ++line) try {
      return JsonValue::parse(*line).at("step").integer();
    } catch (const InvalidArgument&) {  // a line that the machine lost
    }
  return 0;
} catch (const Error&) {
  return 0;
}

std::shared_ptr<RestartTimes> RestartTimes::of_this_start(Console& console) {
  const auto mark = restart_times::read(environment_variable(RestartMark::kVariable));
  return mark ? std::make_shared<RestartTimes>(*mark, console) : nullptr;
}

RestartTimes::RestartTimes(const RestartMark& mark, Console& console)
    : mark_(mark), console_(console), met_at_(seconds_since_1970()) {}

void RestartTimes::before_step(Trainer&, const StepInfo& info) {
  if (resumed_at_ > 0) return;
  resumed_at_ = seconds_since_1970();
  resumed_from_ = info.step;
}

void RestartTimes::after_step(Trainer&, const StepInfo& info) {
  if (again_ >= 0 || info.step + 1 < lost_) return;
  again_ = seconds_since_1970() - resumed_at_;
  const std::int64_t steps = recomputed_steps();
  using restart_times::seconds_text;
  console_.line(cat("restart ", mark_.number, ": detection ", seconds_text(mark_.detection),
                    " s, meeting ", seconds_text(met_at_ - mark_.started_at), " s, restore ",
                    seconds_text(resumed_at_ - met_at_), " s, recomputation ", seconds_text(again_),
                    " s (", steps, steps == 1 ? " step)" : " steps)"));
}

std::int64_t RestartTimes::recomputed_steps() const {
  return std::max(lost_ - resumed_from_, std::int64_t{0});
}

JsonValue RestartTimes::json() const {
  if (again_ < 0) return {};
  return JsonValue::object()
      .set("number", mark_.number)
      .set("detection_seconds", mark_.detection)
      .set("meeting_seconds", met_at_ - mark_.started_at)
      .set("restore_seconds", resumed_at_ - met_at_)
      .set("recomputed_steps", recomputed_steps())
      .set("recomputation_seconds", again_);
}

}  // namespace belfry
