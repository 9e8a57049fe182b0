// A strategy applied to chunks of tensors.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// Applies `inner` to a table whose tensors are `chunks` consecutive pieces of each gradient, cut
// and joined on the towers' devices. Short gradients have fewer pieces. Changes no result of a
// canonical strategy. Throws InvalidArgument if chunks < 1, and when it is used for gradients whose
// shape is not fully known.
std::unique_ptr<Strategy> chunked(std::unique_ptr<Strategy> inner, int chunks);

}  // namespace belfry
