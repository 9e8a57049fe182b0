// Nodes for tests of kernels that call libraries, and the calls that they ask algorithms for.
#pragma once
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/tests/cuda/host_queue.h"

namespace belfry::cuda {

// Gives algorithms that need workspace and notes the calls; or gives none.
class NotedAlgorithms final : public Algorithms {
 public:
  explicit NotedAlgorithms(bool any = true) : any_(any) {}
  MatMulAlgorithm matmul(const MatMul& matmul) override {
    matmuls.push_back(matmul);
    return {.workspace_bytes = 96};
  }
  std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) override {
    convolutions.push_back(convolution);
    if (!any_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }
  bool pooling(const Pooling& pooling) override {
    poolings.push_back(pooling);
    return any_;
  }
  std::optional<CudnnAlgorithm> attention(const Attention& attention,
                                          const MakeOwnKernel&) override {
    attentions.push_back(attention);
    if (!any_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }
  std::optional<CudnnAlgorithm> recurrence(const Recurrence& recurrence,
                                           const MakeRecurrence&) override {
    recurrences.push_back(recurrence);
    if (!any_) return {};
    return CudnnAlgorithm{.workspace_bytes = 160};
  }

  std::vector<MatMul> matmuls;
  std::vector<Convolution> convolutions;
  std::vector<Pooling> poolings;
  std::vector<Attention> attentions;
  std::vector<Recurrence> recurrences;

 private:
  bool any_;
};

// The prepared kernel of a node whose shapes are known.
struct NodeKernel {
  NodeKernel(const Node& node, Algorithms& algorithms)
      : inputs(input_types(node)),
        outputs(output_types(node)),
        range(whole_range(node.op(), collective_size(node), inputs, outputs)),
        plan(node, inputs, outputs, range),
        run(prepare_gpu_kernel(plan, algorithms)) {}
  NodeKernel(const NodeKernel&) = delete;  // the plan has references to it
  NodeKernel& operator=(const NodeKernel&) = delete;

  Tensor operator()(KernelQueue& queue, std::vector<Tensor> values) const {
    return compute(values, [&](const KernelPointers& p) { run(p, queue); });
  }
  // The result of the op's plain loops.
  Tensor reference(std::vector<Tensor> values) {
    return compute(values, plan.node().op().reference(plan));
  }

  std::vector<TensorType> inputs, outputs;
  WorkRange range;
  KernelPlan plan;
  QueueRun run;

 private:
  static std::vector<TensorType> input_types(const Node& node) {
    std::vector<TensorType> types;
    for (const Output& input : node.inputs()) types.push_back(input.type());
    return types;
  }
  static std::vector<TensorType> output_types(const Node& node) { return {node.output_type(0)}; }
  template <class Run>
  Tensor compute(std::vector<Tensor>& values, const Run& what) const {
    Tensor out(outputs[0].shape, outputs[0].dtype);
    std::memset(out.mutable_raw(), 0xff, out.bytes());
    Tensor workspace(Shape{plan.workspace_bytes()}, DType::kU8);
    std::vector<void*> in, to{out.mutable_raw()};
    for (Tensor& value : values) in.push_back(value.mutable_raw());
    what(KernelPointers(in, to, workspace.mutable_raw(), range, 0));
    return out;
  }
};

// Whole numbers from -3 to 3 times `unit`, so that sums of them are exact.
inline Tensor whole_numbers(const Shape& shape, DType dtype, int unit = 1) {
  Tensor tensor(shape, dtype);
  visit_floating(dtype, [&]<class T>(T) {
    std::uint32_t bits = 1;
    for (T& value : tensor.mutable_data<T>()) {
      bits = bits * 1664525 + 1013904223;
      value = static_cast<T>((static_cast<int>(bits >> 16) % 7 - 3) * unit);
    }
  });
  return tensor;
}

inline std::vector<Tensor> whole_numbers(const NodeKernel& kernel, int unit = 1) {
  std::vector<Tensor> values;
  for (const TensorType& type : kernel.inputs)
    values.push_back(whole_numbers(type.shape, type.dtype, unit));
  return values;
}

// Numbers between -1 and 1, some of them 0.
inline Tensor numbers(const Shape& shape, DType dtype, std::uint32_t seed = 7) {
  Tensor wide(shape, DType::kF32);
  for (float& value : wide.mutable_data<float>()) {
    seed = seed * 1664525 + 1013904223;
    value = seed >> 28 == 0 ? 0 : static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  if (!is_half(dtype)) return wide;
  Tensor narrow(shape, dtype);
  kernels::half_conversion(dtype).narrow(wide.data<float>().data(),
                                         reinterpret_cast<std::uint16_t*>(narrow.mutable_raw()),
                                         shape.elements());
  return narrow;
}

// Calls visit(height, width, window down, window right, stride, padding) for many windows that fit:
// odd and even padding, strides that leave pixels out, windows as large as the image.
template <class Visit>
void for_each_window(const Visit& visit) {
  for (const Padding padding : {Padding::kSame, Padding::kValid})
    for (const int height : {1, 2, 3, 4, 5, 6, 7})
      for (const int down : {1, 2, 3, 4, 5})
        for (const int stride : {1, 2, 3}) {
          const int width = height % 5 + 2, right = down % 3 + 1;
          if (padding == Padding::kSame || (down <= height && right <= width))
            visit(height, width, down, right, stride, padding);
        }
}

// The nodes of one op, in order of creation.
inline std::vector<const Node*> nodes_of(const Graph& graph, const Op& op) {
  std::vector<const Node*> nodes;
  for (std::size_t i = 0; i < graph.size(); ++i)
    if (&graph.node(i).op() == &op) nodes.push_back(&graph.node(i));
  return nodes;
}

// A convolution and its two gradients.
struct Convolved {
  Convolved(Shape image, Shape filter, Conv2dOptions options, DType dtype = DType::kF32) {
    const Output x = placeholder(graph, "x", dtype, std::move(image));
    const Output w = placeholder(graph, "w", dtype, std::move(filter));
    gradients(conv2d(x, w, options), std::vector{x, w});
    for (const Op* op : {&kConv2d, &kConv2dGradInput, &kConv2dGradFilter})
      nodes.push_back(nodes_of(graph, *op).at(0));
  }

  Graph graph;
  std::vector<const Node*> nodes;
};

// Average pooling and its gradient.
struct Pooled {
  Pooled(Shape image, PoolOptions options, DType dtype = DType::kF32) {
    const Output x = placeholder(graph, "x", dtype, std::move(image));
    gradients(avg_pool(x, options), std::vector{x});
    for (const Op* op : {&kAvgPool, &kAvgPoolGrad}) nodes.push_back(nodes_of(graph, *op).at(0));
  }

  Graph graph;
  std::vector<const Node*> nodes;
};

}  // namespace belfry::cuda
