#include "belfry/allreduce/buckets.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

std::vector<Bucket> cut_buckets(const GradientTable& grads, std::int64_t bytes) {
  std::vector<Bucket> buckets;
  std::int64_t left = 0;  // bytes left in the last bucket
  for (int v = grads.variables() - 1; v >= 0; --v) {
    const TensorType& type = grads.at(0, v).value.type();
    const std::int64_t size = type.shape.is_fully_known() ? type.bytes() : bytes + 1;
    const bool alike = !buckets.empty() && grads.at(0, v + 1).value.dtype() == type.dtype;
    if (alike && size <= left)
      buckets.back().first = v;
    else
      buckets.emplace_back(v, v + 1);
    left = (alike && size <= left ? left : bytes) - size;
  }
  return buckets;
}

std::int64_t bucket_bytes(double megabytes) {
  constexpr double kMost = 1e18;
  return static_cast<std::int64_t>(std::min(megabytes * (1 << 20), kMost));
}

OutputRows combine_in_buckets(const GradientTable& grads, const Strategy& strategy,
                              Reduction reduction, double megabytes) {
  require(std::isfinite(megabytes) && megabytes >= 0, "buckets of ", megabytes,
          " MiB are not possible; give a size above 0, or 0 for no buckets");
  if (megabytes == 0) return strategy.combine(grads, reduction);
  const std::unique_ptr<Strategy> in_one_node = strategy.in_one_node();
  const EagerScope eager(grads.graph());
  std::vector<std::vector<int>> buckets;
  for (const auto& [begin, end] : cut_buckets(grads, bucket_bytes(megabytes))) {
    std::vector<int>& variables = buckets.emplace_back(static_cast<std::size_t>(end - begin));
    std::iota(variables.begin(), variables.end(), begin);
  }
  return by_group(grads, buckets, [&](std::size_t, const GradientTable& some) {
    return (in_one_node ? *in_one_node : strategy).combine(some, reduction);
  });
}

}  // namespace belfry
