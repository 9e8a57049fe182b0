// The graph that bench_reduction() times: all strategies on the same variables.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/plan/request.h"
#include "reduction_bench.h"

namespace belfry {

// The nodes that a strategy adds to the graph.
struct ReductionNodes {
  std::vector<Output> sums = {};  // of all towers, tensor by tensor
  Node* place = nullptr;          // writes the sums to the variables
  Node* compute = nullptr;        // waits for the sums
  Node* places = nullptr;         // `place` options.aggregate times, one after another
  Node* computes = nullptr;

  std::vector<Fetch> fetches() const { return std::vector<Fetch>(sums.begin(), sums.end()); }
};

class ReductionGraph {
 public:
  // The options must outlive the graph.
  ReductionGraph(const std::vector<Shape>& shapes, const ReductionBenchOptions& options);

  // Throws what the strategy throws.
  ReductionNodes add(const Strategy& strategy);

  const Graph& graph() const { return graph_; }
  const std::vector<TensorType>& types() const { return types_; }
  std::int64_t elements() const { return elements_; }  // per tower
  std::int64_t bytes() const;                          // per tower
  // The towers of this process, and the number of towers before them.
  int towers() const { return static_cast<int>(rows_.size()); }
  int towers_before() const { return graph_.process().rank * towers(); }
  // Tower t's copy of tensor n.
  Variable buffer(int t, int n) const {
    return rows_[static_cast<std::size_t>(t)][static_cast<std::size_t>(n)].variable;
  }

 private:
  // The results of a strategy on all towers, tensor by tensor.
  struct Reduced {
    std::vector<Output> sums = {};
    std::vector<Node*> writes = {};  // of the sums to the variables
  };
  Reduced reduce(const Strategy& strategy, GradientRows rows);
  GradientRows rows_behind(const std::vector<Node*>& nodes);

  const ReductionBenchOptions& options_;
  std::vector<TensorType> types_;
  std::int64_t elements_ = 0;
  Graph graph_;
  GradientRows rows_;
};

}  // namespace belfry
