// Attention whose weights are dropped at random, for layers of attention.
#pragma once
#include "belfry/ops/attention/attention.h"

namespace belfry {

// attention() with dropout() of its weights, of existing ops: there is a matrix [batch, heads,
// queries, keys]. The times must be known.
Output attention_with_dropout(Output q, Output k, Output v, const AttentionOptions& options,
                              const AttentionInputs& inputs, double rate, SourceLine site);

}  // namespace belfry
