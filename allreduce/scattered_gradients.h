// Sums of gradients of which each process keeps a part (AggregationOptions, zero_stage).
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/between_processes.h"

namespace belfry {

// Cuts a row of tensors laid end to end into `processes` parts of nearly equal size. Cuts lie
// between two tensors, or between two blocks of the tree of squares in one
// (ops/updates/square_tree.h), so that norms keep their bits. `sizes`: elements of each tensor.
Cuts cut_between_blocks(std::span<const std::int64_t> sizes, int processes);

// The sums that strategy `collective` makes for the towers of all processes, bit for bit. They are
// reduce-scattered bucket by bucket, as soon as gradients are ready. All processes add the same
// nodes, some of them with empty tensors.
class ScatteredGradients {
 public:
  // Buckets have at most `bucket_mb` MiB; 0: one per variable. Throws InvalidArgument as
  // Strategy::reduce does. Weights need their sum over all processes.
  ScatteredGradients(const GradientTable& grads, const ReduceOptions& how, double bucket_mb);

  int variables() const { return static_cast<int>(variables_.size()); }
  // The parts of variable v in all processes, as ranges of its elements.
  const Cuts& cuts(int v) const { return of(v).cuts; }
  // This process's part of the sum of variable v: a row, possibly empty.
  Output own_piece(int v) const { return of(v).own_piece; }

  // All-gathers `own(v)`, a row for this process's part of variable v. Returns, for each variable,
  // the row that holds the parts of all processes, and where they are in it. Several variables
  // share a row. The first variables are in the row that is gathered first.
  struct Gathered {
    Output row;
    AssignGatheredOptions of_variable;
  };
  std::vector<Gathered> gather(const std::function<Output(int v)>& own) const;
  // The sums of squares of tensors of all variables, f64 [variables], with the bits of
  // sums_of_squares(). `rows`: this process's parts of them, cut as own_piece() is.
  Output squares(std::span<const Output> rows) const;
  // The norm of each of several tensors that are cut as own_piece(v) is.
  std::vector<Output> norms(int v, std::span<const Output> rows) const;

 private:
  struct Part {
    Cuts cuts;
    Output own_piece;
  };
  struct Sum {
    int first, last;  // variables
    Cuts cuts;        // of these variables, end to end
  };

  // `divide` turns the sum into the tensor to keep.
  template <class F>
  void scatter(const GradientTable& grads, int first, int last, bool mean, const F& divide);
  const Part& of(int v) const { return variables_[static_cast<std::size_t>(v)]; }

  Graph& graph_;
  std::vector<Part> variables_;
  std::vector<Sum> sums_;
};

}  // namespace belfry
