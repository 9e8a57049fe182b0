// ring: fragments of every tensor travel around the towers, once to be summed, once to be shared.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// The tower from which this tower takes fragments: of three towers, 2, 0 and 1.
int ring_predecessor(int tower, int towers);
// The place of a tower in the ring of chunk s of n: its own, rotated back by s * max(1, K / n). So
// fragments of chunks move to other towers, and each tower keeps its predecessor.
int ring_rank(int tower, int towers, int chunk = 0, int chunks = 1);
// The fragment, of K in a chunk, that the tower of this rank takes at a tick in [0, K - 1). In the
// reduce phase it adds its own to the fragment; in the gather phase it keeps the finished one.
int ring_reduce_fragment(int rank, int towers, int tick);
int ring_gather_fragment(int rank, int towers, int tick);

// Each tensor is cut into K fragments per chunk, of nearly equal size. At each of K - 1 ticks every
// tower takes one fragment of each chunk from its predecessor and adds its own (predecessor's +
// own); finished sums, divided for a mean, go around in another K - 1 ticks. Rules and indices are
// those of tf_cnn_benchmarks' xring, but no padding is sent: short tensors have fewer fragments.
// There may be more chunks than towers, as `ring#n` of a spec counts chunks per tensor.
//
// Not canonical: the order of additions differs from fragment to fragment. Works for any K and
// shape. Throws InvalidArgument if the shape of a gradient is not fully known.
GradientTable allreduce_ring(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                             At at = {});

}  // namespace belfry
