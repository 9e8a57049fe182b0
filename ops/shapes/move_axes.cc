#include "belfry/ops/shapes/move_axes.h"

#include <numeric>

#include "belfry/framework/base/require.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

std::ptrdiff_t place_of(Output x, int axis, const char* what, At at) {
  const auto rank = static_cast<int>(x.shape().rank());
  require(axis >= -rank && axis < rank, what, " (", at.site, "): ", x.type(), " has no axis ",
          axis);
  return static_cast<std::ptrdiff_t>(from_end(axis, x.shape().rank()));
}

std::vector<int> order_of(Output x) {
  std::vector<int> order(x.shape().rank());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Output swapaxes(Output x, int first, int second, At at) {
  const auto a = place_of(x, first, "swapaxes", at), b = place_of(x, second, "swapaxes", at);
  if (a == b) return x;
  std::vector<int> order = order_of(x);
  std::iter_swap(order.begin() + a, order.begin() + b);
  return transpose(x, std::move(order), at);
}

Output moveaxis(Output x, int from, int to, At at) {
  const auto a = place_of(x, from, "moveaxis", at), b = place_of(x, to, "moveaxis", at);
  if (a == b) return x;
  std::vector<int> order = order_of(x);
  order.erase(order.begin() + a);
  order.insert(order.begin() + b, static_cast<int>(a));
  return transpose(x, std::move(order), at);
}

}  // namespace belfry
