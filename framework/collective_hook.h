// The seam under every collective: where tests inject delays and failures.
#pragma once
#include <functional>

#include "belfry/framework/kernel.h"

namespace belfry {

// Called by every launch of a collective, before it combines the elements of `range`. May throw,
// which the caller of run sees. An empty hook removes it. Install while nothing runs.
using CollectiveHook = std::function<void(const Node& collective, Range range)>;
void set_collective_hook(CollectiveHook hook);

// For kernels of collectives: calls the hook, if there is one.
void call_collective_hook(const Node& collective, Range range);

}  // namespace belfry
