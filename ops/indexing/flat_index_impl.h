// What the kernels of FlatIndex know about a node, for hosts and GPUs.
#pragma once
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// The dimensions that ids index.
struct FlatIndexDims {
  static constexpr int kMost = 16;

  explicit FlatIndexDims(const KernelPlan& plan)
      : count(static_cast<int>(plan.input(1).shape.back())) {
    require(count <= kMost, plan.node().describe(), ": ids index at most ", kMost, " dimensions");
    for (int i = 0; i < count; ++i) size[i] = plan.input(0).shape[static_cast<std::size_t>(i)];
  }

  int count;
  std::int64_t size[kMost];
};

// Throws: kernels have found an id that is not in [0, size of its dimension).
[[noreturn]] void refuse_flat_index(const Node& node, std::int64_t dimension, std::int64_t id,
                                    std::int64_t size);

}  // namespace belfry
