// Variants of kernels give the same bits, by less work.
#include "belfry/framework/cuda/kernels/variants.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/joined_attention.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace variants_test {

struct Ran {
  std::vector<Tensor> results;
  int launches = 0;
};

TensorType type_of(const Tensor& tensor) { return {tensor.shape(), tensor.dtype()}; }

bool same_bits(const Tensor& a, const Tensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Runs the node's kernel on values whose types may differ from those in the graph, as in a plan.
// In place the first output is written over the first input.
Ran run(const Node& node, const std::vector<Tensor>& values, std::vector<TensorType> outputs,
        bool in_place = false) {
  std::vector<TensorType> inputs;
  std::vector<Tensor> own = values;
  std::vector<void*> in, to;
  for (Tensor& value : own) {
    inputs.push_back(type_of(value));
    in.push_back(value.mutable_raw());
  }
  Ran ran;
  for (const TensorType& type : outputs) ran.results.emplace_back(type.shape, type.dtype);
  for (Tensor& result : ran.results) to.push_back(result.mutable_raw());
  if (in_place) to[0] = in[0];
  HostAlgorithms algorithms(false);
  const WorkRange range = whole_range(node.op(), 0, inputs, outputs);
  KernelPlan plan(node, inputs, outputs, range);
  const QueueRun kernel = prepare_gpu_kernel(plan, algorithms);
  Tensor workspace(Shape{plan.workspace_bytes()}, DType::kU8);
  HostQueue queue;
  kernel(KernelPointers(in, to, workspace.mutable_raw(), range, 0), queue);
  ran.launches = queue.launches();
  if (in_place) ran.results[0] = own[0];
  return ran;
}

// Makes the first two numbers -0.0 and NaN.
void set_odd(Tensor& tensor) {
  Tensor wide({2}, DType::kF32);
  wide.mutable_data<float>()[0] = -0.0f;
  wide.mutable_data<float>()[1] = std::nanf("");
  if (!is_half(tensor.dtype())) {
    std::memcpy(tensor.mutable_raw(), wide.raw(), wide.bytes());
    return;
  }
  kernels::half_conversion(tensor.dtype())
      .narrow(wide.data<float>().data(), reinterpret_cast<std::uint16_t*>(tensor.mutable_raw()), 2);
}

Tensor ones(const Shape& shape) {
  Tensor tensor(shape, DType::kF32);
  std::ranges::fill(tensor.mutable_data<float>(), 1.0f);
  return tensor;
}

class Variants : public ::testing::Test {
 protected:
  void TearDown() override { Variant::set({}); }
  // Expects equal results with the variant on and off; returns by how many launches it has fewer.
  static int saved(const char* key, const Node& node, const std::vector<Tensor>& values,
                   const std::vector<TensorType>& outputs) {
    Variant::set({});
    const Ran on = run(node, values, outputs);
    Variant::set({{key, false}});
    const Ran off = run(node, values, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      EXPECT_TRUE(same_bits(on.results[i], off.results[i])) << key << ", result " << i;
    return off.launches - on.launches;
  }
  Graph graph;
  Output placed(const TensorType& type) {
    return placeholder(graph, cat("input", names_++), type.dtype, type.shape);
  }
  const Node& node_of(const Op& op, const std::vector<Tensor>& values, NodeOptions options) {
    std::vector<Output> inputs;
    for (const Tensor& value : values) inputs.push_back(placed(type_of(value)));
    return graph.add(op, inputs, {}, std::move(options));
  }

 private:
  int names_ = 0;
};

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

TEST_F(Variants, AreKnownByTheirKeys) {
  try {
    Variant::set({{"batch_norm.mask_from_y", false}});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("'batch_norm.mask_from_y'; the known ones are "
                                     "all_finite.all_at_once, attention.joined, batch_norm.mask"));
  }
  EXPECT_THAT(Variant::all(), ::testing::Each(::testing::Pair(::testing::_, true)));
}

// Each line of the table names one.
TEST_F(Variants, StandInTheDocuments) {
  std::ifstream file(BELFRY_SOURCE_DIR "/docs/gpu_execution.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [key, on] : Variant::all())
    EXPECT_THAT(text, ::testing::HasSubstr(cat("\n| `", key, "` | ")));
}

TEST_F(Variants, OfCastsTakeFourElements) {
  for (const auto& [from, to] : {std::pair(DType::kF32, DType::kBF16),
                                 {DType::kBF16, DType::kF32},
                                 {DType::kF16, DType::kBF16}})
    for (const std::int64_t size : {1, 4, 2051}) {
      SCOPED_TRACE(cat(name_of(from), " to ", name_of(to), " ", size));
      Tensor x = numbers({size}, from, 1);
      if (size > 1) set_odd(x);
      const Node& node = cast(placed(type_of(x)), to).node();
      EXPECT_EQ(saved("cast.four_at_once", node, {x}, {{{size}, to}}), 0);
    }
}

// A pixel has 2, 4, 8, 16 and 32 bytes. Copies have 7 x 9 pixels, images 6 x 8.
TEST_F(Variants, OfPaddingCopiesWriteSixteenBytes) {
  for (const std::int64_t channels : {1, 2, 4, 8, 16}) {
    SCOPED_TRACE(channels);
    const Convolved convolved({2, 6, 8, channels}, {3, 3, 3, channels}, {.stride = 2},
                              DType::kBF16);
    const Tensor x = numbers({2, 6, 8, channels}, DType::kBF16, 1),
                 filter = numbers({3, 3, 3, channels}, DType::kBF16, 2),
                 dy = numbers({2, 3, 4, 3}, DType::kBF16, 3);
    const std::vector<Tensor> values[] = {{x, filter}, {dy, filter}, {x, dy}};
    const Tensor* const results[] = {&dy, &x, &filter};
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(saved("padding_copy.sixteen_bytes", *convolved.nodes[i], values[i],
                      {type_of(*results[i])}),
                0);
  }
}

// The shapes have one thread's rows and several groups of rows, in packs and not.
TEST_F(Variants, OfBatchNormFindTheMaskFromX) {
  const NodeOptions options(BatchNormOptions{});
  for (const bool trained : {true, false})
    for (const DType dtype : kTypes)
      for (const Shape& shape : {Shape{5, 3}, Shape{2100, 16}}) {
        SCOPED_TRACE(cat(trained ? "training " : "inference ", name_of(dtype), " ", shape));
        const TensorType image{shape, dtype}, channels{{shape.back()}, DType::kF32};
        const Tensor x = numbers(shape, dtype, 1), gamma = numbers(channels.shape, DType::kF32, 2),
                     beta = numbers(channels.shape, DType::kF32, 3);
        std::vector<Tensor> given{x, gamma, beta};
        std::vector<TensorType> outputs{image};
        if (trained)
          outputs.insert(outputs.end(), 2, channels);
        else
          given.insert(given.end(),
                       {numbers(channels.shape, DType::kF32, 5), ones(channels.shape)});
        const Op& forward = trained ? kFusedBatchNormTrainRelu : kFusedBatchNormInferenceRelu;
        const Op& backward = trained ? kFusedBatchNormTrainGrad : kFusedBatchNormInferenceGrad;
        const std::vector<Tensor> found =
            run(node_of(forward, given, options), given, outputs).results;
        Tensor dy = numbers(shape, dtype, 4);
        set_odd(dy);
        std::vector<Tensor> values{
            dy,       x,   gamma, trained ? found[1] : given[3], trained ? found[2] : given[4],
            found[0], beta};
        const Node& node = node_of(backward, values, options);
        outputs.resize(1);
        outputs.insert(outputs.end(), trained ? 2 : 4, channels);
        EXPECT_EQ(saved("batch_norm.mask_from_x", node, values, outputs), 0);
        Variant::set({});
        const Ran with_y = run(node, values, outputs);
        std::memset(values[5].mutable_raw(), 0xff, values[5].bytes());  // y is not read
        const Ran without = run(node, values, outputs);
        for (std::size_t i = 0; i < outputs.size(); ++i)
          EXPECT_TRUE(same_bits(with_y.results[i], without.results[i])) << i;
      }
}

// With a gamma of 0, beta is the input of ReLU: around what rounds to 0, and what is no number.
TEST_F(Variants, OfBatchNormFindTheMaskFromXOfAnyValue) {
  const float values_of_beta[] = {0x1p-134f,
                                  std::nextafter(0x1p-134f, 1.0f),
                                  0x1p-133f,
                                  0x1p-25f,
                                  std::nextafter(0x1p-25f, 1.0f),
                                  0x1p-24f,
                                  -1,
                                  0,
                                  INFINITY,
                                  -INFINITY,
                                  NAN,
                                  0x1p-149f};
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Shape shape{3, std::ssize(values_of_beta)}, channels{shape[1]};
    Tensor beta(channels, DType::kF32);
    std::ranges::copy(values_of_beta, beta.mutable_data<float>().begin());
    const std::vector<Tensor> given{numbers(shape, dtype, 1), Tensor(channels, DType::kF32), beta};
    const TensorType image{shape, dtype}, of_channels{channels, DType::kF32};
    const Ran forward =
        run(node_of(kFusedBatchNormTrainRelu, given, NodeOptions(BatchNormOptions{})), given,
            {image, of_channels, of_channels});
    const std::vector<Tensor>& found = forward.results;
    const std::vector<Tensor> values{
        numbers(shape, dtype, 2), given[0], given[1], found[1], found[2], found[0], beta};
    saved("batch_norm.mask_from_x",
          node_of(kFusedBatchNormTrainGrad, values, NodeOptions(BatchNormOptions{})), values,
          {image, of_channels, of_channels});
  }
}

TEST_F(Variants, OfBatchNormAddTwoGradients) {
  for (const DType dtype : kTypes)
    for (const Shape& shape : {Shape{5, 3}, Shape{2100, 16}})
      for (const bool gives_g : {false, true}) {
        SCOPED_TRACE(cat(name_of(dtype), " ", shape, " ", gives_g));
        const TensorType image{shape, dtype}, channels{{shape.back()}, DType::kF32};
        const auto of_channels = [&](std::uint32_t seed) {
          return numbers(channels.shape, DType::kF32, seed);
        };
        const std::vector<Tensor> values{numbers(shape, dtype, 1), numbers(shape, dtype, 2),
                                         of_channels(3),           of_channels(4),
                                         ones(channels.shape),     numbers(shape, dtype, 5),
                                         numbers(shape, dtype, 6)};
        std::vector<TensorType> outputs{image, channels, channels};
        if (gives_g) outputs.push_back(image);
        const Node& node =
            node_of(kFusedBatchNormTrainGrad, values, NodeOptions(BatchNormOptions{}));
        EXPECT_EQ(saved("batch_norm.sum_of_gradients", node, values, outputs), 1);
      }
}

TEST_F(Variants, OfLossesReadLogitsAsTheyAreStored) {
  constexpr std::int64_t kRows = 6;
  for (const std::int64_t classes : {3, 1500})
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(cat(classes, " classes, smoothing ", smoothing));
      const Output logits = placed({{kRows, classes}, DType::kF32});
      const Output labels = placed({{kRows}, DType::kI32});
      const Output loss =
          sparse_softmax_cross_entropy(logits, labels, {.smoothing = smoothing, .ignored = 2});
      const Node& node = loss.node();
      gradients(loss, {logits});
      const Node& gradient = *nodes_of(graph, kSparseSoftmaxCrossEntropyGrad).back();
      const Node& correct = accuracy(logits, labels).node();
      Tensor classes_of({kRows}, DType::kI32);
      for (std::int32_t i = 0; std::int32_t & label : classes_of.mutable_data<std::int32_t>())
        label = i++ % 3;
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        const TensorType stored{{kRows, classes}, dtype}, rows{{kRows}, DType::kF32};
        const std::vector<Tensor> values{numbers(stored.shape, dtype, 7), classes_of,
                                         numbers(rows.shape, DType::kF32, 8)};
        const std::vector<Tensor> two(values.begin(), values.begin() + 2);
        constexpr const char* kKey = "cross_entropy.logits_as_stored";
        EXPECT_EQ(saved(kKey, node, two, {rows}), 1);
        EXPECT_EQ(saved(kKey, gradient, values, {stored}), 2);
        EXPECT_EQ(saved(kKey, correct, two, {{{}, DType::kF32}}), 1);
      }
    }
}

