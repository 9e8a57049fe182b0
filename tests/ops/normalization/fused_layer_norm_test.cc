// A fused layer or RMS norm gives the same bits as the nodes that it replaces. In gpu_ops_tests
// this compares kernels of GPUs.
#include "belfry/ops/normalization/fused_layer_norm.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace fused_layer_norm_test {

// `narrow` is the type of a branch and of the result, `wide` the type of the rows.
struct Types {
  DType narrow, wide;
  DType factors() const { return wide == DType::kF64 ? wide : DType::kF32; }
  std::string str() const { return cat(name_of(narrow), " ", name_of(wide)); }
};

const Types kTypes[] = {{DType::kF32, DType::kF32},   {DType::kF64, DType::kF64},
                        {DType::kBF16, DType::kBF16}, {DType::kF16, DType::kF16},
                        {DType::kBF16, DType::kF32},  {DType::kF16, DType::kF32}};

struct Form {
  bool centred, adds, biased;
  std::string str() const {
    return cat(centred ? "layer" : "rms", adds ? " add" : "", biased ? " bias" : "");
  }
};

const Form kForms[] = {{true, false, false},  {true, true, false},  {true, true, true},
                       {false, false, false}, {false, true, false}, {false, true, true}};

// x, rows, bias, gamma, beta.
std::vector<Tensor> forward_inputs(const Shape& shape) {
  const Shape columns{shape.back()};
  return {random_values(shape), random_values(shape, -2, 2, 6), random_values(columns, -1, 1, 4),
          random_values(columns, 0.5, 2, 2), random_values(columns, -1, 1, 3)};
}

std::vector<Tensor> typed(std::vector<Tensor> tensors, const std::vector<DType>& dtypes) {
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = to(tensors[i], dtypes[i]);
  return tensors;
}

// y, and the sum if there is one.
Builder fused_forward(Form form) {
  return [=](Inputs in) {
    std::vector<Output> inputs;
    if (form.adds) inputs.push_back(in[0]);
    inputs.push_back(in[1]);
    if (form.biased) inputs.push_back(in[2]);
    inputs.push_back(in[3]);
    if (form.centred) inputs.push_back(in[4]);
    const Node& node =
        form.centred
            ? in[0].graph().add(kFusedLayerNorm, inputs, {}, NodeOptions(LayerNormOptions{}))
            : in[0].graph().add(kFusedRmsNorm, inputs, {}, NodeOptions(RmsNormOptions{}));
    std::vector<Output> results{node.output(0)};
    if (form.adds) results.push_back(node.output(1));
    return Built(results);
  };
}

// The separate nodes, as layers build them.
Builder forward_apart(Form form) {
  return [=](Inputs in) {
    const Output branch = form.biased ? in[0] + in[2] : in[0];
    const Output rows = form.adds ? cast(branch, in[1].dtype()) + in[1] : in[1];
    const Output wide = cast(rows, in[3].dtype());
    const Output y = form.centred ? layer_norm(wide, in[3], in[4]) : rms_norm(wide, in[3]);
    std::vector<Output> results{cast(y, in[0].dtype())};
    if (form.adds) results.push_back(rows);
    return Built(results);
  };
}

// dy, rows, gamma, other.
std::vector<Tensor> gradient_inputs(const Shape& shape) {
  return {random_values(shape), random_values(shape, -2, 2, 6),
          random_values({shape.back()}, 0.5, 2, 2), random_values(shape, -1, 1, 7)};
}

Builder fused_gradient(bool centred, bool adds) {
  return [=](Inputs in) {
    const std::vector<Output> inputs(in.begin(), in.begin() + (adds ? 4 : 3));
    const Node& node =
        centred
            ? in[0].graph().add(kFusedLayerNormGrad, inputs, {}, NodeOptions(LayerNormOptions{}))
            : in[0].graph().add(kFusedRmsNormGrad, inputs, {}, NodeOptions(RmsNormOptions{}));
    std::vector<Output> results;
    for (int i = 0; i < (centred ? 3 : 2); ++i) results.push_back(node.output(i));
    return Built(results);
  };
}

