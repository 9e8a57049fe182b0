#include "reduction_check.h"

#include <utility>

namespace belfry {

ReductionCheck::ReductionCheck(const ReductionGraph& graph, const ReductionBenchOptions& options,
                               Show show)
    : graph_(graph), show_(std::move(show)) {
  for (const TensorType& type : graph.types())
    oracles_.emplace_back(type.shape, type.dtype, options.towers(), options.reduction);
}

void ReductionCheck::write_inputs(Session& session) const {
  for (std::size_t n = 0; n < oracles_.size(); ++n)
    for (int t = 0; t < graph_.towers(); ++t) {
      session.write(graph_.buffer(t, static_cast<int>(n)),
                    oracles_[n].input(graph_.towers_before() + t));
      show_("writing what is summed", "");
    }
}

std::int64_t ReductionCheck::wrong_in_place(const ReductionResult& of, Session& session,
                                            CompiledStep& step) const {
  write_inputs(session);
  step.run();
  std::int64_t wrong = 0;
  for (std::size_t n = 0; n < oracles_.size(); ++n)
    for (int t = 0; t < graph_.towers(); ++t) {
      wrong += oracles_[n].wrong(session.read(graph_.buffer(t, static_cast<int>(n))), of.canonical);
      show_("checking ", of.strategy);
    }
  return wrong;
}

std::int64_t ReductionCheck::wrong_out_of_place(const ReductionResult& of, Session& session,
                                                const ReductionNodes& nodes) const {
  write_inputs(session);
  const std::vector<Tensor> sums = session.run(nodes.fetches(), {});
  const auto towers = static_cast<std::size_t>(graph_.towers());
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    wrong += oracles_[i / towers].wrong(sums[i], of.canonical);
    show_("checking ", of.strategy);
  }
  return wrong;
}

}  // namespace belfry
