#include "belfry/ops/shape_of.h"

#include <algorithm>

namespace belfry {
namespace {

constexpr char kNoGradient[] = "a shape does not depend on values";

OutputTypes dimensions(const ShapeContext& c) {
  return {{Shape{static_cast<std::int64_t>(c.input(0).rank())}, DType::kI64}};
}

OutputTypes one_number(const ShapeContext&) { return {{Shape{}, DType::kI64}}; }

KernelRun write(std::vector<std::int64_t> numbers) {
  return [numbers = std::move(numbers)](const KernelPointers& p) {
    std::ranges::copy(numbers, p.output<std::int64_t>());
  };
}

KernelRun shape_reference(KernelPlan& plan) { return write(plan.input(0).shape.dims()); }
KernelRun size_reference(KernelPlan& plan) { return write({plan.input(0).shape.elements()}); }
KernelRun rank_reference(KernelPlan& plan) {
  return write({static_cast<std::int64_t>(plan.input(0).shape.rank())});
}

}  // namespace

const Op kShapeOf{.name = "ShapeOf",
                  .inputs = 1,
                  .shape = dimensions,
                  .no_gradient = kNoGradient,
                  .metadata = true,
                  .reference = shape_reference,
                  .half = true};

const Op kSizeOf{.name = "SizeOf",
                 .inputs = 1,
                 .shape = one_number,
                 .no_gradient = kNoGradient,
                 .metadata = true,
                 .reference = size_reference,
                 .half = true};

const Op kRankOf{.name = "RankOf",
                 .inputs = 1,
                 .shape = one_number,
                 .no_gradient = kNoGradient,
                 .metadata = true,
                 .reference = rank_reference,
                 .half = true};

Output shape_of(Output x, At at) { return x.graph().add(kShapeOf, {x}, at).output(); }
Output size_of(Output x, At at) { return x.graph().add(kSizeOf, {x}, at).output(); }
Output rank_of(Output x, At at) { return x.graph().add(kRankOf, {x}, at).output(); }

}  // namespace belfry
