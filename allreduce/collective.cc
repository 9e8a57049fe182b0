#include "belfry/allreduce/collective.h"

#include "belfry/allreduce/chunked.h"
#include "belfry/framework/scopes.h"
#include "belfry/ops/all_reduce.h"

namespace belfry {
namespace {

class Collective final : public Strategy {
 public:
  bool canonical(int) const override { return true; }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return chunked(std::make_unique<Collective>(), chunks);
  }

 private:
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    return build(grads, false);
  }
  std::vector<std::vector<Output>> mean(const GradientTable& grads) const override {
    return build(grads, true);
  }

  static std::vector<std::vector<Output>> build(const GradientTable& grads, bool mean) {
    NameScope names(grads.graph(), "AllReduceGrads");
    DeviceScope on(grads.graph(), grads.device(0));  // of output 0; the others follow their inputs
    std::vector<std::vector<Output>> results(static_cast<std::size_t>(grads.towers()));
    for (int v = 0; v < grads.variables(); ++v) {
      const std::vector<Output> reduced = all_reduce(grads.values(v), {.mean = mean});
      for (std::size_t t = 0; t < results.size(); ++t) results[t].push_back(reduced[t]);
    }
    return results;
  }
};

const StrategyRegistration collective{"collective", [] { return std::make_unique<Collective>(); }};

}  // namespace

GradientTable allreduce_collective(const GradientTable& grads, Reduction reduction, At at) {
  return Collective().reduce(grads, {.reduction = reduction}, at);
}

}  // namespace belfry
