#include "belfry/ops/pointwise/clip.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/functors_impl.h"
#include "belfry/ops/pointwise/where.h"

namespace belfry {
namespace {

OutputTypes clip_shape(const ShapeContext& c) {
  c.require_floating(0);
  const auto& [low, high] = c.options<ClipOptions>();
  c.require(low <= high, "the lower limit ", low, " is not below the upper one, ", high);
  return {c.type(0)};
}

// What is clipped differs from the result.
std::vector<Output> clip_gradient(const Node& node, std::span<const Output> grads) {
  return {where(equal(node.input(0), node.output()), grads[0], 0.0)};
}

KernelRun clip_cpu(KernelPlan& plan) {
  const auto& [low, high] = plan.options<ClipOptions>();
  return typed_kernel(plan, [f = functors::ClipTo{low, high}]<class T>(T, const KernelPointers& p) {
    kernels::map(f, p.begin(), p.end(), p.output<T>(), p.input<T>(0));
  });
}

KernelRun clip_reference(KernelPlan& plan) {
  const auto& options = plan.options<ClipOptions>();
  return typed_kernel(plan, [options]<class T>(T, const KernelPointers& p) {
    const T low = static_cast<T>(options.low), high = static_cast<T>(options.high);
    for (std::int64_t i = p.begin(); i < p.end(); ++i) {
      const T x = p.input<T>(0)[i];
      p.output<T>()[i] = std::isnan(x) ? x : std::clamp(x, low, high);
    }
  });
}

}  // namespace

const Op kClip{.name = "Clip",
               .inputs = 1,
               .shape = clip_shape,
               .gradient = clip_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .in_place = InPlace::kFirst,
               .cpu = clip_cpu,
               .reference = clip_reference};
const StoredOptions<ClipOptions> kStoredClip(kClip);

Output clip(Output x, double low, double high, At at) {
  return x.graph().add(kClip, {x}, at, NodeOptions(ClipOptions{low, high})).output();
}

}  // namespace belfry
