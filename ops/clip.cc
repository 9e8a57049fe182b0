#include "belfry/ops/clip.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/kernels/clip_to.h"
#include "belfry/ops/kernels/typed_kernels.h"

namespace belfry {
namespace {

OutputTypes clip_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require(!is_half(c.dtype(0)), "takes f32 or f64, not ", name_of(c.dtype(0)), "; cast it");
  c.require_same_dtype();
  c.require_rank(1, 0);
  return {c.type(0)};
}

KernelRun clip_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const kernels::Broadcast scalar(plan.input(0).shape.dims(), {});
    return [scalar](const KernelPointers& p) {
      kernels::map_broadcast(functors::ClipTo{}, scalar, p.begin(), p.end(), p.output<T>(),
                             p.input<T>(0), p.input<T>(1));
    };
  });
}

KernelRun clip_reference(KernelPlan& plan) {
  return typed_kernel(plan, []<class T>(T, const KernelPointers& p) {
    const T limit = p.input<T>(1)[0];
    for (std::int64_t i = p.begin(); i < p.end(); ++i) {
      const T x = p.input<T>(0)[i];
      p.output<T>()[i] = std::isnan(x) ? x : std::clamp(x, -limit, limit);
    }
  });
}

}  // namespace

const Op kClip{.name = "Clip",
               .inputs = 2,
               .shape = clip_shape,
               .no_gradient = "it is about gradients",
               .split = WorkSplit::kElements,
               .in_place = InPlace::kFirst,
               .cpu = clip_cpu,
               .reference = clip_reference};

Output clip(Output x, Output limit, At at) { return x.graph().add(kClip, {x, limit}, at).output(); }

}  // namespace belfry
