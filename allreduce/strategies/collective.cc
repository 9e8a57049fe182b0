#include "belfry/allreduce/strategies/collective.h"

#include "belfry/allreduce/chunked.h"
#include "belfry/allreduce/combine_over_processes.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {
namespace {

// Each variable's K gradients are the inputs of one AllReduce node; output t is tower t's, on its
// device. The node also divides means. `collective#n` of a spec makes n nodes of n chunks of each
// tensor.
class Collective final : public Strategy {
 public:
  explicit Collective(bool in_one_node = false) : in_one_node_(in_one_node) {}

  bool canonical(int) const override { return true; }
  std::string refusal_of_processes(const std::vector<DeviceSpec>&) const override { return ""; }
  std::unique_ptr<Strategy> in_chunks(int chunks) const override {
    return chunked(std::make_unique<Collective>(), chunks);
  }
  std::unique_ptr<Strategy> in_one_node() const override {
    return std::make_unique<Collective>(true);
  }

 private:
  OutputRows combine(const GradientTable& grads, Reduction reduction) const override {
    const bool mean = reduction == Reduction::kMean;
    return grads.graph().process().size > 1
               ? combine_over_processes(grads, mean, in_one_node_)
               : by_collectives(grads, mean, in_one_node_, all_reduce_bucket);
  }

  bool in_one_node_;
};

const StrategyRegistration collective_strategy{"collective",
                                               [] { return std::make_unique<Collective>(); }};

}  // namespace

OutputRows by_collectives(const GradientTable& grads, bool mean, bool in_one_node,
                          ReduceBucket reduce) {
  NameScope names(grads.graph(), "AllReduceGrads");
  DeviceScope on(grads.graph(), grads.device(0));  // of output 0; others follow their inputs
  OutputRows results(static_cast<std::size_t>(grads.towers()));
  std::vector<std::vector<Output>> tensors;
  for (int v = 0; v < grads.variables(); ++v) tensors.push_back(grads.values(v));
  const std::size_t together = in_one_node ? tensors.size() : 1;
  for (std::size_t v = 0; v < tensors.size(); v += together)
    for (const std::vector<Output>& reduced :
         reduce(std::span(tensors).subspan(v, together), {.mean = mean}, {}))
      for (std::size_t t = 0; t < results.size(); ++t) results[t].push_back(reduced[t]);
  return results;
}

}  // namespace belfry
