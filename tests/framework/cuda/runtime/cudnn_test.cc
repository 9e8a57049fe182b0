// Descriptors of cuDNN, which need no GPU.
#include "belfry/framework/cuda/runtime/cudnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace cudnn_test {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const Where kHere{.device = "gpu:0"};
using Four = std::array<int, 4>;

// The sizes in the order NHWC.
Four sizes(const Shape& shape) {
  Four all{};
  for (std::size_t i = 0; i < 4; ++i) all[i] = static_cast<int>(shape[i]);
  return all;
}

// Expects that cuDNN gives our kernels' calls the shapes of our shape function.
void expect_shape_of_conv2d(Shape image, Shape filter, Conv2dOptions options) {
  const Convolved convolved(std::move(image), std::move(filter), options);
  NotedAlgorithms asked;
  for (const Node* node : convolved.nodes) NodeKernel(*node, asked);
  ASSERT_EQ(asked.convolutions.size(), 3u);
  for (const Convolution& convolution : asked.convolutions) {
    EXPECT_EQ(convolution.y, sizes(convolved.nodes[0]->output_type(0).shape)) << convolution.str();
    EXPECT_EQ(output_shape(describe(convolution, kHere), kHere), convolution.y)
        << convolution.str();
  }
}

TEST(CudnnConvolution, HasTheShapesOfOurs) {
  for_each_window([](int height, int width, int down, int right, int stride, Padding padding) {
    expect_shape_of_conv2d({2, height, width, 3}, {4, down, right, 3}, {stride, padding});
  });
  for (const Padding padding : {Padding::kSame, Padding::kValid}) {
    expect_shape_of_conv2d({64, 28, 28, 1}, {32, 5, 5, 1}, {1, padding});
    expect_shape_of_conv2d({32, 224, 224, 3}, {64, 7, 7, 3}, {2, padding});
    expect_shape_of_conv2d({32, 56, 56, 64}, {256, 1, 1, 64}, {2, padding});
    expect_shape_of_conv2d({32, 227, 227, 3}, {96, 11, 11, 3}, {4, padding});
    expect_shape_of_conv2d({32, 56, 56, 64}, {64, 3, 3, 1}, {2, padding, 1, 64});
    expect_shape_of_conv2d({32, 28, 28, 64}, {128, 3, 3, 16}, {1, padding, 4, 4});
    expect_shape_of_conv2d({32, 28, 27, 6}, {6, 3, 2, 3}, {2, padding, 3, 2});
  }
}

TEST(CudnnConvolution, HasTheShapesOfOursForGivenPadding) {
  for (const Padding padding : {Padding(1), Padding(0, 2), Padding(2, 0, 1, 3), Padding(5)})
    for (const PerAxis stride : {PerAxis(1), PerAxis(2), PerAxis(3, 1)})
      for (const int size : {5, 6, 7})
        expect_shape_of_conv2d({2, size, 6, 3}, {4, 3, 2, 3}, {stride, padding});
}

TEST(CudnnPooling, HasTheShapesOfOurs) {
  int described = 0;
  for_each_window([&](int height, int width, int window, int, int stride, Padding padding) {
    if (padding == Padding::kValid && window > width) return;
    const Pooled pooled({2, height, width, 3}, {window, stride, padding});
    NotedAlgorithms asked;
    for (const Node* node : pooled.nodes) NodeKernel(*node, asked);
    for (const Pooling& pooling : asked.poolings) {
      ++described;
      EXPECT_EQ(pooling.y, sizes(pooled.nodes[0]->output_type(0).shape)) << pooling.str();
      EXPECT_EQ(output_shape(describe(pooling, kHere), kHere), pooling.y) << pooling.str();
      EXPECT_TRUE(describable(pooling, kHere)) << pooling.str();
    }
  });
  EXPECT_GT(described, 50);
}

