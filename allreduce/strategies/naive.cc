#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

// Variables are taken in reverse order, as their gradients become ready. devices[j mod size] sums
// the j-th one taken, by add_n. All towers share the result.
class Naive final : public Strategy {
 public:
  // Default `devices`: those of the towers.
  explicit Naive(std::vector<DeviceSpec> devices = {}) : devices_(std::move(devices)) {}

  bool canonical(int) const override { return true; }

 private:
  OutputRows sum(const GradientTable& grads) const override {
    NameScope names(grads.graph(), "AllReduceNaive");
    const std::vector<DeviceSpec> devices = devices_.empty() ? grads.devices() : devices_;
    const auto count = static_cast<std::size_t>(grads.variables());
    std::vector<Output> totals(count);
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t v = count - 1 - j;
      const int turn = grads.numbers() - 1 - grads.number(static_cast<int>(v));
      DeviceScope on(grads.graph(), devices[static_cast<std::size_t>(turn) % devices.size()]);
      totals[v] = add_n(grads.values(static_cast<int>(v)));
    }
    return std::vector(static_cast<std::size_t>(grads.towers()), totals);
  }

  std::vector<DeviceSpec> devices_;
};

Naive on_cpu() { return Naive({DeviceSpec("/cpu:0")}); }

const StrategyRegistration naive{"naive", [] { return std::make_unique<Naive>(); }};
const StrategyRegistration naive_cpu{"naive_cpu", [] { return std::make_unique<Naive>(on_cpu()); }};

}  // namespace

}  // namespace belfry