// Rows are short, or longer than shared memory keeps; with and without a sum.
TEST_F(Variants, OfRowNormsRoundTheirGradients) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const Shape& shape : {Shape{2200, 16}, Shape{3, 1100}})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(cat(name_of(dtype), " ", shape, adds));
        const TensorType rows{shape, DType::kF32}, factors{{shape.back()}, DType::kF32},
            narrow{shape, dtype};
        std::vector<Tensor> values{numbers(shape, dtype, 1), numbers(shape, DType::kF32, 2),
                                   numbers(factors.shape, DType::kF32, 3)};
        if (adds) values.push_back(numbers(shape, DType::kF32, 4));
        constexpr const char* kKey = "row_norm.narrow_gradient";
        const Node& layer = node_of(kFusedLayerNormGrad, values, NodeOptions(LayerNormOptions{}));
        EXPECT_EQ(saved(kKey, layer, values, {rows, factors, factors, narrow}), 1);
        const Node& rms = node_of(kFusedRmsNormGrad, values, NodeOptions(RmsNormOptions{}));
        EXPECT_EQ(saved(kKey, rms, values, {rows, factors, narrow}), 1);
      }
}

// Heads share keys, and there are a mask with a gradient and lengths.
TEST_F(Variants, OfJoinedAttentionCopyNothing) {
  const NodeOptions options(AttentionOptions{.heads = 4, .kv_heads = 2});
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name_of(dtype));
    const TensorType qkv{{2, 7, 24}, dtype}, y{{2, 7, 12}, dtype}, log_sums{{2, 4, 7}, DType::kF32},
        mask{{7, 7}, dtype};
    Tensor lengths({2}, std::vector<std::int32_t>{4, 7});
    const std::vector<Tensor> given{numbers(qkv.shape, dtype, 1), numbers(mask.shape, dtype, 2),
                                    lengths};
    const Node& node = node_of(kJoinedAttention, given, options);
    EXPECT_EQ(saved("attention.joined", node, given, {y, log_sums}), 3);
    Variant::set({});
    const std::vector<Tensor> found = run(node, given, {y, log_sums}).results;
    const std::vector<Tensor> values{
        numbers(y.shape, dtype, 3), given[0], found[0], found[1], given[1], lengths};
    const Node& gradient = node_of(kJoinedAttentionGrad, values, options);
    EXPECT_EQ(saved("attention.joined", gradient, values, {qkv, mask}), 6);
  }
}

