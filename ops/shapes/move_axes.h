// Axes in another order, by transpose. Axes may be negative (from the last).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Exchanges two axes.
Output swapaxes(Output x, int first, int second, At at = {});

// Axis `from` becomes axis `to` of the result; the others keep their order.
Output moveaxis(Output x, int from, int to, At at = {});

}  // namespace belfry
