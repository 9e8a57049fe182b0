// The seam under every collective: where tests inject delays and failures.
#pragma once
#include <functional>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Called by kernels of collectives before they combine the elements of `range`: once per launch, or
// per part of one that workers share, with the range of that. In a FusedUpdate it is called for
// every part that goes through the cache at once, with a range that counts from the start of its
// tensor; not at all for tensors that no update reads. May throw, which the caller of run sees. An
// empty hook removes it. Install while nothing runs.
using CollectiveHook = std::function<void(const Node& collective, WorkRange range)>;
void set_collective_hook(CollectiveHook hook);

// For kernels of collectives: calls the hook, if there is one.
void call_collective_hook(const Node& collective, WorkRange range);

}  // namespace belfry
