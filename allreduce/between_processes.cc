#include "belfry/allreduce/between_processes.h"

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// The sums of some towers' gradients of some variables, as one row.
Output sum_here(const GradientTable& grads, TreeNode towers, int first, int last) {
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
  return join_flat(rows);
}

// Of variables [first, last): one tensor each.
std::vector<Output> combine(const GradientTable& grads, int first, int last, bool mean) {
  const ProcessPlace place = grads.graph().process();
  const int towers = grads.towers(), before = place.rank * towers;
  std::vector<Output> own;
  for (const TreeNode& node : covering_nodes({before, before + towers}, place.size * towers))
    own.push_back(sum_here(grads, {node.begin - before, node.end - before}, first, last));
  std::vector<std::int64_t> sizes;
  for (int v = first; v < last; ++v)
    sizes.push_back(known_elements(grads, v, "a sum over processes"));
  std::vector<Output> results = cut(sum_over_processes(own, place, towers, mean), sizes);
  for (int v = first; v < last; ++v) {
    Output& result = results[static_cast<std::size_t>(v - first)];
    const Output gradient = grads.at(0, v).value;
    result = cast(reshape(result, gradient.shape()), gradient.dtype());
  }
  return results;
}

}  // namespace

std::vector<std::vector<Output>> sums_over_processes(const GradientTable& grads, bool mean,
                                                     bool together) {
  NameScope names(grads.graph(), "SumOverProcesses");
  const DeviceScope on(grads.graph(), grads.device(0));
  std::vector<Output> row;
  const int step = together ? grads.variables() : 1;
  for (int v = 0; v < grads.variables(); v += step)
    for (const Output& result : combine(grads, v, v + step, mean)) row.push_back(result);
  return std::vector<std::vector<Output>>(static_cast<std::size_t>(grads.towers()), row);
}

}  // namespace belfry
