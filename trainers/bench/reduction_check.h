// Whether strategies sum right, in the graph of bench_reduction().
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/run/session.h"
#include "belfry/trainers/bench/reduction_graph.h"
#include "belfry/trainers/bench/reduction_oracle.h"

namespace belfry {

class ReductionCheck {
 public:
  // Called with what it does, tensor by tensor, and for which strategy, or "".
  using Show = std::function<void(const char* what, const std::string& strategy)>;

  // Borrows these.
  ReductionCheck(const ReductionGraph& graph, const ReductionBenchOptions& options, Show show);

  // Elements that are wrong on all towers of this process: of the variables after a run of the
  // step, and of the sums in a session that nothing has run in.
  std::int64_t wrong_in_place(const ReductionResult& of, Session& session,
                              CompiledStep& step) const;
  std::int64_t wrong_out_of_place(const ReductionResult& of, Session& session,
                                  const ReductionNodes& nodes) const;

 private:
  void write_inputs(Session& session) const;

  const ReductionGraph& graph_;
  std::vector<ReductionOracle> oracles_;  // of each tensor
  Show show_;
};

}  // namespace belfry
