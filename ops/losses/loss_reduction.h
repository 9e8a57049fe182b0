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

// Casts predictions and targets of 16 bits to f32, in which losses are computed: in mixed precision
// predictions may be bf16 and targets f32. Then throws InvalidArgument, naming `loss`, the line and
// both shapes, unless they have one shape and type. Broadcasting, as of [n,1] and [n] to [n,n], is
// refused: it compares each prediction with the targets of all samples.
void widen_alike(const char* loss, Output& predictions, Output& targets, SourceLine site);
// A tensor of 16 bits in f32; others as they are.
Output widened(Output x, SourceLine site);

}  // namespace belfry
