// BroadcastTo: a tensor repeated to the shape of another.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kBroadcastTo;
extern const Op kBroadcastAlong;

// x repeated to the run-time shape of `like`, by numpy's rules.
Output broadcast_to(Output x, Output like, At at = {});

// Repeated elements hold the value, or an equal share of it (the value divided by their number).
enum class BroadcastValues { kRepeat, kShare };

struct BroadcastAlongOptions {
  std::vector<int> axes;
  BroadcastValues values = BroadcastValues::kRepeat;

  // The shape of the repeated tensor, with 1 at the axes, and how often each element is repeated.
  Shape before(Shape like) const;
  double repetitions(const Shape& like) const;
};

// broadcast_to() where x lacks the dimensions `axes` (not negative) of `like`, or has 1 there: the
// gradient of a reduction over them.
Output broadcast_along(Output x, Output like, std::vector<int> axes, BroadcastValues values,
                       At at = {});

}  // namespace belfry
