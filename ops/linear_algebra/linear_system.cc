#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/linear_algebra/linear_system_impl.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/sum_to.h"

namespace belfry {
namespace {

bool is_one_matrix(const Shape& a) {
  for (std::size_t axis = 0; axis + 2 < a.rank(); ++axis)
    if (a[axis] != 1) return false;
  return true;
}

}  // namespace

LinearSystem::LinearSystem(const char* what, Output matrices, Output right, At at)
    : a(matrices), b(right) {
  const std::size_t rank = a.shape().rank();
  require(rank >= 2 && b.shape().rank() + 1 >= rank && b.shape().rank() >= 1, what, " (", at.site,
          "): a [..., n, n] and b [..., n] or [..., n, k] are needed, not ", a.type(), " and ",
          b.type());
  vectors_ = b.shape().rank() + 1 == rank;
  if (vectors_) b = expand_dims(b, -1, at.site);
  single_ = b.shape().rank() == 2;
  if (single_) b = expand_dims(b, 0, at.site);
  while (a.shape().rank() < b.shape().rank()) a = expand_dims(a, 0, at.site);
}

Output LinearSystem::given_shape(Output x) const {
  if (single_) x = squeeze(x, {0});
  return vectors_ ? squeeze(x, {-1}) : x;
}

OutputTypes linear_system_shape(const ShapeContext& c) {
  const Shape &b = c.input(0), &a = c.input(1);
  require_square(c, 1);
  c.require(c.dtype(0) == c.dtype(1), "a and b are ", name_of(c.dtype(1)), " and ",
            name_of(c.dtype(0)), "; use cast");
  Shape fitting = a;
  if (a.rank() == b.rank()) {
    if (is_one_matrix(a))
      for (std::size_t axis = 0; axis + 2 < a.rank(); ++axis) fitting[axis] = b[axis];
    fitting[a.rank() - 1] = b.back();
  }
  c.require(
      fitting.compatible(b), "matrices ", a, " do not fit right sides ", b,
      "; these have as many rows, and the same leading dimensions unless there is one matrix");
  return {c.type(0)};
}

Sharding linear_system_shards(const ShardContext& c) {
  const Shape &b = c.inputs[0].shape, &a = c.inputs[1].shape;
  const bool own_matrices = a[0] == b[0] && !(is_one_matrix(a) && !is_one_matrix(b));
  return row_shards(c, own_matrices ? (1u << c.inputs.size()) - 1 : 1);
}

std::vector<Output> linear_system_gradient(const Node& node, bool transpose, Output gradient_of_b) {
  const Output x = node.output(), a = node.input(1);
  const Output product = neg(transpose ? matmul(x, gradient_of_b, {.transpose_b = true})
                                       : matmul(gradient_of_b, x, {.transpose_b = true}));
  Shape leading = x.shape();
  leading[leading.rank() - 2] = leading[leading.rank() - 1] = 1;
  return {gradient_of_b, sum_to(product, a, leading)};
}

}  // namespace belfry
