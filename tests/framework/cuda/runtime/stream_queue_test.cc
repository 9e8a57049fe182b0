#include "belfry/framework/cuda/runtime/stream_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/gpu_algorithms.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace stream_queue_test {

using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST(StreamQueue, WithoutADriverNamesTheDevice) {
  if (!gpus().backend()->versions().driver.empty()) GTEST_SKIP() << "there is a driver";
  EXPECT_THAT(
      error_of([] { StreamQueue queue("gpu:3"); }),
      AllOf(StartsWith("cudaDeviceGetStreamPriorityRange failed: "), EndsWith(", on gpu:3")));
  EXPECT_THAT(error_of([] { GpuAlgorithms("gpu:3", "NVIDIA H200").matmul({}); }),
              AllOf(StartsWith("cublasLtCreate failed: "), EndsWith(", on gpu:3")));
}

TEST(StreamQueue, RefusesGridsThatCudaCannotCount) {
  const Where where{.device = "gpu:0"};
  EXPECT_NO_THROW(check_grid({.blocks = (std::int64_t{1} << 31) - 1}, where));
  EXPECT_EQ(error_of([&] { check_grid({.blocks = std::int64_t{1} << 31}, where); }),
            "a kernel of 2147483648 blocks is more than CUDA launches, on gpu:0");
}

// The result of a kernel on the current GPU.
Tensor on_gpu(const NodeKernel& kernel, const std::vector<Tensor>& values, StreamQueue& queue) {
  Tensor out(kernel.outputs[0].shape, kernel.outputs[0].dtype);
  std::vector<DeviceMemory> memory;
  const auto place = [&](std::size_t bytes, const void* from) {
    memory.push_back(allocate(std::max<std::size_t>(bytes, 1), "in a test"));
    void* const to = memory.back().get();
    if (from)
      BELFRY_GPU_CALL(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "in a test");
    else
      BELFRY_GPU_CALL(cudaMemset(to, 0xff, bytes), "in a test");
    return to;
  };
  std::vector<void*> in;
  for (const Tensor& value : values) in.push_back(place(value.bytes(), value.raw()));
  std::vector<void*> to{place(out.bytes(), nullptr)};
  void* const workspace = place(static_cast<std::size_t>(kernel.plan.workspace_bytes()), nullptr);
  BELFRY_GPU_CALL(cudaDeviceSynchronize(), "in a test");
  kernel.run(KernelPointers(in, to, static_cast<std::byte*>(workspace), kernel.range, 0), queue);
  BELFRY_GPU_CALL(cudaStreamSynchronize(queue.stream()), "in a test");
  BELFRY_GPU_CALL(cudaMemcpy(out.mutable_raw(), to[0], out.bytes(), cudaMemcpyDeviceToHost),
                  "in a test");
  return out;
}

// The tolerance allows for cuDNN's algorithms that transform their inputs.
void expect_near(const Tensor& actual, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(actual.shape(), wanted.shape()) << what;
  visit_floating(wanted.dtype(), [&]<class T>(T) {
    T most = 1;
    for (const T value : wanted.data<T>()) most = std::max(most, std::abs(value));
    const T tolerance = most * (sizeof(T) == 4 ? T(1e-5) : T(1e-12));
    for (std::size_t i = 0; i < wanted.data<T>().size(); ++i)
      ASSERT_NEAR(actual.data<T>()[i], wanted.data<T>()[i], tolerance) << what << " at " << i;
  });
}

void expect_reference_on_gpu(const Node& node, GpuAlgorithms& source, AlgorithmProvider& provider,
                             StreamQueue& queue) {
  source.serve(node);
  queue.serve(node);
  NodeKernel kernel(node, provider);
  const std::vector<Tensor> values = whole_numbers(kernel);
  const Tensor first = on_gpu(kernel, values, queue);
  expect_near(first, kernel.reference(values), node.describe());
  EXPECT_EQ(on_gpu(kernel, values, queue), first) << node.describe();
}

