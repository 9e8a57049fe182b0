#include "belfry/allreduce/pieces.h"

#include <algorithm>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

// A sum that requests no device, because its variable requests none, is placed by its colocation,
// whatever device scopes are outside.
Output divided_on(const GradientTable& sums, int tower, Output total, bool shared,
                  const std::function<Output(Output)>& divide) {
  if (shared && total.device().empty()) {
    const ColocateWith beside(total);
    return divide(total);
  }
  const DeviceScope on(sums.graph(), shared ? total.device() : sums.device(tower));
  return divide(total);
}

}  // namespace

std::vector<std::int64_t> even_sizes(std::int64_t elements, std::int64_t pieces) {
  const std::int64_t count = std::min(elements, pieces);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < count; ++i)
    sizes.push_back(elements / count + (i < elements % count ? 1 : 0));
  return sizes;
}

void require_results(const GradientTable& grads, int v, std::size_t results) {
  const auto towers = static_cast<std::size_t>(grads.towers());
  if (results == towers) return;
  const Output first = grads.at(0, v).value;
  throw InvalidArgument(cat("a strategy gives ", results,
                            " results for the gradients of a variable",
                            " instead of one for each of ", towers, " towers; the first gradient ",
                            "is ", first.node().describe()));
}

OutputRows divided(const GradientTable& sums, const std::function<Output(Output sum)>& divide) {
  OutputRows means(static_cast<std::size_t>(sums.towers()));
  std::map<std::pair<int, int>, Output> done;  // by node and output of the sum
  for (int v = 0; v < sums.variables(); ++v) {
    for (int t = 0; t < sums.towers(); ++t) {
      const Output total = sums.at(t, v).value;
      Output& mean = done[total.key()];
      if (!mean) {
        mean = divided_on(sums, t, total, std::ranges::count(sums.values(v), total) > 1, divide);
      }
      means[static_cast<std::size_t>(t)].push_back(mean);
    }
  }
  return means;
}

std::int64_t known_elements(const GradientTable& grads, int v, std::string_view who) {
  const Output value = grads.at(0, v).value;
  require(value.shape().is_fully_known(), who, " cuts tensors by their elements, but the shape of ",
          value.node().describe(), ", ", value.shape(), ", is not fully known");
  return value.shape().elements();
}

Output flat_row(Output tensor) { return reshape(tensor, {tensor.shape().elements()}); }

Output piece_of(Output row, std::int64_t begin, std::int64_t size) {
  return size == row.shape()[0] ? row : slice(row, {begin}, {size});
}

std::vector<Output> cut(Output row, const std::vector<std::int64_t>& sizes) {
  std::vector<Output> pieces;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(piece_of(row, begin, size));
    begin += size;
  }
  return pieces;
}

Output join_flat(const std::vector<Output>& rows) { return concat(rows, 0); }

}  // namespace belfry
