// EditDistance: how many labels of a sequence are wrong (Levenshtein 1966), for readers of text,
// speech and other sequences.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// a [n, ta], b [n, tb], and their lengths [n], all i32 or i64 -> i32 [n]: the fewest labels to
// insert, remove or replace that make of the first a_lengths[i] labels of row i of a the first
// b_lengths[i] labels of row i of b. Labels after the lengths are not read. Where a is what a
// model has read, and b the truth, metrics::ratio(edit_distance(...), b_lengths) is the error rate
// of labels. On GPUs the host computes it.
//
// A run fails with InvalidArgument, naming the op, row and value, if a length is below 0 or exceeds
// its dimension.
Output edit_distance(Output a, Output a_lengths, Output b, Output b_lengths, At at = {});

// The same; all inputs are i64.
extern const Op kEditDistance;

}  // namespace belfry