TEST(StreamQueue, ComputesWhatThePlainLoopsGive) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  const DeviceGuard guard(0);
  GpuAlgorithms source("gpu:0", gpus().backend()->info(0).name);
  StreamQueue queue("gpu:0");
  queue.get_ready({});
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {.deterministic = true});
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const int width : {5, 6, 28})
      for (const int stride : {1, 2}) {
        const Convolved convolved({8, 28, width, 16}, {32, 3, 3, 16}, {stride}, dtype);
        const Pooled pooled({8, 28, width, 16}, {3, stride}, dtype);
        for (const Node* node : convolved.nodes)
          expect_reference_on_gpu(*node, source, provider, queue);
        for (const Node* node : pooled.nodes)
          expect_reference_on_gpu(*node, source, provider, queue);
      }
    Graph graph;
    const Output a = placeholder(graph, "a", dtype, {3, 65, 33});
    const Output b = placeholder(graph, "b", dtype, {3, 17, 33});
    expect_reference_on_gpu(matmul(a, b, {.transpose_b = true}).node(), source, provider, queue);
    expect_reference_on_gpu(relu(a).node(), source, provider, queue);
  }
}

TEST(StreamQueue, ComputesByMeasuredAlgorithms) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  const DeviceGuard guard(0);
  GpuAlgorithms source("gpu:0", gpus().backend()->info(0).name);
  StreamQueue queue("gpu:0");
  queue.get_ready({});
  AlgorithmTable table;
  AlgorithmProvider provider(source, table, {});
  const Convolved convolved({8, 28, 28, 16}, {32, 3, 3, 16}, {});
  for (const Node* node : convolved.nodes) {
    source.serve(*node);
    NodeKernel kernel(*node, provider);
    const std::vector<Tensor> values = whole_numbers(kernel);
    expect_near(on_gpu(kernel, values, queue), kernel.reference(values), node->describe());
  }
}

TEST(StreamQueue, ThrowsWhatKernelsHaveNotedUntilItIsForgotten) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  const DeviceGuard guard(0);
  StreamQueue queue("gpu:0");
  queue.get_ready({});
  const auto refusal =
      std::make_shared<const Refusal>([](std::int64_t element, std::int64_t value) {
        throw InvalidArgument(cat("element ", element, " is ", value));
      });
  const auto told = [&] {
    queue.tell_faults();
    BELFRY_GPU_CALL(cudaStreamSynchronize(queue.stream()), "in a test");
  };
  Fault* const fault = queue.fault(refusal);
  EXPECT_EQ(queue.fault(refusal), fault);
  told();
  EXPECT_NO_THROW(queue.raise_fault());
  Fault noted;
  note(&noted, 7, -3);
  BELFRY_GPU_CALL(cudaMemcpy(fault, &noted, sizeof noted, cudaMemcpyHostToDevice), "in a test");
  BELFRY_GPU_CALL(cudaDeviceSynchronize(), "in a test");  // cudaMemcpy may return before the copy
  told();
  EXPECT_THROW(queue.raise_fault(), InvalidArgument);
  queue.forget_faults();
  told();
  EXPECT_NO_THROW(queue.raise_fault());
}

TEST(StreamQueue, GivesThePlacesOfRefusalsThatAreGoneToOthers) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  const DeviceGuard guard(0);
  StreamQueue queue("gpu:0");
  queue.get_ready({});
  const auto refusal = [] {
    return std::make_shared<const Refusal>([](std::int64_t, std::int64_t) {});
  };
  const auto kept = refusal();
  Fault* const first = queue.fault(kept);
  Fault* const second = queue.fault(refusal());
  EXPECT_EQ(queue.fault(refusal()), second);
  for (int i = 0; i < 100'000; ++i) queue.fault(refusal());
  EXPECT_EQ(queue.fault(kept), first);
}

}  // namespace stream_queue_test
}  // namespace belfry::cuda
