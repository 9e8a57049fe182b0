// A fused batch norm gives the same bits as the nodes that it replaces. In gpu_ops_tests this
// compares kernels of GPUs.
#include "belfry/ops/normalization/fused_batch_norm.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace fused_batch_norm_test {

struct Form {
  bool trained = true, adds = false, relu = false;
  std::string str() const {
    return cat(trained ? "train" : "inference", adds ? " add" : "", relu ? " relu" : "");
  }
};

const Form kForward[] = {{true, false, true},  {true, true, true},   {true, true, false},
                         {true, false, false}, {false, false, true}, {false, true, true}};

// x, gamma, beta, mean, variance, shortcut.
std::vector<Tensor> forward_inputs(const Shape& shape) {
  const Shape channels{shape.back()};
  return {random_values(shape),
          random_values(channels, 0.5, 2, 2),
          random_values(channels, -1, 1, 3),
          random_values(channels, -1, 1, 4),
          random_values(channels, 0.5, 2, 5),
          random_values(shape, -2, 2, 6)};
}

Builder fused_forward(Form form) {
  return [=](Inputs in) {
    const Op& op = form.trained ? form.relu ? kFusedBatchNormTrainRelu : kFusedBatchNormTrain
                   : form.relu  ? kFusedBatchNormInferenceRelu
                                : kFusedBatchNormInference;
    std::vector<Output> inputs{in[0], in[1], in[2]};
    if (!form.trained) inputs.insert(inputs.end(), {in[3], in[4]});
    if (form.adds) inputs.push_back(in[5]);
    return Built(in[0].graph().add(op, inputs, {}, NodeOptions(BatchNormOptions{})).output());
  };
}

// The separate nodes, as the layer builds them, with casts around a batch norm of 16 bits.
Builder forward_apart(Form form) {
  return [=](Inputs in) {
    const Output x = cast(in[0], in[1].dtype());
    const Output normal = form.trained ? batch_norm_train(x, in[1], in[2]).y
                                       : batch_norm_inference(x, in[1], in[2], in[3], in[4]);
    Output y = cast(normal, in[0].dtype());
    if (form.adds) y = y + in[5];
    return Built(form.relu ? relu(y) : y);
  };
}

// dy, x, gamma, mean, variance, y.
std::vector<Tensor> gradient_inputs(const Shape& shape) {
  const Shape channels{shape.back()};
  return {random_values(shape),
          random_values(shape, -2, 2, 6),
          random_values(channels, 0.5, 2, 2),
          random_values(channels, -1, 1, 4),
          random_values(channels, 0.5, 2, 5),
          random_values(shape, -1, 1, 7)};
}

// All results: with ReLU, the gradient of its input comes last.
Builder fused_gradient(bool trained, bool masks) {
  return [=](Inputs in) {
    const Op& op = trained ? kFusedBatchNormTrainGrad : kFusedBatchNormInferenceGrad;
    std::vector<Output> inputs(in.begin(), in.begin() + (masks ? 6 : 5));
    const Node& node = in[0].graph().add(op, inputs, {}, NodeOptions(BatchNormOptions{}));
    std::vector<Output> results;
    for (int i = 0; i < (trained ? 3 : 5) + (masks ? 1 : 0); ++i) results.push_back(node.output(i));
    return Built(results);
  };
}

Builder gradient_apart(bool trained, bool masks) {
  return [=](Inputs in) {
    const DType wide = in[2].dtype();
    const Output g = masks ? relu_grad(in[0], in[5]) : in[0];
    const Op& op = trained ? kBatchNormTrainGrad : kBatchNormInferenceGrad;
    const Node& node =
        in[0].graph().add(op, {cast(g, wide), cast(in[1], wide), in[2], in[3], in[4]}, {},
                          NodeOptions(BatchNormOptions{}));
    std::vector<Output> results{cast(node.output(0), in[1].dtype())};
    for (int i = 1; i < (trained ? 3 : 5); ++i) results.push_back(node.output(i));
    if (masks) results.push_back(g);
    return Built(results);
  };
}

Builder one_of(const Builder& build, std::size_t output) {
  return [=](Inputs in) { return Built(build(in)[output]); };
}

// Inputs `images` are images; the others are per channel.
std::vector<Tensor> with_types(std::vector<Tensor> tensors, DType dtype,
                               std::initializer_list<std::size_t> images) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (dtype == DType::kF64 || std::ranges::count(images, i)) tensors[i] = to(tensors[i], dtype);
  return tensors;
}

// Covers one thread's rows, blocks with room, several groups of rows; channels in packs and not.
const Shape kShapes[] = {{5, 3}, {2, 3, 4, 16}, {70, 72}, {300, 520}, {2100, 9}, {4200, 16}};

TEST(FusedBatchNorm, HasTheBitsOfItsPartsOneByOne) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
      for (const Form form : kForward) {
        const std::vector<Tensor> in = with_types(forward_inputs(shape), dtype, {0, 5});
        EXPECT_TRUE(compute(fused_forward(form), in) == compute(forward_apart(form), in))
            << name_of(dtype) << " " << shape.str() << " " << form.str();
      }
}

TEST(FusedBatchNorm, GradientsHaveTheBitsOfTheirPartsOneByOne) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16})
      for (const bool trained : {true, false})
        for (const bool masks : {true, false}) {
          const std::vector<Tensor> in = with_types(gradient_inputs(shape), dtype, {0, 1, 5});
          const std::size_t results = (trained ? 3 : 5) + (masks ? 1 : 0);
          for (std::size_t i = 0; i < results; ++i)
            EXPECT_TRUE(compute(one_of(fused_gradient(trained, masks), i), in) ==
                        compute(one_of(gradient_apart(trained, masks), i), in))
                << name_of(dtype) << " " << shape.str() << " " << trained << masks << " result "
                << i;
        }
}

TEST(FusedBatchNorm, KeepsItsContract) {
  for (const Form form : kForward)
    check_op({.build = fused_forward(form),
              .inputs = forward_inputs({5, 2, 17}),
              .f32 = 2e-6,
              .gradient = -1,
              .nan = false});
}

TEST(FusedBatchNorm, GradientsKeepTheirContract) {
  for (const bool trained : {true, false})
    for (const bool masks : {true, false})
      check_op({.build = fused_gradient(trained, masks),
                .inputs = gradient_inputs({5, 2, 17}),
                .f32 = 4e-6,
                .f64 = 1e-12,
                .gradient = -1,
                .nan = false});
}

TEST(FusedBatchNorm, RefusesAnInputTooMany) {
  const Builder wrong = [](Inputs in) {
    return Built(in[0]
                     .graph()
                     .add(kFusedBatchNormTrain, {in[0], in[1], in[1], in[0], in[0]}, {},
                          NodeOptions(BatchNormOptions{}))
                     .output());
  };
  expect_refused(wrong, {{{8, 4}}, {{4}}}, "perhaps a shortcut");
}

}  // namespace fused_batch_norm_test
}  // namespace belfry
