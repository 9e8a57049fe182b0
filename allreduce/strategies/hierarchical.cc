#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

// K is an even number of towers, and groups are towers [0, K/2) and [K/2, K). For variable v the
// mains are g0 = v mod K and g1 = (g0 + K/2) mod K. Each main sums its group. g1 adds the two sums,
// g0 takes the total from there, and every tower takes it from its own group's main. Canonical: the
// groups are the two halves of the tree, and the left half is the left operand whichever main adds
// the two.
class Hierarchical final : public Strategy {
 public:
  std::string refusal(const std::vector<DeviceSpec>& devices) const override {
    if (devices.size() % 2 == 0) return "";
    return cat("hierarchical needs an even number of towers, not K = ", devices.size(),
               "; use collective or naive, or another number of devices");
  }
  bool canonical(int towers) const override { return towers % 2 == 0; }

 private:
  OutputRows sum(const GradientTable& grads) const override {
    const auto towers = static_cast<std::size_t>(grads.towers());
    const std::vector<DeviceSpec> devices = grads.devices();
    NameScope names(grads.graph(), "AllReduceGradsHierarchical");
    OutputRows results(towers);
    for (int v = 0; v < grads.variables(); ++v) add_variable(grads, v, devices, results);
    return results;
  }

  static void add_variable(const GradientTable& grads, int v,
                           const std::vector<DeviceSpec>& devices, OutputRows& results) {
    Graph& graph = grads.graph();
    const std::size_t towers = devices.size(), half = towers / 2;
    const std::size_t g0 = static_cast<std::size_t>(grads.number(v)) % towers,
                      g1 = (g0 + half) % towers;
    const std::vector<Output> values = grads.values(v);
    const std::span left(values.begin(), half), right(values.begin() + half, half);
    const bool first_is_left = g0 < half;  // group 0 is the group of g0
    Output group0, group1, total, main0;
    {
      DeviceScope on(graph, devices[g0]);
      group0 = add_n(first_is_left ? left : right, "group0_agg");
    }
    {
      DeviceScope on(graph, devices[g1]);
      group1 = add_n(first_is_left ? right : left, "group1_agg");
      total = first_is_left ? add_n({group0, group1}, "group1_total_agg")
                            : add_n({group1, group0}, "group1_total_agg");
    }
    {
      DeviceScope on(graph, devices[g0]);
      main0 = identity(total, "group0_total_agg");
    }
    for (std::size_t t = 0; t < towers; ++t) {
      DeviceScope on(graph, devices[t]);
      const bool in_group0 = (t < half) == first_is_left;
      results[t].push_back(identity(in_group0 ? main0 : total, At(cat("device", t, "_total_agg"))));
    }
  }
};

const StrategyRegistration hierarchical{"hierarchical",
                                        [] { return std::make_unique<Hierarchical>(); }};

}  // namespace

}  // namespace belfry
