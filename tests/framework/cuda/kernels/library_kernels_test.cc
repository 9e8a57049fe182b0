// The calls of kernels that use cuBLASLt and cuDNN, and their results on the host.
#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/recurrent/whole_recurrence.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace library_kernels_test {

// Counts what is enqueued.
class CountingQueue final : public KernelQueue {
 public:
  void launch(const KernelLaunch& launch) override {
    ++launches;
    host_.launch(launch);
  }
  Fault* fault(const std::shared_ptr<const Refusal>& refusal) override {
    return host_.fault(refusal);
  }
  const std::uint64_t* step() const override { return host_.step(); }
  void matmul(const MatMulCall& call) override {
    ++library_calls;
    host_.matmul(call);
  }
  void convolve(const ConvolutionCall& call) override {
    ++library_calls;
    host_.convolve(call);
  }
  void pool(const PoolingCall& call) override {
    ++library_calls;
    host_.pool(call);
  }
  void attend(const AttentionCall& call) override {
    ++library_calls;
    host_.attend(call);
  }
  void recur(const RecurrenceCall& call) override {
    ++library_calls;
    host_.recur(call);
  }
  void recur_back(const RecurrenceGradCall& call) override {
    ++library_calls;
    host_.recur_back(call);
  }

  int launches = 0, library_calls = 0;

 private:
  HostQueue host_;
};

struct Enqueued {
  int launches, library_calls;
  bool operator==(const Enqueued&) const = default;
};
struct BothWays {
  Enqueued ours, by_library;
};

// Expects the reference's bits without algorithms of cuDNN and with them; all numbers are whole.
BothWays expect_reference(const Node& node, int unit = 1) {
  const auto check = [&](bool library) -> Enqueued {
    NotedAlgorithms algorithms(library);
    NodeKernel kernel(node, algorithms);
    const std::vector<Tensor> values = whole_numbers(kernel, unit);
    CountingQueue queue;
    EXPECT_EQ(kernel(queue, values), kernel.reference(values)) << node.describe();
    return {queue.launches, queue.library_calls};
  };
  return {.ours = check(false), .by_library = check(true)};
}

TEST(Conv2dGpuKernel, GivesWhatThePlainLoopsGive) {
  for_each_window([](int height, int width, int down, int right, int stride, Padding padding) {
    SCOPED_TRACE(cat(height, "x", width, " window ", down, "x", right, " stride ", stride,
                     padding == Padding::kSame ? " same" : " valid"));
    const Convolved f32({2, height, width, 3}, {4, down, right, 3}, {stride, padding});
    const Convolved f64({1, height, width, 2}, {1, down, right, 2}, {stride, padding}, DType::kF64);
    for (const Convolved* some : {&f32, &f64})
      for (const Node* node : some->nodes) {
        const auto [ours, by_library] = expect_reference(*node);
        EXPECT_EQ(ours, (Enqueued{1, 0}));
        EXPECT_EQ(by_library.library_calls, 1);
        EXPECT_LE(by_library.launches, 1);  // the copy
      }
  });
}

TEST(Conv2dGpuKernel, GivesWhatThePlainLoopsGiveForDilatedFiltersAndGroups) {
  for (const Padding padding : {Padding::kSame, Padding::kValid})
    for (const int stride : {1, 2})
      for (const int dilation : {1, 2, 3})
        for (const int groups : {1, 2, 6}) {
          SCOPED_TRACE(cat("stride ", stride, " dilation ", dilation, " groups ", groups));
          const Conv2dOptions options{stride, padding, dilation, groups};
          const Convolved f32({2, 8, 7, 6}, {12, 3, 2, 6 / groups}, options);
          const Convolved f64({1, 8, 7, 6}, {6, 2, 3, 6 / groups}, options, DType::kF64);
          for (const Convolved* some : {&f32, &f64})
            for (const Node* node : some->nodes) {
              const auto [ours, by_library] = expect_reference(*node);
              EXPECT_EQ(ours, (Enqueued{1, 0}));
              EXPECT_EQ(by_library.library_calls, 1);
            }
        }
}

