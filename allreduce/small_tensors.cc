#include "belfry/allreduce/small_tensors.h"

#include "belfry/allreduce/gradient_packer.h"
#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {
namespace small_tensors {

// For each packed tensor, its variables.
using Groups = std::vector<std::vector<int>>;

bool is_small(Output value, std::int64_t most_bytes) {
  return value.dtype() == DType::kF32 && value.shape().is_fully_known() &&
         value.type().bytes() <= most_bytes;
}

Groups grouped(const GradientTable& grads, const Packing& packing) {
  std::vector<int> small;
  for (int v = 0; v < grads.variables(); ++v)
    if (is_small(grads.at(0, v).value, packing.small_bytes)) small.push_back(v);
  Groups groups;
  std::vector<bool> packed(static_cast<std::size_t>(grads.variables()));
  for (const auto& [first, last] : extract_runs(small, packing.small_group)) {
    groups.emplace_back();
    for (int v = first; v <= last; ++v) {
      groups.back().push_back(v);
      packed[static_cast<std::size_t>(v)] = true;
    }
  }
  for (int v = 0; v < grads.variables(); ++v)
    if (!packed[static_cast<std::size_t>(v)]) groups.push_back({v});
  return groups;
}

std::vector<Gradient> pack(const GradientTable& grads, int t, const Groups& groups) {
  NameScope names(grads.graph(), "PackSmallTensors");
  DeviceScope on(grads.graph(), grads.device(t));
  std::vector<Gradient> row;
  for (const std::vector<int>& group : groups) {
    if (group.size() == 1) {
      row.push_back(grads.at(t, group[0]));
      continue;
    }
    std::vector<Output> flat;
    for (const int v : group) flat.push_back(flat_row(grads.at(t, v).value));
    row.push_back({join_flat(flat), {}});
  }
  return row;
}

std::vector<Output> unpack(const GradientTable& grads, int t, const Groups& groups,
                           const std::vector<Gradient>& row) {
  NameScope names(grads.graph(), "UnpackSmallTensors");
  DeviceScope on(grads.graph(), grads.device(t));
  std::vector<Output> results(static_cast<std::size_t>(grads.variables()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<std::int64_t> sizes;
    for (const int v : groups[g]) sizes.push_back(grads.at(0, v).value.shape().elements());
    if (sizes.size() == 1) {
      results[static_cast<std::size_t>(groups[g][0])] = row[g].value;
      continue;
    }
    const std::vector<Output> pieces = cut(row[g].value, sizes);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      results[static_cast<std::size_t>(groups[g][i])] =
          reshape(pieces[i], grads.at(0, groups[g][i]).value.shape());
  }
  return results;
}

}  // namespace small_tensors
}  // namespace

std::vector<std::pair<int, int>> extract_runs(const std::vector<int>& indices, int most) {
  require(most >= 2, "a run has at least two indices, so its limit cannot be ", most);
  std::vector<std::pair<int, int>> runs;
  for (std::size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
    for (end = begin + 1; end < indices.size() && indices[end] == indices[end - 1] + 1; ++end)
      if (end - begin == static_cast<std::size_t>(most)) break;
    require(end == indices.size() || indices[end] > indices[end - 1],
            "indices do not increase: ", indices[end - 1], ", ",
            end < indices.size() ? indices[end] : 0);
    if (end - begin > 1) runs.emplace_back(indices[begin], indices[end - 1]);
  }
  return runs;
}

OutputRows combine_packed(const GradientTable& grads, const Strategy& strategy, Reduction reduction,
                          const Packing& packing) {
  if (packing.small_bytes == 0) return combine_in_parts(grads, strategy, reduction, packing);
  require(packing.small_bytes >= 1, "tensors of up to ", packing.small_bytes,
          " bytes cannot be packed");
  require(packing.small_group >= 2, "at least two tensors are packed into one, not ",
          packing.small_group);
  const small_tensors::Groups groups = small_tensors::grouped(grads, packing);
  GradientRows rows;
  for (int t = 0; t < grads.towers(); ++t) rows.push_back(small_tensors::pack(grads, t, groups));
  const GradientTable packed(std::move(rows));
  const std::size_t first = grads.graph().size();
  const GradientTable combined =
      verified(packed, combine_in_parts(packed, strategy, reduction, packing), first);
  OutputRows results;
  for (int t = 0; t < grads.towers(); ++t)
    results.push_back(small_tensors::unpack(grads, t, groups, combined.row(t)));
  return results;
}

}  // namespace belfry
