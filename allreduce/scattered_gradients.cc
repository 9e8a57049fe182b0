#include "belfry/allreduce/scattered_gradients.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <ranges>

#include "belfry/allreduce/buckets.h"
#include "belfry/allreduce/combine_over_processes.h"
#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/tower_weights.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/updates/global_norm.h"
#include "belfry/ops/updates/square_tree.h"

namespace belfry {
namespace {

// Elements [begin, end) of a row. Makes a node even if that is the whole row, or nothing, so that
// all processes have the same graph.
Output elements_of(Output row, std::int64_t begin, std::int64_t end) {
  return slice(row, {begin}, {end - begin});
}

// The place nearest to `wanted` where a tensor at [begin, begin + size) may be cut.
std::int64_t nearest_cut(std::int64_t wanted, std::int64_t begin, std::int64_t size) {
  const std::int64_t inside = std::clamp(wanted - begin, std::int64_t{0}, size);
  const std::int64_t below = inside / kernels::kSquarePart * kernels::kSquarePart;
  const std::int64_t above = std::min(below + kernels::kSquarePart, size);
  return begin + (inside - below <= above - inside ? below : above);
}

// The squares of blocks of tensors that processes have in parts. Each process adds the squares of
// its rows. The sums are in one row, rank by rank, tensor by tensor.
class SquaresOfAll {
 public:
  // cuts[i]: of the tensor that rows[i] is a part of.
  SquaresOfAll(std::span<const Output> rows, const std::vector<const Cuts*>& cuts,
               ProcessPlace place)
      : blocks_(rows.size()) {
    if (const Output& row = rows[0]; row.device().is_gpu())
      host_.emplace(row.graph(), row.device());
    Cuts of_ranks{0};
    for (std::size_t r = 0; r < static_cast<std::size_t>(place.size); ++r) {
      std::int64_t next = of_ranks.back();
      for (std::size_t i = 0; i < cuts.size(); ++i) {
        const std::int64_t count = kernels::square_parts((*cuts[i])[r + 1] - (*cuts[i])[r]);
        blocks_[i].push_back({next, next + count});
        next += count;
      }
      of_ranks.push_back(next);
    }
    sums_ = all_gather(squares_of_blocks(rows), place, of_ranks);
  }

  // The sums of tensors [first, last), each by itself.
  Output sums(std::size_t first, std::size_t last) const {
    SumsOfBlocksOptions blocks{.count = static_cast<int>(last - first)};
    for (std::size_t i = first; i < last; ++i)
      for (const WorkRange& range : blocks_[i]) {
        blocks.tensor.push_back(static_cast<int>(i - first));
        blocks.first.push_back(range.begin);
        blocks.blocks.push_back(range.size());
      }
    return sums_of_blocks(sums_, std::move(blocks));
  }

 private:
  std::optional<HostScope> host_;               // instead of a GPU, which has no kernels for this
  std::vector<std::vector<WorkRange>> blocks_;  // of each tensor, rank by rank
  Output sums_;
};

std::vector<Bucket> buckets_of(const GradientTable& grads, double bucket_mb) {
  if (bucket_mb > 0) return cut_buckets(grads, bucket_bytes(bucket_mb));
  std::vector<Bucket> each;
  for (int v = grads.variables(); v-- > 0;) each.emplace_back(v, v + 1);
  return each;
}

}  // namespace

Cuts cut_between_blocks(std::span<const std::int64_t> sizes, int processes) {
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) total += size;
  Cuts cuts{0};
  for (int r = 1; r < processes; ++r) {
    const std::int64_t wanted = total / processes * r + total % processes * r / processes;
    std::int64_t best = cuts.back(), begin = 0;
    for (const std::int64_t size : sizes) {
      const std::int64_t cut = nearest_cut(wanted, begin, size);
      if (cut >= cuts.back() && std::abs(cut - wanted) < std::abs(best - wanted)) best = cut;
      begin += size;
    }
    cuts.push_back(best);
  }
  cuts.push_back(total);
  return cuts;
}

