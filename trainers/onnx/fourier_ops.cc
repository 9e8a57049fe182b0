#include "belfry/ops/linear_algebra/fourier_ops.h"

#include <cmath>
#include <numeric>

#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// A DFT of complex numbers along their last axis, whose inverse divides by n.
std::string transform(OnnxGraph& g, const std::string& x, std::size_t axis, bool inverse,
                      bool onesided) {
  return g.add("DFT", {x},
               {{"axis", static_cast<std::int64_t>(axis)},
                {"inverse", std::int64_t{inverse}},
                {"onesided", std::int64_t{onesided}}});
}

// By what such a transform has to be multiplied.
double factor_of(FourierScale scale, std::int64_t n, bool inverse) {
  const auto size = static_cast<double>(n);
  double factor = inverse ? size : 1;
  if (scale == FourierScale::kRoot) factor /= std::sqrt(size);
  if (scale == FourierScale::kAll) factor /= size;
  return factor;
}

std::string scaled(OnnxGraph& g, const Node& node, const std::string& x, double factor) {
  if (factor == 1) return x;
  return g.add("Mul", {x, g.number(factor, node.output().dtype())});
}

void write_fft(OnnxGraph& g, const Node& node) {
  const auto& [inverse, scale] = node.options<FourierOptions>();
  const Shape& shape = node.output().shape();
  const std::size_t axis = shape.rank() - 2;
  const std::string y = transform(g, g.in(node.input(0)), axis, inverse, false);
  g.set(node.output(), scaled(g, node, y, factor_of(scale, shape[axis], inverse)));
}

// Each op of real numbers is the gradient of the other, with the other value of both_signs.
void require_both_signs(const Node& node, bool wanted) {
  if (node.options<RealFourierOptions>().both_signs != wanted)
    refuse(node, "it is the gradient of another transform");
}

void write_real_fft(OnnxGraph& g, const Node& node) {
  require_both_signs(node, false);
  const auto& [n, scale, both_signs] = node.options<RealFourierOptions>();
  const std::string x = g.add("Unsqueeze", {g.in(node.input(0)), g.ints({-1})});
  const std::string y = transform(g, x, node.input(0).shape().rank() - 1, false, true);
  g.set(node.output(), scaled(g, node, y, factor_of(scale, n, false)));
}

// Frequencies n / 2 + 1 to n - 1 are the conjugates of those below n / 2, in reverse.
void write_inverse_real_fft(OnnxGraph& g, const Node& node) {
  require_both_signs(node, true);
  const auto& [n, scale, both_signs] = node.options<RealFourierOptions>();
  const Output x = node.input(0);
  const std::size_t axis = x.shape().rank() - 2;
  const Attribute along("axis", static_cast<std::int64_t>(axis));
  Ints mirrored(static_cast<std::size_t>(n - (n / 2 + 1)));
  std::iota(mirrored.rbegin(), mirrored.rend(), 1);
  std::string whole = g.in(x);
  if (!mirrored.empty()) {
    const std::string others = g.add("Gather", {whole, g.ints(mirrored)}, {along});
    const std::string signs = g.cast(g.ints({1, -1}), x.dtype());
    whole = g.add("Concat", {whole, g.add("Mul", {others, signs})}, {along});
  }
  const std::string y = transform(g, whole, axis, true, false);
  const std::string real = g.add("Gather", {y, g.constant(Tensor(std::int64_t{0}))},
                                 {{"axis", static_cast<std::int64_t>(axis + 1)}});
  g.set(node.output(), scaled(g, node, real, factor_of(scale, n, true)));
}

}  // namespace

std::vector<OpWriter> fourier_writers() {
  return {
      {&kFft, write_fft}, {&kRealFft, write_real_fft}, {&kInverseRealFft, write_inverse_real_fft}};
}

}  // namespace belfry::onnx
