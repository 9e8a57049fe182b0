// Buckets: gradients are combined a few MiB at a time, while others are still being computed.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Variables [begin, end) of a table.
using Bucket = std::pair<int, int>;

// From the last variable, whose gradient exists first, to the first one: as many as have at most
// `bytes` per tower together. A larger one, and one of unknown shape, has a bucket of its own. All
// tensors of a bucket have one dtype.
std::vector<Bucket> cut_buckets(const GradientTable& grads, std::int64_t bytes);

// `inner` applied to each bucket of at most `megabytes` MiB as soon as its last gradient exists. It
// is one node, if the strategy has such (Strategy::in_one_node), else its own nodes for these
// variables. Nothing is copied, and no element is summed otherwise than without buckets. Throws
// InvalidArgument unless megabytes is finite and above 0.
std::unique_ptr<Strategy> bucketed(std::unique_ptr<Strategy> inner, double megabytes);
std::int64_t bucket_bytes(double megabytes);

}  // namespace belfry