Convolution some_convolution(DType dtype = DType::kF32, Compute compute = Compute::kExact) {
  return {.dtype = dtype,
          .compute = compute,
          .x = {2, 28, 20, 3},
          .filter = {32, 3, 5, 3},
          .y = {2, 14, 20, 32},
          .padding = {1, 2},
          .stride = {2, 1}};
}

// By default cuDNN may round f32 to tf32.
TEST(CudnnConvolution, MultipliesF32ExactlyUnlessTf32IsAskedFor) {
  const auto math = [](DType dtype, Compute compute) {
    const ConvolutionDescriptors of = describe(some_convolution(dtype, compute), kHere);
    cudnnMathType_t type{};
    BELFRY_GPU_CALL(cudnnGetConvolutionMathType(of.convolution.get(), &type), kHere);
    return type;
  };
  EXPECT_EQ(math(DType::kF32, Compute::kExact), CUDNN_FMA_MATH);
  EXPECT_EQ(math(DType::kF64, Compute::kExact), CUDNN_FMA_MATH);
  EXPECT_EQ(math(DType::kF32, Compute::kTf32), CUDNN_DEFAULT_MATH);
  EXPECT_EQ(math(DType::kF16, Compute::kExact), CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(math(DType::kBF16, Compute::kExact), CUDNN_TENSOR_OP_MATH);
}

// cuDNN's values of a descriptor of a convolution.
struct Described {
  std::array<int, 2> padding{}, stride{}, dilation{};
  cudnnConvolutionMode_t mode{};
  cudnnDataType_t sums{};
  int groups = 0;
};

Described described_by(const ConvolutionDescriptors& of) {
  Described made;
  BELFRY_GPU_CALL(
      cudnnGetConvolution2dDescriptor(of.convolution.get(), &made.padding[0], &made.padding[1],
                                      &made.stride[0], &made.stride[1], &made.dilation[0],
                                      &made.dilation[1], &made.mode, &made.sums),
      kHere);
  BELFRY_GPU_CALL(cudnnGetConvolutionGroupCount(of.convolution.get(), &made.groups), kHere);
  return made;
}

TEST(CudnnConvolution, IsTheCrossCorrelationAddedInTheTypeOfSums) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const ConvolutionDescriptors of = describe(some_convolution(dtype), kHere);
    const Described made = described_by(of);
    EXPECT_EQ(made.padding, (std::array{1, 2}));
    EXPECT_EQ(made.stride, (std::array{2, 1}));
    EXPECT_EQ(made.dilation, (std::array{1, 1}));
    EXPECT_EQ(made.mode, CUDNN_CROSS_CORRELATION);
    EXPECT_EQ(made.sums, dtype == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    EXPECT_EQ(made.groups, 1);
  }
}

TEST(CudnnConvolution, HasTheDilationAndGroupsThatAreAskedFor) {
  Convolution convolution = some_convolution();
  convolution.x = {2, 28, 20, 6};
  convolution.y = {2, 12, 16, 32};
  convolution.dilation = {3, 2};
  convolution.groups = 2;
  const ConvolutionDescriptors of = describe(convolution, kHere);
  EXPECT_EQ(output_shape(of, kHere), convolution.y);
  const Described made = described_by(of);
  EXPECT_EQ(made.dilation, convolution.dilation);
  EXPECT_EQ(made.groups, 2);
}

