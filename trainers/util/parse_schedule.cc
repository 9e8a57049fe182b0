// Schedules as users write them: NAME, NAME:LIST, NAME:LIST@LAST.
#include <cmath>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {
namespace {

// The parts of "NAME:LIST@LAST".
struct ScheduleParts {
  std::string_view name, list;
  std::optional<std::string_view> last;
};

struct ScheduleKind {
  std::string name, form;  // for errors
  RateSchedule (*make)(const ScheduleParts& parts);
};

[[noreturn]] void refuse_part(std::string_view part, const std::string& why) {
  throw InvalidArgument(cat("'", shown(part), "' ", why));
}

// The finite number >= 0 that the text is; none for other texts.
std::optional<double> read_magnitude(std::string_view text) {
  double value = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool good = error == std::errc() && stop == end && std::isfinite(value) && value >= 0;
  return good ? std::optional(value) : std::nullopt;
}

double parse_rate(std::string_view text, const char* what) {
  const std::optional<double> value = read_magnitude(text);
  if (!value) refuse_part(text, cat("is no ", what, ": a finite number >= 0"));
  return *value;
}

TrainingTime parse_time(std::string_view text) {
  const bool in_steps = text.ends_with('s');
  const std::optional<double> count =
      read_magnitude(text.substr(0, text.size() - (in_steps ? 1 : 0)));
  if (!count)
    refuse_part(text, "is no time: a number of epochs such as 30, or of steps such as 500s");
  return {*count, in_steps};
}

// The items between commas. There must be at least one.
std::vector<std::string_view> items_of(const ScheduleParts& parts, const std::string& example) {
  if (parts.list.empty()) refuse_part(parts.name, cat("needs times, as in ", example));
  return split(parts.list, ',');
}

RateSchedule make_constant(const ScheduleParts& parts) {
  if (!parts.list.empty() || parts.last)
    refuse_part(parts.list, "stands behind 'constant', which takes nothing");
  return {};
}

RateSchedule make_step(const ScheduleParts& parts) {
  std::vector<TrainingTime> times;
  for (const std::string_view time : items_of(parts, "step:30,60,80@0.1"))
    times.push_back(parse_time(time));
  return step_schedule(std::move(times), parts.last ? parse_rate(*parts.last, "factor") : 0.1);
}

using Move = RateSchedule (*)(double to, std::optional<TrainingTime> until);

RateSchedule make_move(const ScheduleParts& parts, Move move) {
  const double to = parts.list.empty() && !parts.last ? 0 : parse_rate(parts.list, "rate");
  return move(to, parts.last ? std::optional(parse_time(*parts.last)) : std::nullopt);
}

RateSchedule make_linear(const ScheduleParts& parts) { return make_move(parts, linear_schedule); }
RateSchedule make_cosine(const ScheduleParts& parts) { return make_move(parts, cosine_schedule); }

std::vector<RatePoint> parse_points(const ScheduleParts& parts) {
  if (parts.last) refuse_part(*parts.last, "stands behind an @, which only other schedules take");
  std::vector<RatePoint> points;
  for (const std::string_view point : items_of(parts, cat(parts.name, ":30=0.01,60=0.001"))) {
    const std::size_t equals = point.find('=');
    if (equals == point.npos) refuse_part(point, "is no TIME=RATE such as 30=0.01");
    points.push_back(
        {parse_time(point.substr(0, equals)), parse_rate(point.substr(equals + 1), "rate")});
  }
  return points;
}

RateSchedule make_piecewise(const ScheduleParts& parts) {
  return piecewise_schedule(parse_points(parts));
}
RateSchedule make_interpolated(const ScheduleParts& parts) {
  return interpolated_schedule(parse_points(parts));
}

const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> kinds{
      {"constant", "constant", make_constant},
      {"step", "step:TIMES@FACTOR", make_step},
      {"linear", "linear:TO@UNTIL", make_linear},
      {"cosine", "cosine:TO@UNTIL", make_cosine},
      {"piecewise", "piecewise:TIME=RATE,...", make_piecewise},
      {"interpolate", "interpolate:TIME=RATE,...", make_interpolated}};
  return kinds;
}

ScheduleParts parts_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return {.name = text, .list = {}, .last = {}};
  const std::string_view rest = text.substr(colon + 1);
  const std::size_t at = rest.find('@');
  ScheduleParts parts{.name = text.substr(0, colon), .list = rest.substr(0, at), .last = {}};
  if (at != rest.npos) parts.last = rest.substr(at + 1);
  return parts;
}

}  // namespace

RateSchedule parse_schedule(std::string_view text) {
  const ScheduleParts parts = parts_of(text);
  std::vector<std::string> names, forms;
  for (const ScheduleKind& kind : schedule_kinds()) {
    if (kind.name == parts.name) return kind.make(parts);
    names.push_back(kind.name);
    forms.push_back(kind.form);
  }
  throw InvalidArgument(cat("no schedule is called '", shown(parts.name), "'",
                            did_you_mean(parts.name, names), " (there are ", join(forms), ")"));
}

std::string schedule_help() {
  return "constant | step:30,60,80@0.1 (times 0.1 after each of these epochs) | linear:TO@UNTIL | "
         "cosine:TO@UNTIL (to this rate at that epoch; without them to 0 at the end) | "
         "piecewise:30=0.01,60=0.001 | interpolate:0=0.1,30=0.01; a time such as 500s is in steps";
}

}  // namespace belfry
