// The recorder notices what CUDA forbids; else the other tests would expect too little.
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace rules_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecorderRules : public ::testing::Test {
 protected:
  void SetUp() override {
    recorder().reset();
    cudaSetDevice(0);
    for (cudaStream_t& stream : streams_)
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
  }
  void TearDown() override {
    recorder().reset();
    cudaSetDevice(0);
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaEventDestroy(event_);
    EXPECT_THAT(recorder().violations(), ::testing::IsEmpty());
    recorder().reset();
    cudaGetLastError();
  }

  cudaStream_t stream() const { return streams_[0]; }
  cudaStream_t other() const { return streams_[1]; }
  void begin() const {
    ASSERT_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  cudaError_t end() const {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(stream(), &graph);
    if (graph) cudaGraphDestroy(graph);
    return status;
  }
  // From here on the other stream is captured, too.
  void fork() const {
    cudaEventRecord(event_, stream());
    cudaStreamWaitEvent(other(), event_, 0);
  }
  static void expect_violation(const std::string& text) {
    EXPECT_THAT(recorder().violations(), ElementsAre(HasSubstr(text)));
  }

  cudaStream_t streams_[2] = {};
  cudaEvent_t event_ = nullptr;
};

TEST_F(RecorderRules, StreamsAndEventsAreOfTheKindThatWaitsForNothing) {
  cudaStream_t blocking = nullptr;
  cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0);
  cudaEvent_t sleepy = nullptr;
  cudaEventCreateWithFlags(&sleepy, cudaEventBlockingSync);
  EXPECT_THAT(recorder().violations(),
              ElementsAre("a stream waits for the legacy one", "an event for which threads sleep"));
  cudaStreamDestroy(blocking);
  cudaEventDestroy(sleepy);
}

TEST_F(RecorderRules, EventsThatMeasureTimeOrderNothing) {
  cudaEvent_t timer = nullptr;
  cudaEventCreateWithFlags(&timer, cudaEventDefault);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timer, timer), cudaErrorInvalidResourceHandle);
  cudaEventRecord(timer, stream());
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timer, timer), cudaSuccess);
  EXPECT_EQ(milliseconds, 0);
  cudaEventRecord(event_, stream());
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timer, event_), cudaErrorInvalidResourceHandle);
  cudaStreamWaitEvent(other(), timer, 0);
  begin();
  cudaEventRecord(timer, stream());
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_THAT(recorder().violations(), ElementsAre("a wait for an event that measures time",
                                                   "an event that measures time is captured"));
  cudaEventDestroy(timer);
}

TEST_F(RecorderRules, TheGpuOfAStreamIsCurrent) {
  cudaSetDevice(1);
  cudaMemsetAsync(nullptr, 0, 0, stream());
  EXPECT_THAT(recorder().violations()[0], HasSubstr("in a stream of GPU 0 while GPU 1 is current"));
}

TEST_F(RecorderRules, AnEventIsRecordedOnItsGpuAndBeforeItIsWaitedFor) {
  cudaSetDevice(1);
  cudaStream_t there = nullptr;
  cudaStreamCreateWithPriority(&there, cudaStreamNonBlocking, 0);
  EXPECT_EQ(cudaEventRecord(event_, there), cudaErrorInvalidResourceHandle);
  cudaStreamWaitEvent(there, event_, 0);
  cudaStreamDestroy(there);
  EXPECT_THAT(recorder().violations(), ElementsAre("an event of GPU 0 in a stream of GPU 1",
                                                   "a wait for an event that was never recorded"));
}

TEST_F(RecorderRules, TheLegacyStreamIsNotUsed) {
  EXPECT_EQ(cudaEventRecord(event_, nullptr), cudaErrorInvalidResourceHandle);
  expect_violation("in the legacy stream");
}

TEST_F(RecorderRules, CapturesAreOfTheirThreadAlone) {
  cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal);
  expect_violation("a capture that other threads end");
  end();
}

TEST_F(RecorderRules, WhatACaptureWaitsForIsCaptured) {
  cudaEventRecord(event_, other());
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream(), event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  expect_violation("error 905");
}

TEST_F(RecorderRules, AnEventOfACaptureIsNotWaitedForAfterwards) {
  begin();
  cudaEventRecord(event_, stream());
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other(), event_, 0), cudaErrorCapturedEvent);
  expect_violation("error 907");
}

TEST_F(RecorderRules, ForkedStreamsAreJoined) {
  void* memory = nullptr;
  cudaMalloc(&memory, 4);
  for (const bool joins : {true, false}) {
    begin();
    fork();
    cudaMemsetAsync(memory, 0, 4, other());
    if (joins) {
      cudaEventRecord(event_, other());
      cudaStreamWaitEvent(stream(), event_, 0);
    }
    EXPECT_EQ(end(), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
  }
  expect_violation("error 904");
  cudaFree(memory);
}

TEST_F(RecorderRules, NothingIsAskedOfAStreamThatIsCaptured) {
  begin();
  fork();
  EXPECT_EQ(cudaStreamQuery(other()), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  expect_violation("cudaStreamQuery");
}

TEST_F(RecorderRules, AThreadThatCapturesNeitherAllocatesNorWaits) {
  begin();
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_THAT(recorder().violations(),
              ElementsAre("cudaMalloc in a thread that captures",
                          "cudaDeviceSynchronize in a thread that captures"));
}

TEST_F(RecorderRules, StepsNeitherAllocateNorWait) {
  void* memory = nullptr;
  {
    const Recorder::Steady steady;
    cudaMalloc(&memory, 4);
    cudaStreamSynchronize(stream());
  }
  EXPECT_THAT(recorder().violations(),
              ElementsAre("cudaMalloc in a step", "cudaStreamSynchronize in a step"));
  cudaFree(memory);
}

TEST_F(RecorderRules, CopiesAreOfMemoryThatTheGpuReaches) {
  void *memory = nullptr, *far = nullptr;
  cudaMalloc(&memory, 4);
  cudaSetDevice(1);
  cudaMalloc(&far, 4);
  cudaSetDevice(0);
  int pageable = 7;
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream());
  };
  copy(memory, &pageable, 4);
  copy(memory, far, 4);
  copy(memory, far, 8);
  EXPECT_THAT(recorder().violations(),
              ElementsAre("a copy of pageable memory in a stream of steps",
                          "a copy on GPU 0 is given memory of GPU 1, to which it has no access",
                          "a copy on GPU 0 goes beyond its memory"));
  recorder().reset();
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  copy(memory, far, 4);
  cudaFree(memory);
  cudaFree(far);
  EXPECT_THAT(recorder().violations(), ::testing::IsEmpty());
}

TEST_F(RecorderRules, PinnedMemoryIsMappedEverywhere) {
  void* pinned = nullptr;
  cudaHostAlloc(&pinned, 4, cudaHostAllocMapped);
  cudaMemsetAsync(pinned, 0, 4, stream());
  expect_violation("memory of the host that is not mapped there");
  cudaFreeHost(pinned);
}

}  // namespace rules_test
}  // namespace belfry::recorder
