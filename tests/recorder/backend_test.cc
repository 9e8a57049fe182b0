// The module's calls of CUDA for sessions, one by one.
#include <thread>

#include "belfry/ops/convolution/avg_pool.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace backend_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecorderBackend : public RecorderTest {
 protected:
  const GpuBackend& backend() const { return *gpus().backend(); }
  // The calls that allocate memory or make handles.
  static std::vector<std::string> made() {
    std::vector<std::string> all;
    for (const auto& [function, count] : recorder().counts())
      if (function == "cudaMalloc" || function == "cudaHostAlloc" || function == "cublasLtCreate" ||
          function == "cudnnCreate")
        all.insert(all.end(), static_cast<std::size_t>(count), function);
    return all;
  }
  GpuRun prepared(const Node& node) const {
    std::vector<TensorType> inputs, outputs;
    for (const Output& input : node.inputs())
      inputs.push_back(input.node().output_type(input.index()));
    for (std::size_t i = 0; i < node.outputs(); ++i) outputs.push_back(node.output_type(i));
    KernelPlan plan(node, inputs, outputs, {0, outputs[0].shape.elements()});
    return backend().prepare(1, plan, true);
  }
};

TEST_F(RecorderBackend, SeesTheGpus) {
  EXPECT_EQ(backend().count(), Recorder::kGpus);
  EXPECT_EQ(gpus().why_none(), "");
  EXPECT_EQ(backend().info(3).name, "Recorder");
  EXPECT_EQ(backend().refusal(3), "");
  EXPECT_TRUE(backend().peer_access(0, 1));
}

TEST_F(RecorderBackend, SaysWhyCodeDoesNotRun) {
  recorder().fail("cudaFuncGetAttributes", 0, cudaErrorNoKernelImageForDevice);
  EXPECT_THAT(backend().refusal(3), HasSubstr("GPU 3 (Recorder, compute capability 9.0)"));
  EXPECT_EQ(Recorder::last_error, cudaSuccess);
}

TEST_F(RecorderBackend, AllocatesOnTheGpuThatIsAskedFor) {
  for (const int gpu : {0, 3, 7}) {
    void* const memory = backend().allocate(gpu, 100);
    EXPECT_EQ(recorder().gpu_of(memory), gpu);
    backend().deallocate(gpu, memory);
  }
  void* const pinned = backend().allocate_pinned(100);
  EXPECT_EQ(recorder().gpu_of(pinned), -1);
  backend().deallocate_pinned(pinned);
}

TEST_F(RecorderBackend, GivesNullWhereThereIsNoMemory) {
  recorder().fail("cudaMalloc", 0, cudaErrorMemoryAllocation);
  EXPECT_EQ(backend().allocate(0, 100), nullptr);
  recorder().fail("cudaHostAlloc", 0, cudaErrorMemoryAllocation);
  EXPECT_EQ(backend().allocate_pinned(100), nullptr);
  EXPECT_EQ(Recorder::last_error, cudaSuccess);
}

TEST_F(RecorderBackend, LeavesAThreadOnItsGpu) {
  std::thread([&] {
    backend().use(2);
    backend().deallocate(5, backend().allocate(5, 100));
    EXPECT_EQ(Recorder::current, 2);
  }).join();
}

// A thread without a context gets none on GPU 0, where it would take memory.
TEST_F(RecorderBackend, PutsNoThreadOnGpu0) {
  std::thread([&] {
    backend().deallocate(5, backend().allocate(5, 100));
    EXPECT_EQ(Recorder::current, 5);
  }).join();
}

// Each context takes hundreds of MB of a GPU, which may belong to another process. Threads of their
// own, as that which saves, have none at first.
TEST_F(RecorderBackend, CopiesWithoutAContextOnAnotherGpu) {
  std::vector<std::byte*> memory;
  std::thread([&] {
    memory = {static_cast<std::byte*>(backend().allocate(5, 100)),
              static_cast<std::byte*>(backend().allocate_pinned(100))};
  }).join();
  std::vector<char> sent(100, 'a'), received(100);
  std::thread([&] {
    backend().copy(memory[1], sent.data(), 100);
    backend().copy(memory[0], memory[1], 100);
  }).join();
  std::thread([&] { backend().copy(memory[1], memory[0], 100); }).join();
  std::thread([&] { backend().copy(received.data(), memory[1], 100); }).join();
  EXPECT_EQ(received, sent);
  EXPECT_THAT(recorder().contexts, ::testing::ElementsAre(5));
  backend().deallocate(5, memory[0]);
  backend().deallocate_pinned(memory[1]);
}

TEST_F(RecorderBackend, CopiesBetweenAnyMemoryAndWaits) {
  auto* const near = static_cast<std::byte*>(backend().allocate(0, 100));
  auto* const far = static_cast<std::byte*>(backend().allocate(1, 100));
  backend().make_stream(1, std::vector{0, 1});
  std::vector<char> sent(100, 'a'), received(100);
  backend().copy(near, sent.data(), 100);
  backend().copy(far, near, 100);
  backend().copy(received.data(), far, 100);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(recorder().count("cudaStreamSynchronize"), 3);
  backend().deallocate(0, near);
  backend().deallocate(1, far);
}

