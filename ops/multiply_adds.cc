#include "belfry/ops/multiply_adds.h"

#include <algorithm>
#include <span>
#include <vector>

#include "belfry/framework/trace/launch_work.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/matmul.h"

namespace belfry {
namespace {

double counted(std::int64_t size) { return static_cast<double>(std::max<std::int64_t>(1, size)); }

// The elements in the dimensions from `first` on.
double elements_from(const Shape& shape, std::size_t first) {
  double result = 1;
  for (std::size_t i = first; i < shape.rank(); ++i) result *= counted(shape[i]);
  return result;
}

double of_matmul(const Node& node, const Shape& a, const Shape& product) {
  const bool by_rows = node.options<MatMulOptions>().transpose_a;
  return elements_from(product, 0) * counted(by_rows ? a[a.rank() - 2] : a.back());
}

// For q [batch, time, width] and k [batch, keys, width]. Forward has two products: scores, and the
// weighted sum of values. Backward has five products: scores again, and the gradients of values,
// weights, queries and keys. Pairs that are not seen count, too.
double of_attention(const Shape& q, const Shape& k, int products) {
  return products * elements_from(q, 0) * counted(k[1]);
}

// Weights have the shapes of the node: those of a plan may be packed.
double of_types(const Node& node, std::span<const TensorType> inputs,
                std::span<const TensorType> outputs) {
  const Op* const op = &node.op();
  if (op == &kMatMul || op == &kBroadcastMatMul)
    return of_matmul(node, inputs[0].shape, outputs[0].shape);
  if (op == &kMatMulTransposeA)
    return elements_from(outputs[0].shape, 0) * counted(inputs[0].shape[0]);
  // Each element of the output, or of dy, uses the filter of one output channel.
  if (op == &kConv2d)
    return elements_from(outputs[0].shape, 0) * elements_from(node.input(1).shape(), 1);
  if (op == &kConv2dGradInput)
    return elements_from(inputs[0].shape, 0) * elements_from(node.input(1).shape(), 1);
  if (op == &kConv2dGradFilter)
    return elements_from(inputs[1].shape, 0) * elements_from(node.output_type(0).shape, 1);
  if (op == &kAttention) return of_attention(inputs[0].shape, inputs[1].shape, 2);
  if (op == &kAttentionGrad) return of_attention(inputs[0].shape, inputs[2].shape, 5);
  return 0;
}

[[maybe_unused]] const bool kIsSet = (set_multiply_adds(of_types), true);

}  // namespace

double multiply_adds(const Node& node) {
  std::vector<TensorType> inputs, outputs;
  for (const Output& input : node.inputs()) inputs.push_back(input.type());
  for (std::size_t i = 0; i < node.outputs(); ++i) outputs.push_back(node.output_type(i));
  return of_types(node, inputs, outputs);
}

}  // namespace belfry
