#include "belfry/allreduce/tower_weights.h"

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/weigh.h"

namespace belfry {

template <class F>
std::vector<std::vector<Output>> TowerWeights::each(const F& make) {
  const NameScope names(grads_.graph(), "WeightedGrads");
  std::vector<std::vector<Output>> rows;
  for (int t = 0; t < grads_.towers(); ++t) {
    std::vector<Output>& row = rows.emplace_back();
    for (const Gradient& g : grads_.row(t)) {
      const DeviceScope on(grads_.graph(), grads_.device(t));
      row.push_back(make(g.value, of(t, g.value.dtype())));
    }
  }
  return rows;
}

std::vector<std::vector<Output>> TowerWeights::leaves() {
  return each([](Output gradient, Output weight) { return weigh(gradient, weight); });
}

std::vector<std::vector<Output>> TowerWeights::counted() {
  return each([](Output gradient, Output weight) { return if_counted(gradient, weight); });
}

Output TowerWeights::mean_of(Output sum) { return unweigh(sum, total(sum.dtype())); }

// The weight of a tower in the dtype of gradients, on the tower's device.
Output TowerWeights::of(int t, DType dtype) {
  Output& weight = cast_[{t, dtype}];
  if (!weight) {
    const ColocateWith nothing(grads_.graph(), nullptr);
    const DeviceScope on(grads_.graph(), grads_.device(t));
    weight = cast(options_.weights[static_cast<std::size_t>(t)], dtype);
  }
  return weight;
}

Output TowerWeights::total(DType dtype) {
  Output& total = cast_[{-1, dtype}];
  if (!total) {
    const Output given = options_.total_weight;  // over all processes, if there are several
    std::vector<Output> all;
    for (int t = 0; !given && t < grads_.towers(); ++t) all.push_back(of(t, dtype));
    // The sum that it divides may be anywhere.
    const ColocateWith nothing(grads_.graph(), nullptr);
    const DeviceScope on(grads_.graph(), grads_.device(0));
    total = given ? cast(given, dtype) : add_n(all);
  }
  return total;
}

}  // namespace belfry
