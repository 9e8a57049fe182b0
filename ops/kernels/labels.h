// Labels: classes of the rows of a batch, as i32 or i64.
#pragma once
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/kernels/ids.h"

namespace belfry::kernels {

// Requires logits [n, c] of a floating type and labels [n].
inline void require_labels(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 2);
  c.require_rank(1, 1);
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64, "labels are i32 or i64, not ",
            name_of(c.dtype(1)));
  c.require(Shape{c.input(0)[0]}.compatible(c.input(1)), "logits ", c.input(0), " and labels ",
            c.input(1), " differ in number");
}

// Calls f(T{}, Label{}) with the types of logits and labels.
template <class F>
auto visit_labelled(const KernelPlan& plan, const F& f) {
  return visit_floating(plan.input(0).dtype, [&]<class T>(T logit) {
    return visit_ids(plan.input(1).dtype,
                     [&]<class Label>(Label label) { return f(logit, label); });
  });
}

// Throws: the label of a row of the batch is none of [0, classes).
[[noreturn]] inline void refuse_label(const Node& node, std::int64_t row, std::int64_t label,
                                      std::int64_t classes) {
  throw InvalidArgument(cat(node.describe(), ": label ", label, " in row ", row,
                            " is not one of the ", classes, " classes [0, ", classes, ")"));
}

// The label of a row, from input 1; throws InvalidArgument unless it is in [0, classes).
template <class Label>
std::int64_t checked_label(const Node& node, const KernelPointers& p, std::int64_t row,
                           std::int64_t classes) {
  const std::int64_t label = p.input<Label>(1)[row];
  if (label < 0 || label >= classes) [[unlikely]]
    refuse_label(node, p.first_row() + row, label, classes);
  return label;
}

}  // namespace belfry::kernels