TEST(Conv2dGpuKernel, GivesWhatThePlainLoopsGiveForGivenPadding) {
  for (const Padding padding : {Padding(1), Padding(0, 2), Padding(2, 0, 1, 3), Padding(5)})
    for (const PerAxis stride : {PerAxis(1), PerAxis(2), PerAxis(3, 1)})
      for (const PerAxis dilation : {PerAxis(1), PerAxis(1, 2)}) {
        const Conv2dOptions options{stride, padding, dilation, 1};
        SCOPED_TRACE(NodeOptions(options).str());
        const Convolved f32({2, 6, 7, 3}, {4, 3, 2, 3}, options);
        const Convolved f64({1, 6, 7, 2}, {1, 2, 3, 2}, options, DType::kF64);
        for (const Convolved* some : {&f32, &f64})
          for (const Node* node : some->nodes) {
            const auto [ours, by_library] = expect_reference(*node);
            EXPECT_EQ(ours, (Enqueued{1, 0}));
            EXPECT_EQ(by_library.library_calls, 1);
          }
      }
}

// Equal padding on both sides needs no copy of the images.
TEST(Conv2dGpuKernel, LeavesPaddingOfPyTorchToTheLibrary) {
  for (const int size : {6, 7, 8}) {
    const Convolved convolved({2, size, size, 3}, {4, 3, 3, 3}, {.stride = 2, .padding = 1});
    for (const Node* node : convolved.nodes)
      EXPECT_EQ(expect_reference(*node).by_library, (Enqueued{0, 1})) << size;
  }
}

TEST(AvgPoolGpuKernel, GivesWhatThePlainLoopsGiveForGivenPadding) {
  for (const bool counts : {false, true})
    for (const Padding padding : {Padding(1), Padding(0, 1, 2, 0), Padding::kSame})
      for (const PerAxis stride : {PerAxis(1), PerAxis(2), PerAxis(3, 1)}) {
        const PoolOptions options{3, stride, padding, counts};
        SCOPED_TRACE(NodeOptions(options).str());
        const Pooled f32({2, 6, 7, 3}, options);
        for (const Node* node : f32.nodes) {
          const auto [ours, by_library] = expect_reference(*node, 3600);
          EXPECT_EQ(ours, (Enqueued{1, 0}));
          EXPECT_EQ(by_library.launches + by_library.library_calls, 1);
          if (counts) {
            EXPECT_EQ(by_library.library_calls, 0);
          }
        }
      }
}

TEST(AvgPoolGpuKernel, GivesWhatThePlainLoopsGive) {
  for_each_window([](int height, int width, int window, int, int stride, Padding padding) {
    if (padding == Padding::kValid && window > width) return;
    SCOPED_TRACE(cat(height, "x", width, " window ", window, " stride ", stride));
    const Pooled f32({2, height, width, 3}, {window, stride, padding});
    const Pooled f64({1, height, width, 2}, {window, stride, padding}, DType::kF64);
    for (const Pooled* some : {&f32, &f64})
      for (const Node* node : some->nodes) {
        // 3600 is a multiple of the numbers of pixels in a window, up to 25.
        const auto [ours, by_library] = expect_reference(*node, 3600);
        EXPECT_EQ(ours, (Enqueued{1, 0}));
        EXPECT_EQ(by_library.launches + by_library.library_calls, 1);
      }
  });
}

TEST(MatMulGpuKernel, GivesWhatThePlainLoopsGive) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const std::size_t batches : {0, 1, 2}) {
          Graph graph;
          const auto matrices = [&](const char* name, bool transposed, int rows, int columns) {
            const Shape leading[] = {Shape{}, Shape{3}, Shape{2, 3}};
            std::vector<std::int64_t> sizes;
            for (std::size_t i = 0; i < batches; ++i) sizes.push_back(leading[batches][i]);
            sizes.push_back(transposed ? columns : rows);
            sizes.push_back(transposed ? rows : columns);
            return placeholder(graph, name, dtype, Shape(sizes));
          };
          const Output product =
              matmul(matrices("a", transpose_a, 5, 7), matrices("b", transpose_b, 7, 4),
                     {transpose_a, transpose_b});
          EXPECT_EQ(expect_reference(product.node()).by_library, (Enqueued{0, 1}));
        }
}

