#include "belfry/ops/jacobian.h"

#include <algorithm>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

void check(Output y, std::span<const Output> xs, const GradientOptions& options, SourceLine site) {
  const std::string where = cat("jacobian (", site, ")");
  require(static_cast<bool>(y), where, ": y is empty");
  require(y.shape().rank() <= 1, where, " of ", y.node().describe(), ": y has shape ", y.shape(),
          ", but must be a vector; reshape it to rank 1");
  require(y.shape().is_fully_known(), where, " of ", y.node().describe(),
          ": the size of y must be known, but its shape is ", y.shape());
  require(y.shape().elements() > 0, where, " of ", y.node().describe(), ": y has no elements");
  require(options.initial.empty(), where, ": a jacobian takes no initial gradient");
  for (const Output& x : xs)
    require(!x || std::ranges::count(x.shape().dims(), kUnknownSize) <= 1, where,
            ": at most one dimension of ", x ? x.name() : "", " may be unknown, but its shape is ",
            x ? x.shape() : Shape());
}

// [x...] -> [1, x...].
Output as_row(Output gradient, const Shape& x) {
  std::vector<std::int64_t> dims = x.dims();
  dims.insert(dims.begin(), 1);
  return reshape(gradient, Shape(dims), "row");
}

Output element(Output y, std::int64_t i, bool colocate) {
  std::optional<ColocateWith> beside;
  if (colocate) beside.emplace(y);
  return slice(y, {i}, {1}, "y");
}

}  // namespace

std::vector<Output> jacobian(Output y, std::span<const Output> xs, GradientOptions options, At at) {
  check(y, xs, options, at.site);
  Graph& graph = y.graph();
  const SiteScope site(graph, at.site);
  const NameScope names(graph, at.name.empty() ? "jacobian" : at.name);
  if (y.shape().rank() == 0) return gradients(y, xs, options, at.site);
  std::vector<std::vector<Output>> rows(xs.size());  // by x
  for (std::int64_t i = 0; i < y.shape()[0]; ++i) {
    const std::vector<Output> row =
        gradients(element(y, i, options.colocate), xs, options, at.site);
    for (std::size_t k = 0; k < xs.size(); ++k) rows[k].push_back(row[k]);
  }
  std::vector<Output> result;
  for (std::size_t k = 0; k < xs.size(); ++k) {
    // All rows have the same paths to x, so either all are empty or none.
    if (!rows[k][0]) {
      result.emplace_back();
      continue;
    }
    std::optional<ColocateWith> beside;
    if (options.colocate) beside.emplace(xs[k]);
    for (Output& row : rows[k]) row = as_row(row, xs[k].shape());
    result.push_back(concat(rows[k], 0));
  }
  return result;
}

Output jacobian(Output y, Output x, GradientOptions options, At at) {
  return jacobian(y, std::span<const Output>(&x, 1), std::move(options), at)[0];
}

Output jacobian(Output y, Variable x, GradientOptions options, At at) {
  return jacobian(y, x.ref(), std::move(options), at);
}

}  // namespace belfry
