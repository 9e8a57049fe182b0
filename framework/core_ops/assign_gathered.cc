#include "belfry/framework/core_ops/assign_gathered.h"

#include <algorithm>
#include <cstring>

namespace belfry {
namespace {

constexpr char kCollection[] = "gathered_values";

OutputTypes assign_gathered_shape(const ShapeContext& c) {
  const auto& options = c.options<AssignGatheredOptions>();
  const Cuts& cuts = options.cuts;
  c.require_same_dtype();
  c.require_rank(1, 1);
  c.require(options.rank >= 0 && options.rank + 1 < std::ssize(cuts), "is of rank ", options.rank,
            ", but cuts ", cuts.size(), " - 1 parts");
  c.require(
      c.input(0).is_fully_known() && cuts.front() == 0 && cuts.back() == c.input(0).elements(),
      "cuts ", cuts.back(), " elements, but the variable is ", c.type(0));
  c.require(options.first >= 0 && options.first + cuts.back() <= c.input(1)[0],
            "the variable is elements ", options.first, " to ", options.first + cuts.back(),
            " of a row, which is ", c.type(1));
  return {c.type(0)};
}

KernelRun assign_gathered_reference(KernelPlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [size, options = plan.options<AssignGatheredOptions>()](const KernelPointers& p) {
    for (const auto& [begin, end] : parts_of_others(options, {p.begin(), p.end()}))
      std::memcpy(p.written<char>(0) + begin * size,
                  p.input<char>(1) + (options.first + begin) * size,
                  static_cast<std::size_t>((end - begin) * size));
  };
}

}  // namespace

const Op kAssignGathered{.name = "AssignGathered",
                         .inputs = 2,
                         .shape = assign_gathered_shape,
                         .no_gradient = "it changes a variable",
                         .split = WorkSplit::kElements,
                         .writes = 1,
                         .reference = assign_gathered_reference,
                         .half = true};

std::array<WorkRange, 2> parts_of_others(const AssignGatheredOptions& options, WorkRange range) {
  const WorkRange own = piece_of(options.cuts, options.rank);
  const std::int64_t before = std::clamp(own.begin, range.begin, range.end);
  const std::int64_t behind = std::clamp(own.end, range.begin, range.end);
  return {{{range.begin, before}, {behind, range.end}}};
}

Node& assign_gathered(Variable variable, Output row, AssignGatheredOptions options, At at) {
  Graph& graph = row.graph();
  Node& node =
      graph.add(kAssignGathered, {variable.ref(), row}, at, NodeOptions(std::move(options)));
  graph.add_to_collection(kCollection, node);
  return node;
}

std::vector<Node*> gathered_assigns(const Graph& graph) { return graph.nodes(kCollection); }

}  // namespace belfry
