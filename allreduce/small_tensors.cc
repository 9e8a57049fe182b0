#include "belfry/allreduce/small_tensors.h"

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

class SmallTensorsPacked final : public WrappingStrategy {
 public:
  SmallTensorsPacked(std::unique_ptr<Strategy> inner, std::int64_t max_bytes, int max_group)
      : WrappingStrategy(std::move(inner)), max_bytes_(max_bytes), max_group_(max_group) {}

 private:
  // For each tensor of the inner table, its variables.
  using Groups = std::vector<std::vector<int>>;

  std::vector<std::vector<Output>> combine(const GradientTable& grads,
                                           Reduction reduction) const override {
    const Groups groups = grouped(grads);
    GradientRows rows;
    for (int t = 0; t < grads.towers(); ++t) rows.push_back(pack(grads, t, groups));
    const GradientTable sums = combined(GradientTable(std::move(rows)), reduction);
    std::vector<std::vector<Output>> results;
    for (int t = 0; t < grads.towers(); ++t)
      results.push_back(unpack(grads, t, groups, sums.row(t)));
    return results;
  }

  Groups grouped(const GradientTable& grads) const {
    std::vector<int> small;
    for (int v = 0; v < grads.variables(); ++v)
      if (is_small(grads.at(0, v).value)) small.push_back(v);
    Groups groups;
    std::vector<bool> packed(static_cast<std::size_t>(grads.variables()));
    for (const auto& [first, last] : extract_runs(small, max_group_).runs) {
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

  bool is_small(Output value) const {
    return value.dtype() == DType::kF32 && value.shape().is_fully_known() &&
           value.type().bytes() <= max_bytes_;
  }

  static std::vector<Gradient> pack(const GradientTable& grads, int t, const Groups& groups) {
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

  static std::vector<Output> unpack(const GradientTable& grads, int t, const Groups& groups,
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

  std::int64_t max_bytes_;
  int max_group_;
};

}  // namespace

IndexRuns extract_runs(const std::vector<int>& indices, int most) {
  require(most >= 2, "a run has at least two indices, so its limit cannot be ", most);
  IndexRuns found;
  for (std::size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
    for (end = begin + 1; end < indices.size() && indices[end] == indices[end - 1] + 1; ++end)
      if (end - begin == static_cast<std::size_t>(most)) break;
    require(end == indices.size() || indices[end] > indices[end - 1],
            "indices do not increase: ", indices[end - 1], ", ",
            end < indices.size() ? indices[end] : 0);
    if (end - begin == 1)
      found.singles.push_back(indices[begin]);
    else
      found.runs.emplace_back(indices[begin], indices[end - 1]);
  }
  return found;
}

std::unique_ptr<Strategy> small_tensors_packed(std::unique_ptr<Strategy> inner,
                                               std::int64_t max_bytes, int max_group) {
  require(inner != nullptr, "small_tensors_packed() needs a strategy to apply");
  require(max_bytes >= 1, "tensors of up to ", max_bytes, " bytes cannot be packed");
  require(max_group >= 2, "at least two tensors are packed into one, not ", max_group);
  return std::make_unique<SmallTensorsPacked>(std::move(inner), max_bytes, max_group);
}

}  // namespace belfry
