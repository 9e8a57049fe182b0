// A strategy applied to chunks of tensors.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// `inner` applied to a table whose tensors are `chunks` consecutive pieces of each gradient, cut
// and joined on the towers' devices; shorter gradients have fewer. Changes no result of a canonical
// strategy. Throws InvalidArgument if chunks < 1, and, when used, for gradients whose shape is not
// fully known.
std::unique_ptr<Strategy> chunked(std::unique_ptr<Strategy> inner, int chunks);

}  // namespace belfry