Builder gradient_apart(bool centred, bool adds) {
  return [=](Inputs in) {
    const std::vector<Output> inputs{cast(in[0], in[2].dtype()), cast(in[1], in[2].dtype()), in[2]};
    const Node& node =
        centred ? in[0].graph().add(kLayerNormGrad, inputs, {}, NodeOptions(LayerNormOptions{}))
                : in[0].graph().add(kRmsNormGrad, inputs, {}, NodeOptions(RmsNormOptions{}));
    const Output dx = cast(node.output(0), in[1].dtype());
    std::vector<Output> results{adds ? add_n({dx, in[3]}) : dx};
    for (int i = 1; i < (centred ? 3 : 2); ++i) results.push_back(node.output(i));
    return Built(results);
  };
}

void expect_equal_bits(const Builder& fused, const Builder& apart, const std::vector<Tensor>& in,
                       std::size_t results, const std::string& what) {
  for (std::size_t i = 0; i < results; ++i) {
    const auto one = [i](const Builder& build) {
      return [=](Inputs x) { return Built(build(x)[i]); };
    };
    EXPECT_TRUE(compute(one(fused), in) == compute(one(apart), in)) << what << ", result " << i;
  }
}

// Rows shorter and longer than a block of a fold.
const Shape kShapes[] = {{5, 3}, {2, 3, 4, 17}, {3, 1030}, {2117, 140}};

TEST(FusedLayerNorm, HasTheBitsOfItsPartsOneByOne) {
  for (const Shape& shape : kShapes)
    for (const Types& types : kTypes)
      for (const Form form : kForms) {
        // Only plans round rows of f32 that nothing is added to.
        if (types.narrow != types.wide && !form.adds) continue;
        expect_equal_bits(fused_forward(form), forward_apart(form),
                          typed(forward_inputs(shape), {types.narrow, types.wide, types.narrow,
                                                        types.factors(), types.factors()}),
                          form.adds ? 2 : 1, cat(shape, " ", types.str(), " ", form.str()));
      }
}

TEST(FusedLayerNorm, GradientsHaveTheBitsOfTheirPartsOneByOne) {
  for (const Shape& shape : kShapes)
    for (const Types& types : kTypes)
      for (const bool centred : {true, false})
        for (const bool adds : {true, false})
          expect_equal_bits(fused_gradient(centred, adds), gradient_apart(centred, adds),
                            typed(gradient_inputs(shape),
                                  {types.narrow, types.wide, types.factors(), types.wide}),
                            centred ? 3 : 2, cat(shape, " ", types.str(), centred, adds));
}

// The rows make several groups of sums.
TEST(FusedLayerNorm, GradientsOfManyRowsHaveTheBitsOfTheirParts) {
  const Types types{DType::kBF16, DType::kF32};
  expect_equal_bits(
      fused_gradient(true, true), gradient_apart(true, true),
      typed(gradient_inputs({2200, 3}), {types.narrow, types.wide, types.factors(), types.wide}), 3,
      types.str());
}

TEST(FusedLayerNorm, KeepsItsContract) {
  for (const Form form : kForms)
    check_op({.build = fused_forward(form),
              .inputs = forward_inputs({5, 2, 17}),
              .f32 = 2e-6,
              .f64 = 1e-12,
              .gradient = -1,
              .nan = false,
              .unknown = false});
}

TEST(FusedLayerNorm, GradientsKeepTheirContract) {
  for (const bool centred : {true, false})
    for (const bool adds : {true, false})
      check_op({.build = fused_gradient(centred, adds),
                .inputs = gradient_inputs({5, 2, 17}),
                .f32 = 2e-6,
                .f64 = 1e-12,
                .gradient = -1,
                .nan = false,
                .unknown = false});
}

TEST(FusedLayerNorm, RefusesAnInputTooMany) {
  const Builder wrong = [](Inputs in) {
    const std::vector<Output> inputs{in[0], in[0], in[1], in[1], in[1], in[1]};
    return Built(
        in[0].graph().add(kFusedLayerNorm, inputs, {}, NodeOptions(LayerNormOptions{})).output());
  };
  expect_refused(wrong, {{{8, 4}}, {{4}}}, "perhaps a shortcut and a bias");
}

}  // namespace fused_layer_norm_test
}  // namespace belfry