// Follows the definition of TensorFlow's SAME without code of ours: each channel of y shows one
// pixel of the window.
TEST(Conv2dGpuKernel, SeesThePixelsUnderEachWindow) {
  for (int in = 1; in <= 8; ++in)
    for (int window = 1; window <= 5; ++window)
      for (int stride = 1; stride <= 3; ++stride) {
        const Convolved some({1, in, in, 1}, {window * window, window, window, 1}, {stride});
        Tensor x({1, in, in, 1}, DType::kF32);
        for (int i = 0; i < in * in; ++i)
          x.mutable_data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
        Tensor filter({window * window, window, window, 1}, DType::kF32);
        const auto taps = static_cast<std::size_t>(window * window);
        for (std::size_t i = 0; i < taps; ++i) filter.mutable_data<float>()[i * taps + i] = 1;
        NotedAlgorithms algorithms;
        HostQueue queue;
        const Tensor y = NodeKernel(*some.nodes[0], algorithms)(queue, {x, filter});
        const int out = (in + stride - 1) / stride;
        const int before = std::max(0, (out - 1) * stride + window - in) / 2;
        ASSERT_EQ(y.shape(), Shape({1, out, out, window * window}));
        std::size_t at = 0;
        for (int row = 0; row < out; ++row)
          for (int column = 0; column < out; ++column)
            for (int i = 0; i < window; ++i)
              for (int j = 0; j < window; ++j) {
                const int r = row * stride - before + i, c = column * stride - before + j;
                const bool inside = r >= 0 && r < in && c >= 0 && c < in;
                ASSERT_EQ(y.data<float>()[at++], inside ? static_cast<float>(r * in + c + 1) : 0)
                    << in << " " << window << " " << stride << " at " << row << "," << column;
              }
      }
}

TEST(Conv2dGpuKernel, GivesTheLibraryEvenPaddingAlone) {
  NotedAlgorithms algorithms;
  // 6 pixels, windows of 3, stride 2: 1 pixel of padding, after. Columns: 5 pixels, 1 and 1.
  const Convolved odd({2, 6, 5, 3}, {4, 3, 3, 3}, {.stride = 2});
  for (const Node* node : odd.nodes) {
    const NodeKernel kernel(*node, algorithms);
    const Convolution& asked = algorithms.convolutions.back();
    EXPECT_EQ(asked.x, (std::array{2, 7, 7, 3}));
    EXPECT_EQ(asked.filter, (std::array{4, 3, 3, 3}));
    EXPECT_EQ(asked.y, (std::array{2, 3, 3, 4}));
    EXPECT_EQ(asked.padding, (std::array{0, 0}));
    EXPECT_EQ(asked.stride, (std::array{2, 2}));
    // The copy, 1176 bytes, in multiples of 64, and what the algorithm needs.
    EXPECT_EQ(kernel.plan.workspace_bytes(), 1280 + 160);
  }
  const Convolved even({2, 5, 7, 3}, {4, 3, 5, 3}, {.stride = 2}, DType::kF64);
  for (const Node* node : even.nodes) {
    const NodeKernel kernel(*node, algorithms);
    const Convolution& asked = algorithms.convolutions.back();
    EXPECT_EQ(asked.x, (std::array{2, 5, 7, 3}));
    EXPECT_EQ(asked.padding, (std::array{1, 2}));
    EXPECT_EQ(asked.dtype, DType::kF64);
    EXPECT_EQ(kernel.plan.workspace_bytes(), 160);
  }
  ASSERT_EQ(algorithms.convolutions.size(), 6u);
  EXPECT_EQ(algorithms.convolutions[0].kind, Convolution::Kind::kForward);
  EXPECT_EQ(algorithms.convolutions[1].kind, Convolution::Kind::kGradInput);
  EXPECT_EQ(algorithms.convolutions[2].kind, Convolution::Kind::kGradFilter);
}

TEST(Conv2dGpuKernel, TellsTheLibraryDilationAndGroups) {
  NotedAlgorithms algorithms;
  const Convolved some({2, 9, 9, 6}, {4, 3, 3, 3}, {.dilation = 2, .groups = 2});
  for (const Node* node : some.nodes) {
    const NodeKernel kernel(*node, algorithms);
    const Convolution& asked = algorithms.convolutions.back();
    EXPECT_EQ(asked.x, (std::array{2, 9, 9, 6}));
    EXPECT_EQ(asked.filter, (std::array{4, 3, 3, 3}));
    EXPECT_EQ(asked.y, (std::array{2, 9, 9, 4}));
    EXPECT_EQ(asked.padding, (std::array{2, 2}));
    EXPECT_EQ(asked.dilation, (std::array{2, 2}));
    EXPECT_EQ(asked.groups, 2);
  }
}

