#include "belfry/ops/losses/edit_distance.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/kernels/on_host.h"

namespace belfry {
namespace edit_distance_op {
namespace {

OutputTypes shape(const ShapeContext& c) {
  for (std::size_t i = 0; i < 4; ++i) {
    c.require(c.dtype(i) == DType::kI64, "input ", i, " is ", name_of(c.dtype(i)),
              ", but must be i64");
    c.require_rank(i, i % 2 == 0 ? 2 : 1);
    c.require(Shape{c.input(0)[0]}.compatible(Shape{c.input(i)[0]}), "labels ", c.input(0),
              " and input ", i, ", ", c.input(i), ", differ in number");
  }
  std::int64_t rows = c.input(0)[0];
  for (std::size_t i = 1; i < 4 && rows == kUnknownSize; ++i) rows = c.input(i)[0];
  return {{Shape{rows}, DType::kI32}};
}

using Labels = std::span<const std::int64_t>;

// `distances` [b.size() + 1]: those of the labels of a so far from the beginnings of b.
std::int32_t distance(Labels a, Labels b, std::int32_t* distances) {
  for (std::size_t j = 0; j <= b.size(); ++j) distances[j] = static_cast<std::int32_t>(j);
  for (const std::int64_t label : a) {
    std::int32_t before = distances[0]++;  // of one label less of both
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int32_t replaced = before + (label == b[j] ? 0 : 1);
      before = distances[j + 1];
      distances[j + 1] = std::min({replaced, before + 1, distances[j] + 1});
    }
  }
  return distances[b.size()];
}

KernelRun kernel(KernelPlan& plan) {
  const std::int64_t most_a = plan.input(0).shape[1], most_b = plan.input(2).shape[1];
  plan.workspace((most_b + 1) * static_cast<std::int64_t>(sizeof(std::int32_t)));
  const Node* const node = &plan.node();
  return [=](const KernelPointers& p) {
    const auto labels = [&](std::size_t input, std::int64_t row, std::int64_t most) -> Labels {
      const std::int64_t length = p.input<std::int64_t>(input + 1)[row];
      if (length < 0 || length > most)
        throw InvalidArgument(cat(node->describe(), ": length ", length, " is not in [0, ", most,
                                  "] (row ", p.first_row() + row, ")"));
      return {p.input<std::int64_t>(input) + row * most, static_cast<std::size_t>(length)};
    };
    auto* const distances = reinterpret_cast<std::int32_t*>(p.workspace());
    for (std::int64_t row = p.begin(); row < p.end(); ++row)
      p.output<std::int32_t>()[row] =
          distance(labels(0, row, most_a), labels(2, row, most_b), distances);
  };
}

}  // namespace
}  // namespace edit_distance_op

const Op kEditDistance{.name = "EditDistance",
                       .inputs = 4,
                       .shape = edit_distance_op::shape,
                       .no_gradient = "it counts, and is constant almost everywhere",
                       .split = WorkSplit::kRows,
                       .shards = by_rows<0b1111>,
                       .reference = edit_distance_op::kernel,
                       .cpu_only = "it compares labels one by one, which hosts do"};

Output edit_distance(Output a, Output a_lengths, Output b, Output b_lengths, At at) {
  const SiteScope site(a.graph(), at.site);
  const auto wide = [](Output x) { return cast(x, DType::kI64); };
  return add_on_host(kEditDistance, {wide(a), wide(a_lengths), wide(b), wide(b_lengths)}, at)
      .output();
}

}  // namespace belfry
