// What a loss function makes of the losses of all elements.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Losses are means over samples, so that they do not depend on how devices and shards divide the
// batch (docs/numerics.md). For the sum over a batch take reduce_sum of kNone; it depends on that.
enum class LossReduction : std::uint8_t {
  kMean,       // over all elements: a scalar
  kBatchMean,  // the sum over the elements of a sample, and the mean over samples, which dimension
               // 0 counts: a scalar
  kNone,       // the losses of all elements
};

// `losses` [n, ...] reduced.
Output reduce_losses(Output losses, LossReduction reduction, At at = {});

// Throws InvalidArgument, naming `loss`, the line and both shapes, unless predictions and targets
// have one shape and type. Broadcasting, as of [n,1] and [n] to [n,n], is refused: it compares each
// prediction with the targets of all samples.
void require_same_shapes(const char* loss, Output predictions, Output targets, SourceLine site);

}  // namespace belfry