// A padded copy would count the padding.
TEST(AvgPoolGpuKernel, AsksTheLibraryForEvenPaddingAlone) {
  NotedAlgorithms algorithms;
  const Pooled odd({2, 6, 5, 3}, {.window = 3, .stride = 2});
  for (const Node* node : odd.nodes) NodeKernel(*node, algorithms);
  EXPECT_TRUE(algorithms.poolings.empty());
  const Pooled even({2, 5, 7, 3}, {.window = 3, .stride = 2});
  for (const Node* node : even.nodes) NodeKernel(*node, algorithms);
  ASSERT_EQ(algorithms.poolings.size(), 2u);
  Pooling wanted{.x = {2, 5, 7, 3}, .y = {2, 3, 4, 3}, .window = {3, 3}, .padding = {1, 1}};
  wanted.stride = {2, 2};
  EXPECT_EQ(algorithms.poolings[0], wanted);
  wanted.gradient = true;
  EXPECT_EQ(algorithms.poolings[1], wanted);
}

// Our row-major matrix is, to cuBLASLt, the column-major transpose.
TEST(MatMulGpuKernel, AsksForTheTransposedProduct) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {3, 7, 5});
  const Output b = placeholder(graph, "b", DType::kF32, {3, 7, 4});
  NotedAlgorithms algorithms;
  const NodeKernel kernel(matmul(a, b, {.transpose_a = true}).node(), algorithms);
  ASSERT_EQ(algorithms.matmuls.size(), 1u);
  const MatMul wanted{.count = 3,
                      .a = {.rows = 4, .columns = 7, .leading = 4, .step = 28},
                      .b = {.rows = 5, .columns = 7, .leading = 5, .step = 35},
                      .c = {.rows = 4, .columns = 5, .leading = 4, .step = 20},
                      .transpose_b = true};
  EXPECT_EQ(algorithms.matmuls[0], wanted);
  EXPECT_EQ(kernel.plan.workspace_bytes(), 96);
}

// The forward pass and the gradient ask for the same recurrence, so one choice holds for both.
TEST(WholeRecurrenceGpuKernel, AsksCudnnForBothPassesAtOnce) {
  for (const bool is_lstm : {true, false})
    for (const DType dtype : {DType::kF32, DType::kF64}) {
      Graph graph;
      const std::int64_t columns = (is_lstm ? 4 : 3) * 5;
      const Output x = placeholder(graph, "x", dtype, {3, 7, 2});
      const RecurrentWeights weights{.input = placeholder(graph, "w", dtype, {2, columns}),
                                     .hidden = placeholder(graph, "u", dtype, {5, columns})};
      const auto build = is_lstm ? whole_lstm : whole_gru;
      gradients(build(x, weights, {}, {}).y, std::vector{x});
      const Recurrence wanted{.cell = is_lstm ? Recurrence::Cell::kLstm : Recurrence::Cell::kGru,
                              .dtype = dtype,
                              .batch = 3,
                              .time = 7,
                              .features = 2,
                              .hidden = 5,
                              .saved_bytes = 3 * ((is_lstm ? 5 : 6) * 7 * 5 + 128) *
                                             static_cast<std::int64_t>(size_of(dtype))};
      NotedAlgorithms algorithms;
      for (const Op* op :
           {is_lstm ? &kWholeLstm : &kWholeGru, is_lstm ? &kWholeLstmGrad : &kWholeGruGrad})
        NodeKernel(*nodes_of(graph, *op).at(0), algorithms);
      EXPECT_EQ(algorithms.recurrences, (std::vector{wanted, wanted}));
    }
}

TEST(WholeRecurrenceGpuKernel, NamesItself) {
  const Recurrence of{
      .compute = Compute::kTf32, .batch = 64, .time = 128, .features = 100, .hidden = 256};
  EXPECT_EQ(of.str(), "Lstm f32 tf32 x [64,128,100] hidden 256");
  EXPECT_EQ(of.columns(), 1024);
  EXPECT_EQ(of.weights(), 1024 * (100 + 256 + 2));
}

