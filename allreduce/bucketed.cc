#include "belfry/allreduce/bucketed.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

std::unique_ptr<Strategy> in_one_node_if_possible(std::unique_ptr<Strategy> strategy) {
  std::unique_ptr<Strategy> in_one_node = strategy->in_one_node();
  return in_one_node ? std::move(in_one_node) : std::move(strategy);
}

class Bucketed final : public WrappingStrategy {
 public:
  Bucketed(std::unique_ptr<Strategy> inner, std::int64_t bytes)
      : WrappingStrategy(in_one_node_if_possible(std::move(inner))), bytes_(bytes) {}

 private:
  std::vector<std::vector<Output>> combine(const GradientTable& grads,
                                           Reduction reduction) const override {
    const EagerScope eager(grads.graph());
    std::vector<std::vector<int>> buckets;
    for (const auto& [begin, end] : cut_buckets(grads, bytes_)) {
      std::vector<int>& variables = buckets.emplace_back(static_cast<std::size_t>(end - begin));
      std::iota(variables.begin(), variables.end(), begin);
    }
    return by_group(grads, buckets, [&](std::size_t, const GradientTable& some) {
      return results_of(inner(), some, reduction);
    });
  }

  std::int64_t bytes_;
};

}  // namespace

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

std::unique_ptr<Strategy> bucketed(std::unique_ptr<Strategy> inner, double megabytes) {
  require(inner != nullptr, "bucketed() needs a strategy to apply");
  require(std::isfinite(megabytes) && megabytes > 0, "buckets of ", megabytes,
          " MiB are not possible; give a size above 0");
  return std::make_unique<Bucketed>(std::move(inner), bucket_bytes(megabytes));
}

std::int64_t bucket_bytes(double megabytes) {
  constexpr double kMost = 1e18;
  return static_cast<std::int64_t>(std::min(megabytes * (1 << 20), kMost));
}

}  // namespace belfry
