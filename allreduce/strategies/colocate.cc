#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

// The device of tower 0's variable sums each variable's gradients, by add_n. All towers share the
// result.
class Colocate final : public Strategy {
 public:
  bool canonical(int) const override { return true; }

 private:
  OutputRows sum(const GradientTable& grads) const override {
    NameScope names(grads.graph(), "AggregateGradsColocate");
    std::vector<Output> totals;
    for (int v = 0; v < grads.variables(); ++v) {
      const Gradient& main = grads.at(0, v);
      require(static_cast<bool>(main.variable), "colocate sums beside variables, but gradient ", v,
              ", ", main.value.node().describe(), ", has none; do not pack it");
      ColocateWith beside(main.variable.ref());
      totals.push_back(add_n(grads.values(v)));
    }
    return std::vector(static_cast<std::size_t>(grads.towers()), totals);
  }
};

const StrategyRegistration colocate{"colocate", [] { return std::make_unique<Colocate>(); }};

}  // namespace

}  // namespace belfry
