// The seam under every collective: where tests inject delays and failures.
#pragma once
#include <functional>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// Kernels of collectives call the hook before they combine the elements of `range`: once per
// launch, or once per part if workers share the launch. A FusedUpdate calls it for every
// cache-sized chunk, with a range that counts from the start of its tensor. It does not call it for
// tensors that no update reads. The hook may throw, and the caller of run sees the error. An empty
// hook removes it. Install it while nothing runs.
using CollectiveHook = std::function<void(const Node& collective, WorkRange range)>;
void set_collective_hook(CollectiveHook hook);

// For kernels of collectives: calls the hook, if there is one.
void call_collective_hook(const Node& collective, WorkRange range);

}  // namespace belfry
