#include "belfry/ops/normalization/gather_moments.h"

#include <cstring>

#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

constexpr std::size_t kInputsPerMoments = 3;  // mean, squares, count

OutputTypes gather_moments_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0 && c.inputs() % kInputsPerMoments == 0,
            "needs as many means as sums of squares and counts");
  c.require_same_dtype();
  return {Shape{kUnknownSize, 2 * c.input(0).back() + 1}};
}

// The rows of one process in the output of all.
std::span<std::byte> rows_of(int rank, std::size_t parts, std::size_t row_bytes, void* output) {
  return {static_cast<std::byte*>(output) + static_cast<std::size_t>(rank) * parts * row_bytes,
          parts * row_bytes};
}

std::size_t row_bytes_of(const TensorType& mean) {
  return static_cast<std::size_t>(2 * mean.shape.elements() + 1) * size_of(mean.dtype);
}

// The kernel has filled this process's rows, which go to all others.
Exchange gather_moments_exchange(const Node& node, const KernelPointers& p) {
  const ProcessPlace place = node.graph().process();
  const std::size_t row = row_bytes_of(node.output_type(0)), parts = p.inputs() / kInputsPerMoments;
  Exchange exchange;
  for (int r = 0; r < place.size; ++r) {
    if (r == place.rank) continue;
    exchange.received.push_back({r, kMomentsTag, rows_of(r, parts, row, p.output<void>())});
    exchange.sent.push_back({r, kMomentsTag, rows_of(place.rank, parts, row, p.output<void>())});
  }
  return exchange;
}

KernelRun gather_moments_kernel(KernelPlan& plan) {
  const std::size_t row = row_bytes_of(plan.input(0)), element = size_of(plan.dtype());
  const std::size_t channels = (row - element) / 2;
  return [=, rank = plan.node().graph().process().rank](const KernelPointers& p) {
    const std::size_t parts = p.inputs() / kInputsPerMoments;
    std::byte* to = rows_of(rank, parts, row, p.output<void>()).data();
    for (std::size_t k = 0; k < parts; ++k, to += row) {
      std::memcpy(to, p.input<void>(kInputsPerMoments * k), channels);
      std::memcpy(to + channels, p.input<void>(kInputsPerMoments * k + 1), channels);
      std::memcpy(to + 2 * channels, p.input<void>(kInputsPerMoments * k + 2), element);
    }
  };
}

}  // namespace

const Op kGatherMoments{.name = "GatherMoments",
                        .inputs = kVariadicInputs,
                        .shape = gather_moments_shape,
                        .no_gradient = "it belongs to nodes that have one",
                        .exchange = gather_moments_exchange,
                        .reference = gather_moments_kernel,
                        .cpu_only = "it moves memory of hosts"};

}  // namespace belfry
