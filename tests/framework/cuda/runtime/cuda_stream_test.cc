// Memory and streams of GPUs, if there is one.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/cuda/runtime/cuda_segment.h"
#include "belfry/framework/device/gpus.h"

namespace belfry {
namespace cuda_stream_test {

class CudaStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  }

  // Waits until a GPU has set the counter; false after 10 s.
  static bool reaches(std::int64_t& counter, std::int64_t value, const GpuStream& stream) {
    for (int i = 0; i < 10'000; ++i) {
      if (std::atomic_ref(counter).load(std::memory_order_acquire) == value) return true;
      stream.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  const GpuBackend& backend = *gpus().backend();
};

TEST_F(CudaStreamTest, MemoryOfAGpuIsAligned) {
  for (const std::size_t bytes : {1, 100, 1 << 20}) {
    void* const memory = backend.allocate(0, bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
    backend.deallocate(0, memory);
  }
  EXPECT_EQ(backend.allocate(0, std::size_t{1} << 50), nullptr);
}

TEST_F(CudaStreamTest, CopiesInOrderAndStampsBehindThem) {
  constexpr std::size_t kBytes = 8 << 20;
  void* const on_gpu = backend.allocate(0, kBytes);
  auto* const from = static_cast<unsigned char*>(backend.allocate_pinned(kBytes));
  auto* const to = static_cast<unsigned char*>(backend.allocate_pinned(kBytes));
  auto* const counter = static_cast<std::int64_t*>(backend.allocate_pinned(64));
  ASSERT_TRUE(on_gpu && from && to && counter);
  *counter = 0;
  {
    const auto first = backend.make_stream(0, {}), second = backend.make_stream(0, {});
    const auto event = backend.make_event(0);
    backend.use(0);
    for (int round = 1; round <= 20; ++round) {
      std::iota(from, from + kBytes, static_cast<unsigned char>(round));
      first->copy(on_gpu, from, kBytes);
      first->record(*event);
      second->wait(*event);
      second->copy(to, on_gpu, kBytes);
      second->stamp(*counter, round);
      ASSERT_TRUE(reaches(*counter, round, *second));
      ASSERT_TRUE(std::equal(from, from + kBytes, to)) << round;
    }
    first->drain();
    second->drain();
  }
  std::fill_n(to, kBytes, static_cast<unsigned char>(0));
  backend.copy(to, on_gpu, kBytes);
  EXPECT_TRUE(std::equal(from, from + kBytes, to));
  backend.deallocate(0, on_gpu);
  for (void* const memory :
       {static_cast<void*>(from), static_cast<void*>(to), static_cast<void*>(counter)})
    backend.deallocate_pinned(memory);
}

TEST_F(CudaStreamTest, ReplaysWhatItHasCapturedInTwoStreams) {
  constexpr std::size_t kBytes = 1 << 20;
  Graph graph;
  const Node& node = fill(graph, {4}, 1).node();
  void* const near = backend.allocate(0, kBytes);
  void* const far = backend.allocate(0, kBytes);
  auto* const from = static_cast<unsigned char*>(backend.allocate_pinned(kBytes));
  auto* const to = static_cast<unsigned char*>(backend.allocate_pinned(kBytes));
  auto* const counter = static_cast<std::int64_t*>(backend.allocate_pinned(64));
  ASSERT_TRUE(near && far && from && to && counter);
  *counter = 0;
  {
    const auto first = backend.make_stream(0, {}), second = backend.make_stream(0, {});
    const auto fork = backend.make_event(0), join = backend.make_event(0);
    backend.use(0);
    first->begin_capture(node, node);
    first->copy(near, from, kBytes);
    first->record(*fork);
    second->wait(*fork);
    second->copy(far, near, kBytes);
    second->record(*join);
    first->wait(*join);
    first->copy(to, far, kBytes);
    const auto segment = first->end_capture();
    for (int round = 1; round <= 20; ++round) {
      std::iota(from, from + kBytes, static_cast<unsigned char>(round));
      first->launch(*segment);
      first->record(*join);
      second->wait(*join);
      second->stamp(*counter, round);
      ASSERT_TRUE(reaches(*counter, round, *second));
      ASSERT_TRUE(std::equal(from, from + kBytes, to)) << round;
    }
    first->drain();
    second->drain();
  }
  for (void* const memory : {near, far}) backend.deallocate(0, memory);
  for (void* const memory :
       {static_cast<void*>(from), static_cast<void*>(to), static_cast<void*>(counter)})
    backend.deallocate_pinned(memory);
}

TEST_F(CudaStreamTest, CopiesManyTensorsToTheHostAtOnce) {
  constexpr std::size_t kTensors = 300, kMost = 1000;
  auto* const on_gpu = static_cast<unsigned char*>(backend.allocate(0, kTensors * kMost));
  auto* const from = static_cast<unsigned char*>(backend.allocate_pinned(kTensors * kMost));
  auto* const to = static_cast<unsigned char*>(backend.allocate_pinned(kTensors * kMost));
  auto* const counter = static_cast<std::int64_t*>(backend.allocate_pinned(64));
  ASSERT_TRUE(on_gpu && from && to && counter);
  *counter = 0;
  std::iota(from, from + kTensors * kMost, static_cast<unsigned char>(1));
  std::fill_n(to, kTensors * kMost, static_cast<unsigned char>(0));
  std::vector<unsigned char> wanted(kTensors * kMost);
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<std::size_t> bytes;
  for (std::size_t i = 0; i < kTensors; ++i) {
    targets.push_back(to + i * kMost);
    sources.push_back(on_gpu + i * kMost);
    bytes.push_back(4 * (i % 250));
    std::copy_n(from + i * kMost, bytes.back(), wanted.data() + i * kMost);
  }
  {
    const auto stream = backend.make_stream(0, {});
    backend.use(0);
    stream->copy(on_gpu, from, kTensors * kMost);
    stream->copy_each(targets, sources, bytes);
    stream->stamp(*counter, 1);
    ASSERT_TRUE(reaches(*counter, 1, *stream));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), to));
  }
  backend.deallocate(0, on_gpu);
  for (void* const memory :
       {static_cast<void*>(from), static_cast<void*>(to), static_cast<void*>(counter)})
    backend.deallocate_pinned(memory);
}

TEST_F(CudaStreamTest, CapturesNoWaitForWorkFromBeforeAndWorksOn) {
  Graph graph;
  const Node& node = fill(graph, {4}, 1).node();
  const auto stream = backend.make_stream(0, {});
  const auto event = backend.make_event(0);
  backend.use(0);
  stream->record(*event);
  stream->begin_capture(node, node);
  try {
    stream->wait(*event);
    ADD_FAILURE() << "threw nothing";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorStreamCaptureIsolation"));
  }
  stream->abandon_capture();
  stream->wait(*event);
  stream->drain();
  stream->check();
}

TEST(CudaSegment, IsNamedByItsFirstAndLastNode) {
  Graph graph;
  const Node& first = fill(graph, {4}, 1, DType::kF32, "first").node();
  const Node& last = fill(graph, {4}, 1, DType::kF32, "last").node();
  const std::string text = cuda::segment_text(first, last, "GPU 3");
  EXPECT_EQ(text,
            cat("for the segment from ", first.describe(), " to ", last.describe(), ", on GPU 3"));
  try {
    const cuda::CudaSegment segment(nullptr, nullptr, text);
    ADD_FAILURE() << "threw nothing";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("cudaGraphInstantiate failed: "),
                                             testing::EndsWith(text)));
  }
}

}  // namespace cuda_stream_test
}  // namespace belfry
