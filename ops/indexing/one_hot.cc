#include "belfry/ops/indexing/one_hot.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/ids.h"
#include "belfry/ops/kernels/labels.h"

namespace belfry {
namespace {

OutputTypes one_hot_shape(const ShapeContext& c) {
  const auto& [depth, dtype] = c.options<OneHotOptions>();
  c.require(c.dtype() == DType::kI32 || c.dtype() == DType::kI64, "labels are i32 or i64, not ",
            name_of(c.dtype()));
  c.require(depth >= 1, "the depth must be positive, not ", depth);
  std::vector<std::int64_t> dims = c.input(0).dims();
  dims.push_back(depth);
  return {{Shape(dims), dtype}};
}

template <class T, class Label>
void one_hot_rows(const KernelPointers& p, std::int64_t depth, std::int64_t labels_of_row,
                  const Node& node) {
  for (std::int64_t i = p.begin(); i < p.end();) {
    const std::int64_t row = i / depth, column = i % depth,
                       end = std::min(row * depth + depth, p.end());
    const auto label = static_cast<std::int64_t>(p.input<Label>(0)[row]);
    if (label < 0 || label >= depth)
      kernels::refuse_label(node, p.first_row() + row / labels_of_row, label, depth);
    std::fill(p.output<T>() + i, p.output<T>() + end, T(0));
    if (label >= column && row * depth + label < end) p.output<T>()[row * depth + label] = T(1);
    i = end;
  }
}

KernelRun one_hot_kernel(KernelPlan& plan) {
  const Shape& labels = plan.input(0).shape;
  const std::int64_t of_row = labels.rank() == 0 ? 1 : labels.product(1, labels.rank());
  return visit_any(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return visit_ids(plan.input(0).dtype, [&]<class Label>(Label) -> KernelRun {
      return [of_row, depth = plan.options<OneHotOptions>().depth, &node = plan.node()](
                 const KernelPointers& p) { one_hot_rows<T, Label>(p, depth, of_row, node); };
    });
  });
}

}  // namespace

const Op kOneHot{.name = "OneHot",
                 .inputs = 1,
                 .shape = one_hot_shape,
                 .no_gradient = "labels are integers",
                 .split = WorkSplit::kElements,
                 .shards = by_rows<1>,
                 .reference = one_hot_kernel};
const StoredOptions<OneHotOptions> kStoredOneHot(kOneHot);

Output one_hot(Output labels, std::int64_t depth, DType dtype, At at) {
  return labels.graph()
      .add(kOneHot, {labels}, at, NodeOptions(OneHotOptions{depth, dtype}))
      .output();
}

}  // namespace belfry
