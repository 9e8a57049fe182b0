#include "belfry/trainers/util/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Values are held within this bound, so that differences stay finite.
constexpr double kFarthest = 1e300;
constexpr double kNearly = 1e-9;  // as 0.3 / 0.1 is less than 3

struct Unit {
  double from, size;
  const char* sign;
};
constexpr std::array<Unit, 3> kUnits = {{{1e10, 1e9, "G"}, {1e7, 1e6, "M"}, {1e4, 1e3, "k"}}};
constexpr double kMostWithUnit = 1e13, kLeastPlain = 1e-4;

// Writes the value with as many digits as tell ticks `step` apart from each other.
std::string number(double value, double step) {
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - kNearly)), 0, 12);
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// The text of a tick. Ticks are `step` apart, and none is larger than `size`.
std::string tick_text(double value, double step, double size) {
  if (value == 0) value = 0;  // not -0
  if (size < kMostWithUnit)
    for (const auto& [from, unit, sign] : kUnits)
      if (size >= from) return value == 0 ? "0" : number(value / unit, step / unit) + sign;
  return size < kMostWithUnit && step >= kLeastPlain ? number(value, step) : short_number(value);
}

}  // namespace

double round_step(double length, int most) {
  double step = std::pow(10, std::floor(std::log10(length / most)));
  for (const double factor : {2.0, 2.5, 2.0})
    if (length / step > most * (1 + kNearly)) step *= factor;
  return step;
}

Axis::Axis(double least, double most, Scale scale, double begin, double end)
    : scale_(scale),
      least_(std::clamp(least, -kFarthest, kFarthest)),
      most_(std::clamp(most, -kFarthest, kFarthest)),
      begin_(begin),
      end_(end) {
  constexpr double kShortest = 1e-9;  // relative to the values
  if (scale_ == Scale::kLog) {
    least_ = std::max(least_, 1 / kFarthest);
    if (most_ >= least_ * (1 + kShortest)) return;
    most_ = least_ * 2;
    least_ /= 2;
    return;
  }
  const double size = std::max(std::abs(least_), std::abs(most_));
  if (most_ - least_ > std::max(kShortest * size, 1 / kFarthest)) return;
  const double more = size > 0 ? size / 10 : 1;
  least_ -= more;
  most_ += more;
}

double Axis::place(double value) const { return scale_ == Scale::kLog ? std::log10(value) : value; }

double Axis::at(double value) const {
  const double inside = value > least_ ? std::min(value, most_) : least_;
  const double part = (place(inside) - place(least_)) / (place(most_) - place(least_));
  return begin_ + part * (end_ - begin_);
}

std::vector<Axis::Tick> Axis::linear_ticks(int most) const {
  const double step = round_step(length(), most);
  const double first = std::ceil(least_ / step - kNearly),
               last = std::floor(most_ / step + kNearly);
  const double size = std::max(std::abs(least_), std::abs(most_));
  std::vector<Tick> ticks;
  for (int i = 0; i <= most && first + i <= last; ++i) {
    const double value = (first + i) * step;
    ticks.push_back({value, tick_text(value, step, size)});
  }
  return ticks;
}

std::vector<Axis::Tick> Axis::log_ticks(int most) const {
  const int first = static_cast<int>(std::floor(std::log10(least_)));
  const int last = static_cast<int>(std::floor(std::log10(most_)));
  const int stride = last - first <= most ? 1 : static_cast<int>(round_step(last - first, most));
  const bool is_short = last - first < 3;
  std::vector<Tick> ticks;
  for (int decade = first - first % stride; decade <= last; decade += stride)
    for (const int factor : {1, 2, 5}) {
      const double value = factor * std::pow(10, decade);
      if ((factor == 1 || is_short) && value >= least_ && value <= most_)
        ticks.push_back({value, tick_text(value, value, value)});
    }
  return ticks;
}

std::vector<Axis::Tick> Axis::ticks(int most) const {
  if (scale_ == Scale::kLog)
    if (std::vector<Tick> found = log_ticks(most); found.size() > 1) return found;
  return linear_ticks(most);
}

}  // namespace belfry
