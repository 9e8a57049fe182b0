// Buckets: gradients are combined a few MiB at a time, while others are still being computed.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Variables [begin, end) of a table.
using Bucket = std::pair<int, int>;

// Cuts from the last variable, whose gradient is ready first, to the first one. A bucket holds as
// many variables as fit in `bytes` per tower. A larger variable, or one of unknown shape, has its
// own bucket. All tensors of a bucket have one dtype.
std::vector<Bucket> cut_buckets(const GradientTable& grads, std::int64_t bytes);
std::int64_t bucket_bytes(double megabytes);

// The results of a strategy, for each bucket of at most `megabytes` MiB as soon as its last
// gradient exists; 0: for the whole table. A bucket is one node if the strategy can build one
// (Strategy::in_one_node), else the strategy's nodes for these variables. Nothing is copied. Throws
// InvalidArgument unless megabytes is finite and at least 0.
OutputRows combine_in_buckets(const GradientTable& grads, const Strategy& strategy,
                              Reduction reduction, double megabytes);

}  // namespace belfry
