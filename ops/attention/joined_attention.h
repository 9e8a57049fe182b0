// Attention of queries, keys and values that are columns of one tensor, as one product makes them.
// Plans make these nodes on GPUs (passes/fuse.cc), without the copies that move them apart and
// their gradients together; the bits are those of the separate nodes.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// [batch, time, (heads + 2 kv_heads) * head_dim], and perhaps a mask and lengths -> y and
// logarithms of sums, as kAttention. Replaces Split, Attention.
extern const Op kJoinedAttention;
// dy, queries with keys and values, y, logarithms of sums, and the mask and lengths if given -> the
// gradients of queries, keys and values in one tensor, and that of a floating-point mask. Replaces
// Split, AttentionGrad, Concat.
extern const Op kJoinedAttentionGrad;

// Op::fuse of the ops in attention.h.
void fuse_attention(Surroundings& around);
void fuse_attention_gradient(Surroundings& around);

}  // namespace belfry
