// Gradients of which each process keeps the sum of a part (TrainerOptions, partition_updates).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/between_processes.h"

namespace belfry {

// Where a row of tensors laid end to end is cut into `processes` parts of nearly equal size. Cuts
// lie between two tensors, or between two blocks of the tree of squares in one
// (ops/updates/square_tree.h). So norms keep their bits. `sizes`: elements of each tensor.
Cuts cut_between_blocks(std::span<const std::int64_t> sizes, int processes);

// What Strategy::reduce() of strategy `collective` gives for the towers of all processes, bit by
// bit. Scatters it bucket by bucket, as soon as gradients exist; all processes add the same nodes,
// some of them with tensors without elements.
class ScatteredGradients {
 public:
  // Buckets of at most `bucket_mb` MiB; 0: one per variable. Throws InvalidArgument as
  // Strategy::reduce does. Weights come with their sum over all processes.
  ScatteredGradients(const GradientTable& grads, const ReduceOptions& how, double bucket_mb);

  int variables() const { return static_cast<int>(variables_.size()); }
  // Of variable v: where the parts of all processes lie, as elements of its own.
  const Cuts& cuts(int v) const { return of(v).cuts; }
  // The sum of the part of variable v that is this process's: a row, perhaps without elements.
  Output own_piece(int v) const { return of(v).own_piece; }

  // `own(v)`: what this process has for its part of variable v, as a row. Returns where the parts
  // of all processes lie, variable by variable: those of several variables in one row, the first
  // variables in the row that is gathered first.
  struct Gathered {
    Output row;
    AssignGatheredOptions of_variable;
  };
  std::vector<Gathered> gather(const std::function<Output(int v)>& own) const;
  // The norm of tensors of all variables, together, of which this process has these rows: the bits
  // of global_norm(). They are cut as own_piece() is.
  Output norm(std::span<const Output> rows, At at = {}) const;
  // The norms of several tensors that are cut as own_piece(v) is, one each.
  std::vector<Output> norms(int v, std::span<const Output> rows) const;

 private:
  struct Part {
    Cuts cuts;
    Output own_piece;
  };
  struct Sum {
    int first, last;  // variables
    Cuts cuts;        // of these, end to end
  };

  // `divide` makes of a sum what is kept.
  template <class F>
  void scatter(const GradientTable& grads, int first, int last, bool mean, const F& divide);
  const Part& of(int v) const { return variables_[static_cast<std::size_t>(v)]; }

  Graph& graph_;
  std::vector<Part> variables_;
  std::vector<Sum> sums_;
};

}  // namespace belfry
