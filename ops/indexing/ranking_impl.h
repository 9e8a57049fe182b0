// The order in which TopK, ArgMax and ArgMin put the elements of a line, for hosts and GPUs.
#pragma once
#include "belfry/ops/indexing/top_k.h"
#include "belfry/ops/kernels/lines.h"

namespace belfry {

struct Ranking {
  bool smallest, nan_first;

  // Whether element i with value a comes before element j with value b.
  template <class T>
  BELFRY_HD bool before(T a, std::int64_t i, T b, std::int64_t j) const {
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return a_nan == nan_first;
    if (!a_nan && a != b) return smallest ? a < b : a > b;
    return i < j;
  }
};

// Which elements of which lines a node takes.
struct RankedLines {
  explicit RankedLines(const KernelPlan& plan)
      : lines(plan.input(0).shape,
              &plan.op() == &kTopK ? plan.input(0).shape.rank() - 1
                                   : static_cast<std::size_t>(plan.options<ArgMaxOptions>().axis)),
        order{&plan.op() == &kArgMin, true} {
    if (&plan.op() != &kTopK) return;
    const auto& options = plan.options<RankedOptions>();
    k = options.k;
    order = {options.smallest, !options.smallest};
  }

  Lines lines;
  std::int64_t k = 1;
  Ranking order;
};

}  // namespace belfry
