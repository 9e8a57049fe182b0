// A bias fused with an activation gives the same bits as the nodes that it replaces. In
// gpu_ops_tests this compares kernels of GPUs.
#include "belfry/ops/bias_activation.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/silu.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace bias_activation_test {

struct Case {
  const char* name;
  const Op &fused, &fused_gradient, &activation, &gradient;
  NodeOptions options = {};
};

std::vector<Case> cases() {
  const auto gelu_of = [](GeluForm form) { return NodeOptions(GeluOptions{.form = form}); };
  return {{"relu", kBiasRelu, kBiasReluGrad, kRelu, kReluGrad},
          {"silu", kBiasSilu, kBiasSiluGrad, kSilu, kSiluGrad},
          {"gelu", kBiasGelu, kBiasGeluGrad, kGelu, kGeluGrad, gelu_of(GeluForm::kExact)},
          {"gelu by tanh", kBiasGelu, kBiasGeluGrad, kGelu, kGeluGrad, gelu_of(GeluForm::kByTanh)}};
}

// y, and the sum.
Builder fused_forward(const Case& c) {
  return [=](Inputs in) {
    const Node& node = in[0].graph().add(c.fused, {in[0], in[1]}, {}, c.options);
    return Built(std::vector{node.output(0), node.output(1)});
  };
}
Builder forward_apart(const Case& c) {
  return [=](Inputs in) {
    const Output sum = in[0] + in[1];
    return Built(std::vector{sum.graph().add(c.activation, {sum}, {}, c.options).output(), sum});
  };
}

// The gradients of the sum and of the bias.
Builder fused_backward(const Case& c) {
  return [=](Inputs in) {
    const Node& node = in[0].graph().add(c.fused_gradient, {in[0], in[1]}, {}, c.options);
    return Built(std::vector{node.output(0), node.output(1)});
  };
}
Builder backward_apart(const Case& c) {
  return [=](Inputs in) {
    const Output g = in[0].graph().add(c.gradient, {in[0], in[1]}, {}, c.options).output();
    std::vector<int> axes;
    for (int axis = 0; axis + 1 < static_cast<int>(g.shape().rank()); ++axis) axes.push_back(axis);
    return Built(std::vector{g, reduce_sum(g, axes)});
  };
}

std::vector<Tensor> typed(std::vector<Tensor> tensors, DType dtype) {
  for (Tensor& tensor : tensors) tensor = to(tensor, dtype);
  return tensors;
}

void expect_equal_bits(const Builder& fused, const Builder& apart, const std::vector<Tensor>& in,
                       const std::string& what) {
  for (const std::size_t i : {0, 1}) {
    const auto one = [i](const Builder& build) {
      return [=](Inputs x) { return Built(build(x)[i]); };
    };
    EXPECT_TRUE(compute(one(fused), in) == compute(one(apart), in)) << what << ", result " << i;
  }
}

// Covers rows of no, some and many packs; sums of one block, of several, and of groups of blocks.
const Shape kShapes[] = {{5, 3}, {2, 3, 4, 16}, {70, 72}, {2100, 8}};
const DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

TEST(BiasActivation, HasTheBitsOfItsPartsOneByOne) {
  for (const Case& c : cases())
    for (const Shape& shape : kShapes)
      for (const DType dtype : kDTypes)
        expect_equal_bits(
            fused_forward(c), forward_apart(c),
            typed({random_values(shape), random_values({shape.back()}, -1, 1, 2)}, dtype),
            cat(c.name, " ", shape, " ", name_of(dtype)));
}

TEST(BiasActivation, GradientsHaveTheBitsOfTheirPartsOneByOne) {
  for (const Case& c : cases())
    for (const Shape& shape : kShapes)
      for (const DType dtype : kDTypes)
        expect_equal_bits(fused_backward(c), backward_apart(c),
                          typed({random_values(shape), random_values(shape, -2, 2, 2)}, dtype),
                          cat(c.name, " ", shape, " ", name_of(dtype)));
}

TEST(BiasActivation, KeepsItsContract) {
  for (const Case& c : cases())
    for (const bool backward : {false, true})
      check_op({.build = backward ? fused_backward(c) : fused_forward(c),
                .inputs = {random_values({5, 2, 17}),
                           random_values(backward ? Shape{5, 2, 17} : Shape{17}, -1, 1, 2)},
                .f32 = 2e-6,
                .f64 = 1e-12,
                .gradient = -1,
                .nan = false,
                .unknown = false});
}

TEST(BiasActivation, RefusesABiasOfAnotherSize) {
  expect_refused(fused_forward(cases()[0]), {{{8, 4}}, {{5}}}, "a bias for each column");
  expect_refused(fused_backward(cases()[0]), {{{8, 4}}, {{8, 5}}}, "needs two tensors of rows");
}

}  // namespace bias_activation_test
}  // namespace belfry