// Rows have one chunk of exponentials, or three. Labels 2 are ignored.
TEST_F(Variants, OfLossesComputeGradientsAtOnce) {
  for (const std::int64_t classes : {3, 2500})
    for (const double smoothing : {0.0, 0.1})
      for (const DType dtype : kTypes) {
        SCOPED_TRACE(cat(name_of(dtype), ", ", classes, " classes, smoothing ", smoothing));
        constexpr std::int64_t kRows = 9;
        const TensorType logits{{kRows, classes}, dtype}, losses{{kRows}, DType::kF32},
            one{{}, DType::kF32};
        Tensor labels({kRows}, DType::kI32);
        for (std::int32_t i = 0; std::int32_t & label : labels.mutable_data<std::int32_t>())
          label = i++ % 3;
        Tensor x = numbers(logits.shape, dtype, 7);
        set_odd(x);
        const std::vector<Tensor> values{x, labels, numbers({}, DType::kF32, 8)};
        const Node& node =
            node_of(kCrossEntropyWithGradient, values,
                    NodeOptions(CrossEntropyOptions{.smoothing = smoothing, .ignored = 2}));
        constexpr const char* kKey = "cross_entropy.loss_with_gradient";
        EXPECT_EQ(saved(kKey, node, values, {logits, losses, one}), 3);
        EXPECT_EQ(saved(kKey, node, values, {logits, losses}), 2);
        if (is_half(dtype)) saved("cross_entropy.logits_as_stored", node, values, {logits, losses});
        const Ran apart = run(node, values, {logits, losses, one});
        const Ran over = run(node, values, {logits, losses, one}, /*in_place=*/true);
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(same_bits(over.results[i], apart.results[i])) << i;
      }
}

