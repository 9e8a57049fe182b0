// Helpers of strategies that work variable by variable, on pieces of tensors. The device scopes in
// force place nodes, except the quotients of divided().
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// Sizes of `pieces` consecutive pieces of nearly equal size: the first ones have one element more.
// Empty pieces are left out, so there are min(elements, pieces).
std::vector<std::int64_t> even_sizes(std::int64_t elements, std::int64_t pieces);

// Throws InvalidArgument, naming variable v's gradient, unless there is one result per tower.
void require_results(const GradientTable& grads, int v, std::size_t results);

// Makes the results of Strategy::combine or sum from `combine(v)`, which gives the results of
// variable v for each tower.
template <class F>
OutputRows by_variable(const GradientTable& grads, const F& combine) {
  OutputRows rows(static_cast<std::size_t>(grads.towers()));
  for (int v = 0; v < grads.variables(); ++v) {
    const std::vector<Output> combined = combine(v);
    require_results(grads, v, combined.size());
    for (std::size_t t = 0; t < rows.size(); ++t) rows[t].push_back(combined[t]);
  }
  return rows;
}

// Makes the results from `combine(g, table)`, which gets a table of the variables groups[g] and
// returns their results. Each variable is in one group; groups without variables are left out.
// Throws InvalidArgument as GradientTable::with does.
template <class F>
OutputRows by_group(const GradientTable& grads, const std::vector<std::vector<int>>& groups,
                    const F& combine) {
  const auto variables = static_cast<std::size_t>(grads.variables());
  std::vector rows(static_cast<std::size_t>(grads.towers()), std::vector<Output>(variables));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty()) continue;
    const GradientTable some = grads.columns(groups[g]);
    const GradientTable combined = some.with(combine(g, some));
    for (int t = 0; t < grads.towers(); ++t)
      for (int i = 0; i < some.variables(); ++i)
        rows[static_cast<std::size_t>(t)]
            [static_cast<std::size_t>(groups[g][static_cast<std::size_t>(i)])] =
                combined.at(t, i).value;
  }
  return rows;
}

// Applies `divide` to each distinct sum once, on the tower's device. If several towers share a sum,
// it is divided where it is.
OutputRows divided(const GradientTable& sums, const std::function<Output(Output sum)>& divide);

// The number of elements of variable v. If its shape is unknown, throws InvalidArgument naming the
// gradient and `who`, which needs the shape.
std::int64_t known_elements(const GradientTable& grads, int v, std::string_view who);

// The tensor with one dimension. Its shape must be known.
Output flat_row(Output tensor);
// The elements [begin, begin + size) of a row. The whole row needs no node.
Output piece_of(Output row, std::int64_t begin, std::int64_t size);
// A row cut into consecutive pieces. A single piece needs no node.
std::vector<Output> cut(Output row, const std::vector<std::int64_t>& sizes);
// The rows end to end. A single row is returned unchanged.
Output join_flat(const std::vector<Output>& rows);

}  // namespace belfry
