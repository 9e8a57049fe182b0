#include "belfry/allreduce/combine_over_processes.h"

#include <optional>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// How many elements to add so that pieces are equal, which NCCL gathers best.
std::int64_t padding(const GradientTable& grads, const std::vector<Output>& rows) {
  if (!grads.device(0).is_gpu()) return 0;
  std::int64_t elements = 0;
  for (const Output& row : rows) elements += row.shape().elements();
  const std::int64_t whole = even_unit(grads.graph().process().size);
  return (whole - elements % whole) % whole;
}

// The sums of some towers' gradients of some variables, as one row, padded on request.
Output sum_here(const GradientTable& grads, TreeNode towers, int first, int last,
                bool padded = false) {
  std::vector<std::vector<Output>> tensors;
  for (int v = first; v < last; ++v) {
    std::vector<Output>& of = tensors.emplace_back();
    for (int t = towers.begin; t < towers.end; ++t) {
      const DeviceScope on(grads.graph(), grads.device(t));
      const Output value = grads.at(t, v).value;
      of.push_back(is_half(value.dtype()) ? cast(value, DType::kF32) : value);
    }
  }
  if (towers.end - towers.begin > 1) tensors = all_reduce_bucket(tensors);
  std::vector<Output> rows;
  for (const std::vector<Output>& of : tensors) rows.push_back(flat_row(of[0]));
  if (const std::int64_t more = padded ? padding(grads, rows) : 0; more > 0)
    rows.push_back(fill(grads.graph(), {more}, 0, rows[0].dtype()));
  return join_flat(rows);
}

// The sums of this process's nodes of the canonical tree.
std::vector<Output> sums_of_nodes(const GradientTable& grads, int first, int last,
                                  bool padded = false) {
  const ProcessPlace place = grads.graph().process();
  const int towers = grads.towers(), before = place.rank * towers;
  std::vector<Output> own;
  for (const TreeNode& node : covering_nodes({before, before + towers}, place.size * towers))
    own.push_back(sum_here(grads, {node.begin - before, node.end - before}, first, last, padded));
  return own;
}

// The canonical sum or mean of rows of all processes.
Output sum_by_tree(const GradientTable& grads, int first, int last, bool mean) {
  return sum_over_processes(sums_of_nodes(grads, first, last, true), grads.graph().process(),
                            grads.towers(), mean);
}

// The sum or mean along a ring of processes. Hop h brings the sum of piece rank - h - 1 over the
// processes before this one. After the last hop it is the piece of this process.
Output sum_by_ring(const GradientTable& grads, int first, int last, bool mean) {
  const ProcessPlace place = grads.graph().process();
  const Output own = sum_here(grads, {0, grads.towers()}, first, last);
  const Cuts cuts = even_cuts(own.shape().elements(), place.size);
  const std::vector<Output> pieces = cut(own, piece_sizes(cuts));
  const auto piece_at = [&](int hop) { return (place.rank - hop + place.size - 1) % place.size; };
  const auto own_piece = [&](int hop) { return pieces[static_cast<std::size_t>(piece_at(hop))]; };
  Output sum = own_piece(0);
  for (int hop = 1; hop < place.size; ++hop)
    sum = add_n({ring_send(sum, place, cuts, piece_at(hop)), own_piece(hop)});
  if (mean) sum = sum / static_cast<double>(place.size * grads.towers());
  return all_gather(sum, place, cuts);
}

Output sum_by_mpi(const GradientTable& grads, int first, int last, bool mean) {
  const Output own = sum_here(grads, {0, grads.towers()}, first, last);
  std::optional<HostScope> host;  // MPI sums memory of hosts
  if (own.device().is_gpu()) host.emplace(grads.graph(), own.device());
  const Output sum = mpi_all_reduce(own);
  return mean ? sum / static_cast<double>(grads.graph().process().size * grads.towers()) : sum;
}

Output sum_by(ProcessSum sum, const GradientTable& grads, int first, int last, bool mean) {
  switch (sum) {
    case ProcessSum::kRing: return sum_by_ring(grads, first, last, mean);
    case ProcessSum::kMpi: return sum_by_mpi(grads, first, last, mean);
    case ProcessSum::kTree: break;
  }
  return sum_by_tree(grads, first, last, mean);
}

// The combined variables [first, last), one tensor each.
std::vector<Output> combine_by(ProcessSum sum, const GradientTable& grads, int first, int last,
                               bool mean) {
  std::vector<std::int64_t> sizes;
  for (int v = first; v < last; ++v)
    sizes.push_back(known_elements(grads, v, "a sum over processes"));
  std::vector<Output> results = cut(sum_by(sum, grads, first, last, mean), sizes);
  for (int v = first; v < last; ++v) {
    Output& result = results[static_cast<std::size_t>(v - first)];
    const Output gradient = grads.at(0, v).value;
    result = cast(reshape(result, gradient.shape()), gradient.dtype());
  }
  return results;
}

}  // namespace

Output own_piece_of_sum(const GradientTable& grads, int first, int last, bool mean,
                        const Cuts& cuts) {
  return reduce_scatter(sums_of_nodes(grads, first, last), grads.graph().process(), grads.towers(),
                        mean, cuts);
}

OutputRows combine_over_processes(const GradientTable& grads, bool mean, bool together,
                                  ProcessSum sum) {
  NameScope names(grads.graph(), "SumOverProcesses");
  const DeviceScope on(grads.graph(), grads.device(0));
  std::vector<Output> row;
  const int step = together ? grads.variables() : 1;
  for (int v = 0; v < grads.variables(); v += step)
    for (const Output& result : combine_by(sum, grads, v, v + step, mean)) row.push_back(result);
  return OutputRows(static_cast<std::size_t>(grads.towers()), row);
}

}  // namespace belfry
