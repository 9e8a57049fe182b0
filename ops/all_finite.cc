#include "belfry/ops/all_finite.h"

#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry {
namespace {

OutputTypes all_finite_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0, "needs at least one tensor");
  for (std::size_t i = 0; i < c.inputs(); ++i) c.require_floating(i);
  c.require(c.options<AllFiniteOptions>().limit >= 0, "the limit is ",
            c.options<AllFiniteOptions>().limit, ", but must not be negative");
  return {{Shape{}, DType::kBool}};
}

// 1 if an element is NaN or beyond the limit; comparisons with NaN are false.
template <class T>
BELFRY_KERNEL int exceed(const T* x, std::int64_t n, T limit) {
  int found = 0;
  for (std::int64_t i = 0; i < n; ++i) found |= !(std::abs(x[i]) <= limit);
  return found;
}

template <class T>
int plain_exceed(const T* x, std::int64_t n, T limit) {
  for (std::int64_t i = 0; i < n; ++i)
    if (std::isnan(x[i]) || x[i] > limit || x[i] < -limit) return 1;
  return 0;
}

template <bool plain>
KernelRun all_finite_kernel(KernelPlan& plan) {
  using Check = std::function<int(const KernelPointers&)>;
  std::vector<Check> checks;
  for (std::size_t i = 0; i < plan.inputs(); ++i)
    checks.push_back(visit_floating(plan.input(i).dtype, [&]<class T>(T) -> Check {
      return [i, n = plan.input(i).shape.elements(),
              limit =
                  static_cast<T>(plan.options<AllFiniteOptions>().limit)](const KernelPointers& p) {
        return plain ? plain_exceed(p.input<T>(i), n, limit) : exceed(p.input<T>(i), n, limit);
      };
    }));
  return [checks](const KernelPointers& p) {
    int found = 0;
    for (const Check& check : checks) found |= check(p);
    *p.output<bool>() = found == 0;
  };
}

}  // namespace

const Op kAllFinite{.name = "AllFinite",
                    .inputs = kVariadicInputs,
                    .shape = all_finite_shape,
                    .no_gradient = "it says yes or no",
                    .cpu = all_finite_kernel<false>,
                    .reference = all_finite_kernel<true>};

Output all_finite(std::span<const Output> xs, AllFiniteOptions options, At at) {
  require(!xs.empty(), "all_finite (", at.site, "): needs at least one tensor");
  return xs[0].graph().add(kAllFinite, xs, at, NodeOptions(options)).output();
}

}  // namespace belfry