ScatteredGradients::ScatteredGradients(const GradientTable& grads, const ReduceOptions& how,
                                       double bucket_mb)
    : graph_(grads.graph()), variables_(static_cast<std::size_t>(grads.variables())) {
  const bool mean = how.reduction == Reduction::kMean, weighted = !how.weights.empty();
  verify_fresh(grads);
  if (mean) verify_mean(grads);
  const NameScope names(graph_, "ScatterGrads");
  const DeviceScope on(graph_, grads.device(0));
  const EagerScope eager(graph_);
  TowerWeights weights(grads, how);
  const GradientTable leaves = weighted ? weights.applied() : grads;
  for (const auto& [first, last] : buckets_of(grads, bucket_mb))
    scatter(leaves, first, last, mean && !weighted,
            [&](Output sum) { return mean && weighted ? weights.mean_of(sum) : sum; });
}

template <class F>
void ScatteredGradients::scatter(const GradientTable& grads, int first, int last, bool mean,
                                 const F& divide) {
  const ProcessPlace place = graph_.process();
  std::vector<std::int64_t> sizes;
  for (int v = first; v < last; ++v)
    sizes.push_back(known_elements(grads, v, "an update of parts"));
  const Cuts cuts = cut_between_blocks(sizes, place.size);
  const Output sum = divide(own_piece_of_sum(grads, first, last, mean, cuts));
  const auto rank = static_cast<std::size_t>(place.rank);
  std::int64_t begin = 0;
  for (int v = first; v < last; ++v) {
    Part& variable = variables_[static_cast<std::size_t>(v)];
    const std::int64_t size = sizes[static_cast<std::size_t>(v - first)];
    for (const std::int64_t cut : cuts)
      variable.cuts.push_back(std::clamp(cut - begin, std::int64_t{0}, size));
    const std::int64_t in_piece = begin + variable.cuts[rank] - cuts[rank];
    const std::int64_t from = std::clamp(in_piece, std::int64_t{0}, cuts[rank + 1] - cuts[rank]);
    variable.own_piece =
        elements_of(sum, from, from + variable.cuts[rank + 1] - variable.cuts[rank]);
    begin += size;
  }
  sums_.push_back({first, last, cuts});
}

std::vector<ScatteredGradients::Gathered> ScatteredGradients::gather(
    const std::function<Output(int v)>& own) const {
  const NameScope names(graph_, "GatherValues");
  const EagerScope eager(graph_);
  const ProcessPlace place = graph_.process();
  std::vector<Gathered> gathered(variables_.size());
  for (const auto& [first, last, cuts] : sums_ | std::views::reverse) {
    std::vector<Output> rows;
    for (int v = first; v < last; ++v) rows.push_back(own(v));
    const Output row = all_gather(concat(rows, 0), place, cuts);
    std::int64_t begin = 0;
    for (int v = first; v < last; ++v) {
      gathered[static_cast<std::size_t>(v)] = {row, {begin, place.rank, of(v).cuts}};
      begin += of(v).cuts.back();
    }
  }
  return gathered;
}

Output ScatteredGradients::squares(std::span<const Output> rows) const {
  std::vector<const Cuts*> cuts;
  for (const Part& variable : variables_) cuts.push_back(&variable.cuts);
  return SquaresOfAll(rows, cuts, graph_.process()).sums(0, cuts.size());
}

std::vector<Output> ScatteredGradients::norms(int v, std::span<const Output> rows) const {
  const SquaresOfAll squares(rows, std::vector(rows.size(), &of(v).cuts), graph_.process());
  std::vector<Output> norms;
  for (std::size_t i = 0; i < rows.size(); ++i)
    norms.push_back(norm_of_sums({{squares.sums(i, i + 1)}}));
  return norms;
}

}  // namespace belfry
