// What the kernels of Gather and GatherGrad know about a node, for hosts and GPUs.
#pragma once
#include "belfry/ops/gather.h"
#include "belfry/ops/kernels/axes.h"

namespace belfry {

// x is [batches, middle, rows, width], ids are [batches, count], and the gathered tensor is
// [batches, middle, count, width].
struct GatherSizes {
  GatherSizes(const GatherOptions& options, const Shape& x, const Shape& ids) {
    const std::size_t axis = from_end(options.axis, x.rank());
    const auto batch = static_cast<std::size_t>(options.batch_dims);
    batches = x.product(0, batch);
    middle = x.product(batch, axis);
    rows = x[axis];
    width = x.product(axis + 1, x.rank());
    count = ids.product(batch, ids.rank());
  }

  std::int64_t batches, middle, rows, width, count;
};

}  // namespace belfry