TEST(AttentionGpuKernel, AsksCudnnFor16BitsAlone) {
  NotedAlgorithms algorithms;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    Graph graph;
    const Output q = placeholder(graph, "q", dtype, {3, 10, 48});
    gradients(causal_attention(q, q, q, {.heads = 4}), std::vector{q});
    for (const Op* op : {&kAttention, &kAttentionGrad}) {
      algorithms.attentions.clear();
      const NodeKernel kernel(*nodes_of(graph, *op).at(0), algorithms);
      if (!is_half(dtype)) {
        EXPECT_TRUE(algorithms.attentions.empty());
        continue;
      }
      ASSERT_EQ(algorithms.attentions.size(), 1u);
      EXPECT_EQ(algorithms.attentions[0], (Attention{.gradient = op == &kAttentionGrad,
                                                     .dtype = dtype,
                                                     .batch = 3,
                                                     .time = 10,
                                                     .heads = 4,
                                                     .head_dim = 12,
                                                     .scale = 1 / std::sqrt(12.0F)}));
      EXPECT_EQ(kernel.plan.workspace_bytes(), 160);
    }
  }
  EXPECT_TRUE(algorithms.matmuls.empty());
}

TEST(LibraryGpuKernels, AskForNothingWhereATensorIsEmpty) {
  NotedAlgorithms algorithms;
  const Convolved convolved({0, 5, 5, 3}, {4, 3, 3, 3}, {});
  for (const Node* node : convolved.nodes) expect_reference(*node);
  const Pooled pooled({0, 5, 5, 3}, {});
  for (const Node* node : pooled.nodes) expect_reference(*node);
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {3, 0});
  const Output b = placeholder(graph, "b", DType::kF32, {0, 4});
  const Node& zeros = matmul(a, b).node();
  EXPECT_EQ(expect_reference(zeros).by_library, (Enqueued{1, 0}));
  const Node& nothing = matmul(b, placeholder(graph, "c", DType::kF32, {4, 2})).node();
  EXPECT_EQ(expect_reference(nothing).by_library, (Enqueued{0, 0}));
  for (const Node* node : {convolved.nodes[0], pooled.nodes[0], &zeros, &nothing})
    NodeKernel(*node, algorithms);
  EXPECT_TRUE(algorithms.matmuls.empty());
  EXPECT_TRUE(algorithms.convolutions.empty());
  EXPECT_TRUE(algorithms.poolings.empty());
}

TEST(Calls, NameThemselves) {
  const Convolution convolution{.kind = Convolution::Kind::kGradInput,
                                .compute = Compute::kTf32,
                                .x = {64, 28, 28, 32},
                                .filter = {64, 5, 5, 32},
                                .y = {64, 28, 28, 64},
                                .padding = {2, 2}};
  EXPECT_EQ(convolution.str(),
            "Conv2dGradInput f32 tf32 x [64,28,28,32] filter [64,5,5,32] y [64,28,28,64] padding "
            "[2,2] stride [1,1]");
  const Convolution grouped{.x = {1, 9, 9, 6},
                            .filter = {4, 3, 3, 3},
                            .y = {1, 9, 9, 4},
                            .padding = {2, 2},
                            .dilation = {2, 2},
                            .groups = 2};
  EXPECT_EQ(grouped.str(),
            "Conv2d f32 x [1,9,9,6] filter [4,3,3,3] y [1,9,9,4] padding [2,2] stride [1,1] "
            "dilation [2,2] groups 2");
  const Pooling pooling{.gradient = true,
                        .dtype = DType::kF64,
                        .x = {64, 28, 28, 32},
                        .y = {64, 14, 14, 32},
                        .window = {2, 2},
                        .stride = {2, 2}};
  EXPECT_EQ(pooling.str(),
            "AvgPoolGrad f64 x [64,28,28,32] y [64,14,14,32] window [2,2] padding [0,0] stride "
            "[2,2]");
  const Attention attention{
      .gradient = true, .dtype = DType::kF16, .batch = 64, .time = 256, .heads = 6, .head_dim = 32};
  EXPECT_EQ(attention.str(), "CausalAttentionGrad f16 [64,256,6,32]");
  EXPECT_EQ((Attention{.joined = true}.str()), "CausalAttention bf16 [1,1,1,1] joined");
}

}  // namespace library_kernels_test
}  // namespace belfry::cuda