// All logits are equal, so only class 0 comes first.
TEST_F(Variants, OfLossesCountRowsWhoseLabelComesFirst) {
  const std::vector<Tensor> values{Tensor({4, 5}, DType::kBF16),
                                   Tensor({4}, std::vector<std::int32_t>{0, 1, 4, 0}), ones({})};
  const Node& node = node_of(kCrossEntropyWithGradient, values, NodeOptions(CrossEntropyOptions{}));
  const Ran ran =
      run(node, values, {{{4, 5}, DType::kBF16}, {{4}, DType::kF32}, {{}, DType::kF32}});
  EXPECT_EQ(ran.results[2].item<float>(), 0.5F);
}

TEST_F(Variants, OfChecksLookAtAllTensorsAtOnce) {
  for (int spoiled = -1; spoiled < 5; ++spoiled) {
    SCOPED_TRACE(spoiled);
    std::vector<Tensor> values;
    for (const std::int64_t size : {1, 5000, 0, 4096, 70})
      values.push_back(numbers({size}, DType::kF32, 9));
    if (spoiled >= 0 && values[static_cast<std::size_t>(spoiled)].bytes() > 0)
      values[static_cast<std::size_t>(spoiled)].mutable_data<float>().back() = NAN;
    const Node& node = node_of(kAllFinite, values, NodeOptions(AllFiniteOptions{}));
    const TensorType answer{{}, DType::kBool};
    EXPECT_EQ(saved("all_finite.all_at_once", node, values, {answer}), 3);
    EXPECT_EQ(run(node, values, {answer}).results[0].item<bool>(), spoiled < 0 || spoiled == 2);
  }
}

TEST_F(Variants, OfChecksFindEachOfManyTensors) {
  constexpr std::size_t kTensors = 300;  // in three launches
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < kTensors; ++i)
    values.push_back(numbers({i % 7 == 0 ? 5000 : 3}, DType::kF32, 9));
  const Node& node = node_of(kAllFinite, values, NodeOptions(AllFiniteOptions{}));
  const TensorType answer{{}, DType::kBool};
  EXPECT_EQ(saved("all_finite.all_at_once", node, values, {answer}), 297);
  Variant::set({{"all_finite.all_at_once", true}});
  EXPECT_TRUE(run(node, values, {answer}).results[0].item<bool>());
  for (const std::size_t i : {0u, 1u, 7u, 127u, 128u, 129u, 255u, 256u, 299u}) {
    float& last = values[i].mutable_data<float>().back();
    const float kept = std::exchange(last, NAN);
    EXPECT_FALSE(run(node, values, {answer}).results[0].item<bool>()) << i;
    values[i].mutable_data<float>().back() = kept;
  }
}

}  // namespace variants_test
}  // namespace belfry::cuda