TEST_F(RecorderBackend, StreamsReachTheirPeersAlone) {
  const auto stream = backend().make_stream(1, std::vector{0, 1, 2});
  const auto again = backend().make_stream(1, std::vector{0, 1, 2});
  EXPECT_EQ(recorder().peers, (std::set<std::pair<int, int>>{{1, 0}, {1, 2}}));
  EXPECT_EQ(Recorder::last_error, cudaSuccess);
  backend().use(1);
}

// Or the blocks of a sum would wait for each wave of a convolution's blocks.
TEST_F(RecorderBackend, UrgentStreamsHaveTheHighestPriority) {
  const auto priority = [&](bool is_urgent) {
    const auto stream = backend().make_stream(1, {}, is_urgent);
    EXPECT_EQ(recorder().streams.size(), 1u);
    return (*recorder().streams.begin())->priority;
  };
  EXPECT_EQ(priority(true), kHighestPriority);
  EXPECT_EQ(priority(false), 0);
}

// Streams of copies and communicators need no handles of libraries, nor memory for refused input.
// Both are made for the kernels that need them.
TEST_F(RecorderBackend, StreamsHaveNothingOfLibrariesByThemselves) {
  const auto stream = backend().make_stream(1, std::vector{1});
  EXPECT_THAT(made(), IsEmpty());
  stream->get_ready([](const KernelPointers&, GpuStream&) {});
  EXPECT_THAT(made(), IsEmpty());
}

TEST_F(RecorderBackend, StreamsAreMadeReadyForWhatTheirKernelsNeed) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1, 4, 4, 2});
  const Output a = placeholder(graph, "a", DType::kF32, {3, 3});
  const Output filter = placeholder(graph, "filter", DType::kF32, {2, 3, 3, 2});
  const std::vector<std::string> memory{"cudaHostAlloc", "cudaMalloc", "cudaMalloc"};
  const std::vector<Output> both{a, a};
  const std::map<const Node*, std::vector<std::string>> needs{
      {&all_reduce(both)[0].node(), {}},
      {&tanh(a).node(), memory},
      {&matmul(a, a).node(), {"cublasLtCreate", "cudaHostAlloc", "cudaMalloc", "cudaMalloc"}},
      {&conv2d(x, filter).node(), {"cudaHostAlloc", "cudaMalloc", "cudaMalloc", "cudnnCreate"}},
      {&avg_pool(x, {2}).node(), {"cudaHostAlloc", "cudaMalloc", "cudaMalloc", "cudnnCreate"}}};
  for (const auto& [node, all] : needs) {
    const GpuRun run = prepared(*node);
    const auto stream = backend().make_stream(1, std::vector{1});
    const auto strand = backend().make_stream(1, std::vector{1});
    backend().use(1);
    recorder().reset();
    stream->get_ready(run);
    EXPECT_EQ(made(), all) << node->describe();
    stream->get_ready(run);
    EXPECT_EQ(made(), all) << node->describe();
    // A strand may be captured meanwhile, even this one.
    std::thread([&] { strand->get_ready(run); }).join();
    EXPECT_THAT(recorder().calls(), ::testing::Each(::testing::Field(&Call::of_thread, true)));
  }
}

TEST_F(RecorderBackend, GpusNeedNotReachEachOther) {
  recorder().set_peers(false);
  EXPECT_FALSE(backend().peer_access(0, 1));
  const auto stream = backend().make_stream(1, std::vector{0, 1});
  EXPECT_EQ(recorder().count("cudaDeviceEnablePeerAccess"), 0);
  backend().use(1);
}

TEST_F(RecorderBackend, StampsComeBehindWhatTheStreamWasGiven) {
  const auto stream = backend().make_stream(0, std::vector{0});
  auto* const counter = static_cast<std::int64_t*>(backend().allocate_pinned(64));
  *counter = 0;
  backend().use(0);
  stream->stamp(*counter, 7);
  EXPECT_EQ(*counter, 7);
  backend().deallocate_pinned(counter);
}

// Workers of the host poll GPUs, and threads of GPUs poll other GPUs.
TEST_F(RecorderBackend, WhoeverAsksHowAGpuIsDoingStaysOnItsOwn) {
  const auto stream = backend().make_stream(4, std::vector{4});
  std::thread([&] {
    stream->check();
    backend().use(2);
    stream->check();
    EXPECT_EQ(Recorder::current, 2);
  }).join();
  EXPECT_THAT(recorder().violations(), IsEmpty());
  EXPECT_EQ(recorder().count("cudaStreamQuery"), 2);
}

TEST_F(RecorderBackend, WhatAGpuHasFailedWithIsThrown) {
  const auto stream = backend().make_stream(4, std::vector{4});
  backend().use(4);
  stream->check();
  recorder().fail("cudaStreamQuery", 0, cudaErrorNotReady);
  stream->check();
  recorder().fail("cudaStreamQuery", 0, cudaErrorIllegalAddress);
  EXPECT_THAT(message_of<DeviceError>([&] { stream->check(); }),
              ::testing::AllOf(HasSubstr("a launch before cudaStreamQuery failed"),
                               HasSubstr("on GPU 4"), HasSubstr("cudaErrorIllegalAddress")));
}

}  // namespace backend_test
}  // namespace belfry::recorder
