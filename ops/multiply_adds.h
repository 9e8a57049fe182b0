// The amount of a node's arithmetic.
#pragma once
#include "belfry/framework/graph/node.h"

namespace belfry {

// Multiply-adds of convolutions, products of matrices and attention, forward and backward; 0 for
// all other ops. Half of what torch.utils.flop_counter counts. As there, attention counts all pairs
// of positions, even masked ones. Sizes unknown at build time count as 1.
double multiply_adds(const Node& node);

}  // namespace belfry
