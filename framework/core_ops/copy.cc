#include "belfry/framework/core_ops/copy.h"

#include <cstring>

#include "belfry/framework/core_ops/made_by_plans.h"

namespace belfry {
namespace {

KernelRun copy_reference(KernelPlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [size](const KernelPointers& p) {
    const std::int64_t begin = p.begin() * size, end = p.end() * size;
    // Nothing to do without elements, or if it was made where it is fetched.
    if (begin == end || p.output<char>() == p.input<char>(0)) return;
    std::memcpy(p.output<char>() + begin, p.input<char>(0) + begin,
                static_cast<std::size_t>(end - begin));
  };
}

}  // namespace

const Op kCopy{.name = "Copy",
               .inputs = 1,
               .shape = same_as_input,
               .no_gradient = kMadeByPlans,
               .split = WorkSplit::kElements,
               .reference = copy_reference,
               .half = true};

}  // namespace belfry
