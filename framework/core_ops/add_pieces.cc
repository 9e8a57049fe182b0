#include "belfry/framework/core_ops/add_pieces.h"

#include <algorithm>

#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

// Adds covering nodes, at least two, as the canonical tree does.
class CoveringSum {
 public:
  CoveringSum(int size, int towers)
      : nodes_(all_covering_nodes(size, towers)), root_{0, size * towers} {}

  template <class T>
  void add(std::span<const void* const> rows, T* sum, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t from = begin; from < end; from += kBlock)
      add_block(rows, nodes_, root_, sum + from, from, std::min(kBlock, end - from));
  }

 private:
  static constexpr std::int64_t kBlock = 1024;
  using Nodes = std::span<const TreeNode>;
  using Rows = std::span<const void* const>;

  template <class T>
  void add_block(Rows rows, Nodes nodes, TreeNode node, T* sum, std::int64_t from,
                 std::int64_t size) const {
    const int middle = middle_of(node);
    const std::size_t left = count_left(nodes, node);
    T terms[2][kBlock];
    // A row itself, or the sum of several rows.
    const auto half = [&](Rows some, Nodes of_some, TreeNode over, T* term) -> const void* {
      if (some.size() == 1) return static_cast<const T*>(some[0]) + from;
      add_block(some, of_some, over, term, from, size);
      return term;
    };
    const void* const both[] = {
        half(rows.first(left), nodes.first(left), {node.begin, middle}, terms[0]),
        half(rows.subspan(left), nodes.subspan(left), {middle, node.end}, terms[1])};
    void* const into[] = {sum};
    kernels::tree_sum<T>(both, into, 0, size);
  }

  const std::vector<TreeNode> nodes_;
  const TreeNode root_;
};

OutputTypes add_shape(const ShapeContext& c) {
  const auto& [place, towers, mean, cuts, whole] = c.options<PieceOptions>();
  c.require_same_dtype();
  const Shape others{count_nodes_of_others(place.rank, place.size, towers),
                     piece_of(cuts, place.rank).size()};
  const std::size_t own = covering_nodes_of(place.rank, place.size, towers).size();
  c.require(c.inputs() == own + 1, "takes ", own, " rows of its own, not ", c.inputs() - 1);
  c.require(c.input(own) == others, "takes rows ", others, ", not ", c.input(own));
  for (std::size_t i = 0; i < own; ++i)
    c.require(c.input(i) == Shape{cuts.back()}, "cuts ", cuts.back(), " elements, but has ",
              c.input(i));
  return {Shape{whole ? cuts.back() : others[1]}};
}

template <class T>
KernelRun add_kernel_of(KernelPlan& plan) {
  const auto& options = plan.options<PieceOptions>();
  const ProcessPlace place = options.place;
  return [sum = CoveringSum(place.size, options.towers),
          form = piece_sum(plan)](const KernelPointers& p) {
    const std::int64_t length = form.piece.size();
    std::vector<const void*> terms;
    for (std::int64_t r = 0; r < std::ssize(form.additions) - form.own; ++r)
      terms.push_back(p.input<T>(p.inputs() - 1) + r * length);
    for (int i = 0; i < form.own; ++i)
      terms.insert(terms.begin() + form.first_own + i,
                   p.input<T>(static_cast<std::size_t>(i)) + form.piece.begin);
    T* const result = p.output<T>() + (form.whole ? form.piece.begin : 0);
    const WorkRange range = form.in_piece(p);
    sum.add(terms, result, range.begin, range.end);
    if (form.divisor == 1) return;
    for (std::int64_t i = range.begin; i < range.end; ++i)
      result[i] /= static_cast<T>(form.divisor);
  };
}

KernelRun add_kernel(KernelPlan& plan) {
  return plan.dtype() == DType::kF32 ? add_kernel_of<float>(plan) : add_kernel_of<double>(plan);
}

}  // namespace

const Op kAddPieces{.name = "AddPieces",
                    .inputs = kVariadicInputs,
                    .shape = add_shape,
                    .no_gradient = "gradients are taken in each process",
                    .split = WorkSplit::kElements,
                    .in_place = InPlace::kFirst,
                    .reference = add_kernel};

PieceSum piece_sum(const KernelPlan& plan) {
  const auto& [place, towers, mean, cuts, whole] = plan.options<PieceOptions>();
  const int rank = place.rank, size = place.size;
  const std::vector<TreeNode> all = all_covering_nodes(size, towers);
  const auto first = std::ranges::lower_bound(all, rank * towers, {}, &TreeNode::begin);
  PieceSum sum{.additions = {},
               .divisor = mean ? size * towers : 1,
               .first_own = static_cast<int>(first - all.begin()),
               .own = static_cast<int>(covering_nodes_of(rank, size, towers).size()),
               .piece = piece_of(cuts, rank),
               .whole = whole};
  sum.additions = additions_in_order(all, {0, size * towers});
  return sum;
}

WorkRange PieceSum::in_piece(const KernelPointers& p) const {
  if (!whole) return {p.begin(), p.end()};
  return {std::clamp(p.begin() - piece.begin, std::int64_t{0}, piece.size()),
          std::clamp(p.end() - piece.begin, std::int64_t{0}, piece.size())};
}

Output add_pieces(std::span<const Output> own, Output others, const PieceOptions& options, At at) {
  std::vector<Output> inputs(own.begin(), own.end());
  inputs.push_back(others);
  return others.graph().add(kAddPieces, inputs, at, NodeOptions(options)).output();
}

}  // namespace belfry
