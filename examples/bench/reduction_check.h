// Checks the sums of strategies in the graph of bench_reduction().
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/run/session.h"
#include "reduction_graph.h"
#include "reduction_oracle.h"

namespace belfry {

class ReductionCheck {
 public:
  // Called per tensor with the present action and its strategy, or "".
  using Show = std::function<void(const char* what, const std::string& strategy)>;

  // Borrows its arguments.
  ReductionCheck(const ReductionGraph& graph, const ReductionBenchOptions& options, Show show);

  // The number of wrong elements on all towers of this process: in the variables after a run of the
  // step, and in the sums in a session that has run nothing.
  std::int64_t wrong_in_place(const ReductionResult& of, Session& session,
                              CompiledStep& step) const;
  std::int64_t wrong_out_of_place(const ReductionResult& of, Session& session,
                                  const ReductionNodes& nodes) const;

 private:
  void write_inputs(Session& session) const;

  const ReductionGraph& graph_;
  std::vector<ReductionOracle> oracles_;  // per tensor
  Show show_;
};

}  // namespace belfry
