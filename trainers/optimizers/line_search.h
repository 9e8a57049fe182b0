// A line search for the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6).
#pragma once
#include <functional>

namespace belfry {

// A point on the line, `step` times the direction away from its beginning.
struct LinePoint {
  double step = 0;
  double loss = 0;
  double slope = 0;  // the derivative of the loss by `step`
};

struct LineSearchOptions {
  double first_step = 1;
  // A step must lower the loss by `decrease` * step * slope at the beginning, and make the slope at
  // most `curvature` times as steep as there. Between 0 and 1; `decrease` is the smaller one.
  double decrease = 1e-4, curvature = 0.6;
  // Losses are known to this part of the first one: so much a step may add to it. Near a minimum
  // rounding hides the decrease of the loss, and only the slope says where to go.
  double rounding = 0;
  int most_trials = 20;
};

// Returns a step that meets both conditions. If none is found in `most_trials`, the last one that
// lowered the loss enough; its `step` is 0 if there was none. `at` gives the point of a step. A
// loss or slope that is not finite counts as too high, so the search returns to shorter steps.
// Throws InvalidArgument unless the slope at the beginning (`from`, of step 0) is below 0.
LinePoint search_line(const LinePoint& from, const std::function<LinePoint(double step)>& at,
                      const LineSearchOptions& options);

}  // namespace belfry
