#include "belfry/ops/normalization/gather_moments.h"

#include <cstring>
#include <iterator>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr std::size_t kInputsPerMoments = 3;  // mean, squares, count
constexpr const char* kBelongsToOthers = "it belongs to nodes that have one";
constexpr const char* kMovesMemory = "it moves memory of hosts";

OutputTypes gather_moments_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0 && c.inputs() % kInputsPerMoments == 0,
            "needs as many means as sums of squares and counts");
  c.require_same_dtype();
  return {Shape{kUnknownSize, 2 * c.input(0).back() + 1}};
}

// The processes that gather from each other at a level.
struct LevelPeers {
  int rank, size;  // of this process among them, and how many there are
  int stride;      // from the rank of one to that of the next

  int process(int own, int r) const { return own + (r - rank) * stride; }
};

LevelPeers peers_at(int level, ProcessPlace place) {
  const std::vector<int> levels = tree_levels(place.size);
  LevelPeers peers{0, levels.at(static_cast<std::size_t>(level)), 1};
  for (int l = 0; l < level; ++l) peers.stride *= levels[static_cast<std::size_t>(l)];
  peers.rank = place.rank / peers.stride % peers.size;
  return peers;
}

// The rows of one process in the output of all.
std::span<std::byte> rows_of(int rank, std::size_t rows, std::size_t row_bytes, void* output) {
  return {static_cast<std::byte*>(output) + static_cast<std::size_t>(rank) * rows * row_bytes,
          rows * row_bytes};
}

std::size_t row_bytes_of(const TensorType& mean) {
  return static_cast<std::size_t>(2 * mean.shape.elements() + 1) * size_of(mean.dtype);
}

// The kernel has filled this process's rows, which go to all others. Each process begins with the
// next one.
template <int kLevel>
Exchange gather_moments_exchange(const Node& node, const KernelPointers& p) {
  const int own = node.graph().process().rank;
  const LevelPeers peers = peers_at(kLevel, node.graph().process());
  const std::size_t row = row_bytes_of(node.output_type(0)),
                    rows = kLevel == 0 ? p.inputs() / kInputsPerMoments : 1;
  Exchange exchange;
  for (int i = 1; i < peers.size; ++i) {
    const int r = (peers.rank + i) % peers.size, process = peers.process(own, r);
    exchange.received.push_back({process, kMomentsTag, rows_of(r, rows, row, p.output<void>())});
    exchange.sent.push_back(
        {process, kMomentsTag, rows_of(peers.rank, rows, row, p.output<void>())});
  }
  return exchange;
}

KernelRun gather_parts_kernel(KernelPlan& plan) {
  const std::size_t row = row_bytes_of(plan.input(0)), element = size_of(plan.dtype());
  const std::size_t channels = (row - element) / 2;
  return [=, rank = peers_at(0, plan.node().graph().process()).rank](const KernelPointers& p) {
    const std::size_t parts = p.inputs() / kInputsPerMoments;
    std::byte* to = rows_of(rank, parts, row, p.output<void>()).data();
    for (std::size_t k = 0; k < parts; ++k, to += row) {
      std::memcpy(to, p.input<void>(kInputsPerMoments * k), channels);
      std::memcpy(to + channels, p.input<void>(kInputsPerMoments * k + 1), channels);
      std::memcpy(to + 2 * channels, p.input<void>(kInputsPerMoments * k + 2), element);
    }
  };
}

template <int kLevel>
KernelRun gather_row_kernel(KernelPlan& plan) {
  const auto row = static_cast<std::size_t>(plan.input(0).bytes());
  return [=, rank = peers_at(kLevel, plan.node().graph().process()).rank](const KernelPointers& p) {
    std::memcpy(rows_of(rank, 1, row, p.output<void>()).data(), p.input<void>(0), row);
  };
}

OutputTypes gather_rows_shape(const ShapeContext& c) {
  c.require_rank(0, 2);
  return {Shape{kUnknownSize, c.input(0)[1]}};
}

// Later levels, which find their peers by their number.
Op later_level(const char* name, decltype(Op::exchange) exchange,
               KernelRun (*kernel)(KernelPlan&)) {
  return {.name = name,
          .inputs = 1,
          .shape = gather_rows_shape,
          .no_gradient = kBelongsToOthers,
          .exchange = exchange,
          .reference = kernel,
          .cpu_only = kMovesMemory};
}

}  // namespace

const Op kGatherMoments{.name = "GatherMoments",
                        .inputs = kVariadicInputs,
                        .shape = gather_moments_shape,
                        .no_gradient = kBelongsToOthers,
                        .exchange = gather_moments_exchange<0>,
                        .reference = gather_parts_kernel,
                        .cpu_only = kMovesMemory};
const Op kGatherMoments1 =
    later_level("GatherMoments1", gather_moments_exchange<1>, gather_row_kernel<1>);
const Op kGatherMoments2 =
    later_level("GatherMoments2", gather_moments_exchange<2>, gather_row_kernel<2>);
const Op kGatherMoments3 =
    later_level("GatherMoments3", gather_moments_exchange<3>, gather_row_kernel<3>);

const Op& gather_moments_at(std::size_t level) {
  const Op* const levels[] = {&kGatherMoments, &kGatherMoments1, &kGatherMoments2,
                              &kGatherMoments3};
  require<InternalError>(level < std::size(levels), "GatherMoments has no level ", level);
  return *levels[level];
}

}  // namespace belfry