// The strides show that channels lie side by side.
TEST(CudnnConvolution, HasImagesAndFiltersAsTheyLie) {
  const ConvolutionDescriptors of = describe(some_convolution(DType::kF64), kHere);
  int n = 0, c = 0, h = 0, w = 0;
  Four step{};
  cudnnDataType_t type{};
  BELFRY_GPU_CALL(cudnnGetTensor4dDescriptor(of.x.get(), &type, &n, &c, &h, &w, &step[0], &step[3],
                                             &step[1], &step[2]),
                  kHere);
  EXPECT_EQ(type, CUDNN_DATA_DOUBLE);
  EXPECT_EQ((Four{n, h, w, c}), (Four{2, 28, 20, 3}));
  EXPECT_EQ(step, (Four{28 * 20 * 3, 20 * 3, 3, 1}));
  BELFRY_GPU_CALL(cudnnGetTensor4dDescriptor(of.y.get(), &type, &n, &c, &h, &w, &step[0], &step[3],
                                             &step[1], &step[2]),
                  kHere);
  EXPECT_EQ((Four{n, h, w, c}), (Four{2, 14, 20, 32}));
  EXPECT_EQ(step, (Four{14 * 20 * 32, 20 * 32, 32, 1}));
  cudnnTensorFormat_t format{};
  BELFRY_GPU_CALL(cudnnGetFilter4dDescriptor(of.filter.get(), &type, &format, &n, &c, &h, &w),
                  kHere);
  EXPECT_EQ(type, CUDNN_DATA_DOUBLE);
  EXPECT_EQ(format, CUDNN_TENSOR_NHWC);
  EXPECT_EQ((Four{n, h, w, c}), (Four{32, 3, 5, 3}));
}

Pooling some_pooling() {
  return {.x = {2, 28, 20, 3},
          .y = {2, 14, 10, 3},
          .window = {3, 2},
          .padding = {1, 0},
          .stride = {2, 2}};
}

TEST(CudnnPooling, DoesNotCountPadding) {
  const PoolingDescriptors of = describe(some_pooling(), kHere);
  cudnnPoolingMode_t mode{};
  cudnnNanPropagation_t nan{};
  std::array<int, 2> window{}, padding{}, stride{};
  BELFRY_GPU_CALL(cudnnGetPooling2dDescriptor(of.pooling.get(), &mode, &nan, &window[0], &window[1],
                                              &padding[0], &padding[1], &stride[0], &stride[1]),
                  kHere);
  EXPECT_EQ(mode, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
  EXPECT_EQ(nan, CUDNN_PROPAGATE_NAN);
  EXPECT_EQ(window, (std::array{3, 2}));
  EXPECT_EQ(padding, (std::array{1, 0}));
  EXPECT_EQ(stride, (std::array{2, 2}));
}

TEST(CudnnPooling, OfAnotherShapeIsNotDescribable) {
  Pooling pooling = some_pooling();
  EXPECT_TRUE(describable(pooling, kHere));
  pooling.y[1] = 13;
  EXPECT_FALSE(describable(pooling, kHere));
  pooling = some_pooling();
  pooling.x[3] = -3;
  EXPECT_FALSE(describable(pooling, kHere));
}

template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST(CudnnConvolution, ThatCannotBeNamesItsNodeAndDevice) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2, 5, 5, 3});
  const Where where{.device = "gpu:1", .node = &x.node()};
  EXPECT_EQ(where.str(), cat("for ", x.node().describe(), " on gpu:1"));
  EXPECT_EQ(kHere.str(), "on gpu:0");
  Convolution convolution = some_convolution();
  convolution.x[1] = -28;
  EXPECT_THAT(
      error_of([&] { describe(convolution, where); }),
      AllOf(StartsWith("cudnnSetTensor4dDescriptor failed: "), HasSubstr("CUDNN_STATUS_BAD_PARAM"),
            HasSubstr("for Placeholder 'x' (built at "), EndsWith(" on gpu:1")));
  convolution = some_convolution();
  convolution.stride = {0, 1};
  EXPECT_THAT(error_of([&] { describe(convolution, where); }),
              StartsWith("cudnnSetConvolution2dDescriptor failed: "));
  EXPECT_EQ(error_of([&] { describe(some_convolution(DType::kI32), where); }),
            "cuDNN computes nothing in i32");
}

TEST(Cudnn, WithoutADriverNamesTheDevice) {
  if (!gpus().backend()->versions().driver.empty()) GTEST_SKIP() << "there is a driver";
  EXPECT_THAT(error_of([] { Cudnn().get_ready(kHere); }),
              AllOf(StartsWith("cudnnCreate failed: "), EndsWith(", on gpu:0")));
}

}  // namespace cudnn_test
}  // namespace belfry::cuda
