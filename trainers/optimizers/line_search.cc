#include "belfry/trainers/optimizers/line_search.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {
namespace line_search {

// The least and the most by which a trial lengthens the last part of the line.
constexpr double kLeastGrowth = 1.1, kMostGrowth = 10;
// A trial in an interval keeps this part of it away from both ends.
constexpr double kMargin = 0.1;

// Where the cubic through two points with their slopes has its minimum; NaN if it has none.
double cubic_minimum(const LinePoint& a, const LinePoint& b) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step);
  const double unit = std::max({std::abs(d1), std::abs(a.slope), std::abs(b.slope)});
  const double root = std::sqrt(d1 / unit * (d1 / unit) - a.slope / unit * (b.slope / unit));
  const double d2 = std::copysign(unit * root, b.step - a.step);
  return b.step - (b.step - a.step) * (b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2);
}

class Search {
 public:
  Search(const LinePoint& from, const std::function<LinePoint(double)>& at,
         const LineSearchOptions& options)
      : from_(from), at_(at), options_(options) {}

  // Lengthens the step until it meets the conditions, or an interval has such a step in it.
  LinePoint run() {
    LinePoint before = from_;
    for (double step = options_.first_step; trials_ < options_.most_trials;) {
      const LinePoint point = trial(step);
      // Steps too short to change the loss at all have equal ones.
      if (too_high(point) || (before.step > 0 && point.loss > before.loss))
        return zoom(before, point);
      if (flat(point)) return point;
      if (point.slope >= 0) return zoom(point, before);
      step = longer(before, point);
      before = point;
    }
    return before;
  }

 private:
  // Narrows an interval with such a step in it. `low` is the end with the lowest loss, and the loss
  // falls from there to `high`.
  LinePoint zoom(LinePoint low, LinePoint high) {
    while (trials_ < options_.most_trials) {
      const LinePoint point = trial(between(low, high));
      if (too_high(point) || point.loss >= low.loss + allowance(low)) {
        high = point;
        continue;
      }
      if (flat(point)) return point;
      if (point.slope * (high.step - low.step) >= 0) high = low;
      low = point;
    }
    return low;
  }

  LinePoint trial(double step) {
    ++trials_;
    LinePoint point = at_(step);
    if (!std::isfinite(point.loss) || !std::isfinite(point.slope)) point.loss = INFINITY;
    return point;
  }
  double rounding() const { return options_.rounding * std::abs(from_.loss); }
  // The first point has no rounding of its own that could hide a decrease.
  double allowance(const LinePoint& low) const { return low.step == 0 ? rounding() : 0; }
  bool too_high(const LinePoint& point) const {
    return !(point.loss <= from_.loss + options_.decrease * point.step * from_.slope + rounding());
  }
  bool flat(const LinePoint& point) const {
    return std::abs(point.slope) <= -options_.curvature * from_.slope;
  }

  static double longer(const LinePoint& before, const LinePoint& last) {
    const double length = last.step - before.step, most = last.step + kMostGrowth * length;
    const double best = cubic_minimum(before, last);
    return best > last.step ? std::clamp(best, last.step + kLeastGrowth * length, most) : most;
  }

  static double between(const LinePoint& low, const LinePoint& high) {
    const double begin = std::min(low.step, high.step), length = std::abs(high.step - low.step);
    const double best = std::isfinite(high.loss) ? cubic_minimum(low, high) : NAN;
    // Next to what is not finite the interval may be far too long.
    if (low.step == 0 && !std::isfinite(high.loss)) return kMargin * length;
    if (!std::isfinite(best)) return begin + length / 2;
    return std::clamp(best, begin + kMargin * length, begin + (1 - kMargin) * length);
  }

  const LinePoint& from_;
  const std::function<LinePoint(double)>& at_;
  const LineSearchOptions& options_;
  int trials_ = 0;
};

}  // namespace line_search
}  // namespace

LinePoint search_line(const LinePoint& from, const std::function<LinePoint(double)>& at,
                      const LineSearchOptions& options) {
  require(from.slope < 0, "search_line: the slope at the beginning is ", from.slope,
          ", but must be below 0; search along a direction in which the loss falls");
  return line_search::Search(from, at, options).run();
}

}  // namespace belfry
