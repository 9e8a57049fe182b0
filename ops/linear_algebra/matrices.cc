#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/linear_algebra/matrices_impl.h"

namespace belfry {

void require_square(const ShapeContext& c, std::size_t input) {
  const DType dtype = c.dtype(input);
  c.require(dtype == DType::kF32 || dtype == DType::kF64, "takes f32 and f64, not ", name_of(dtype),
            "; use cast");
  const Shape& a = c.input(input);
  c.require(a.rank() >= 3 && Shape{a[a.rank() - 2]}.compatible(Shape{a.back()}),
            "needs square matrices, not ", a);
}

void refuse_matrix(const Node& node, std::int64_t matrix, const std::string& why) {
  throw InvalidArgument(cat(node.describe(), ": matrix ", matrix, " of the batch ", why));
}

}  // namespace belfry
