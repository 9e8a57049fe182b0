// How much a node computes: what Op::work states, for reports and for the choice of shards.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "belfry/framework/graph/node.h"

namespace belfry {

struct OpWork {
  // Of convolutions, matrix products, attention and recurrent layers, forward and backward: half of
  // the FLOPs that torch.utils.flop_counter counts. As there, attention counts all pairs of
  // positions, masked ones included.
  double multiply_adds = 0;
  // Elements of weights that a launch reads again, however few rows it has: a recurrence reads its
  // weights once for each time, so all times after the first count.
  double rereads = 0;
};

// A node with the types that its tensors have. Plans may pack weights, so the shapes of these are
// those of the node.
struct WorkContext {
  const Node& node;
  std::span<const TensorType> inputs, outputs;
};

// Products whose op is WorkSplit::kRows are computed by so many rows, and parts of them begin at
// multiples of that; if it is all rows, the product is not divided. Last bits depend on the rows
// that a library computes together, so the shape alone decides it.
std::int64_t rows_of_product_part(const Shape& product);

// The elements in the dimensions from `first` on. Unknown sizes and empty dimensions count as 1.
double work_elements(const Shape& shape, std::size_t first = 0);

// The work of a node with tensors of these types; none if its op states none.
OpWork work_of(const Node& node, std::span<const TensorType> inputs,
               std::span<const TensorType> outputs);
// With the types of the graph.
OpWork work_of(const Node& node);

}  // namespace belfry
