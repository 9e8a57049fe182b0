// Communicators over a stand-in for NCCL.
#include "belfry/framework/cuda/runtime/communicators.h"

#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/kernels/half_bits.h"
#include "belfry/tests/cuda/fake_nccl.h"
#include "belfry/tests/cuda/host_stream.h"

namespace belfry::cuda {
namespace communicators_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr ncclResult_t kErrors[] = {ncclUnhandledCudaError, ncclSystemError,  ncclInternalError,
                                    ncclInvalidArgument,    ncclInvalidUsage, ncclRemoteError};

// Some ranks on GPUs 10, 11 and so on, each with tensors of 3, 0 and 2 elements.
class Ranks {
 public:
  explicit Ranks(const FakeNccl& nccl, int count = 2, double limit = 10, RankWorld world = {}) {
    for (int r = 0; r < count; ++r) gpus_.push_back(10 + r);
    streams_ = std::vector<HostStream>(gpus_.size());
    made = std::make_unique<Communicators>(
        nccl.library(), gpus_, std::chrono::duration<double>(limit),
        [this](int gpu) { used.push_back(gpu); }, std::move(world));
    what_ = {.node = &constant(graph_, {1}, {1}, "bucket").node(),
             .dtype = DType::kF32,
             .elements = {3, 0, 2}};
    for (int r = 0; r < count; ++r) {
      auto& of = data_.emplace_back();
      for (const std::int64_t n : what_.elements)
        of.emplace_back(static_cast<std::size_t>(n), static_cast<float>(r + 1));
    }
    for (std::vector<std::vector<float>>& of : data_) {
      auto& pointers = pointers_.emplace_back();
      for (std::vector<float>& tensor : of) pointers.push_back(tensor.data());
    }
  }

  // Reduces over ranks [first, last) as one group.
  void reduce(std::size_t first, std::size_t last, int divisor = 1) {
    RankReduction what = what_;
    what.divisor = divisor;
    std::vector<RankTensors> ranks;
    for (std::size_t r = first; r < last; ++r)
      ranks.push_back({static_cast<int>(r),
                       &streams_[r],
                       {pointers_[r].data(), pointers_[r].size()},
                       pointers_[r]});
    made->all_reduce(what, ranks, failed);
  }
  void reduce() { reduce(0, gpus_.size()); }

  // The value of all elements of a rank.
  float value(std::size_t rank) const {
    for (const auto& tensor : data_[rank])
      for (const float x : tensor) EXPECT_EQ(x, data_[rank][0][0]);
    return data_[rank][0][0];
  }

  std::unique_ptr<Communicators> made;
  std::vector<int> used;
  std::atomic<bool> failed{false};

 private:
  Graph graph_;
  std::vector<int> gpus_;
  std::vector<HostStream> streams_;
  RankReduction what_;
  std::vector<std::vector<std::vector<float>>> data_;
  std::vector<std::vector<void*>> pointers_;
};

// Of a process whose two ranks meet a rank of another one.
RankWorld two_of_three(const FakeNccl& nccl) {
  return {.first = 0, .size = 3, .id = new_id(nccl.library())};
}

template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const CommError& error) {
    return error.what();
  }
  return "(no CommError)";
}

TEST(Communicators, SumOverRanksAndDivideOnce) {
  for (const int delay : {0, 1, 5}) {
    FakeNccl nccl;
    nccl.delay(delay);
    {
      Ranks ranks(nccl, 4);
      EXPECT_EQ(ranks.used, (std::vector<int>{10, 11, 12, 13, 10, 11, 12, 13}));
      ranks.reduce();
      for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(ranks.value(r), 10);
      ranks.reduce(0, 4, 16);
      for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(ranks.value(r), 2.5f);
      EXPECT_NO_THROW(ranks.made->check());
      EXPECT_EQ(nccl.called("ncclAllReduce"), 2 * 4 * 2) << "empty tensors are left out";
    }
    EXPECT_EQ(nccl.alive(), 0);
    EXPECT_EQ(nccl.finalized(), 4 + 4) << "with those that they were split from";
    EXPECT_EQ(nccl.aborted(), 0);
    EXPECT_EQ(nccl.misuse(), "");
  }
}

// 2048 + 1 is 2048 in f16, 256 + 1 is 256 in bf16.
TEST(Communicators, SumSixteenBitsInTheirTypeAndDivideOnce) {
  const auto expect_sums = []<class T>(T, DType dtype, float large) {
    using Stored = kernels::Stored<T>;
    FakeNccl nccl;
    const std::vector<int> gpus = {0, 1, 2};
    Communicators made(nccl.library(), gpus, std::chrono::seconds(10), [](int) {});
    Graph graph;
    const RankReduction what{
        .node = &constant(graph, {1}, {1}).node(), .dtype = dtype, .elements = {2}, .divisor = 3};
    std::vector<HostStream> streams(3);
    std::vector<std::vector<T>> data;
    for (const float x : {1.f, 1.f, large})
      data.push_back({Stored::narrow(x), Stored::narrow(x == large ? 7 : x)});
    std::vector<void*> pointers;
    for (std::vector<T>& of : data) pointers.push_back(of.data());
    std::vector<RankTensors> ranks;
    for (std::size_t r = 0; r < 3; ++r)
      ranks.push_back({static_cast<int>(r), &streams[r], {&pointers[r], 1}, {&pointers[r], 1}});
    const std::atomic<bool> failed{false};
    made.all_reduce(what, ranks, failed);
    for (const std::vector<T>& of : data) {
      EXPECT_EQ(of[0].bits, Stored::narrow(large / 3).bits);
      EXPECT_EQ(Stored::widen(of[1]), 3);
    }
  };
  expect_sums(kernels::F16{}, DType::kF16, 2048);
  expect_sums(kernels::BF16{}, DType::kBF16, 256);
}

// A communicator that does not block enqueues from a thread of NCCL, which captures nothing.
TEST(Communicators, OfOneProcessAreCaptured) {
  FakeNccl nccl;
  {
    Ranks ranks(nccl, 3);
    nccl.capture(true);
    for (std::size_t r = 0; r < 3; ++r) ranks.reduce(r, r + 1);
    nccl.capture(false);
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.value(r), 6);
    EXPECT_EQ(nccl.misuse(), "");
  }
  EXPECT_EQ(nccl.alive(), 0);
  Ranks of_several(nccl, 2, 10, two_of_three(nccl));
  nccl.capture(true);
  EXPECT_THAT(error_of([&] { of_several.reduce(0, 1); }), StartsWith("ncclAllReduce failed"));
  nccl.capture(false);
  EXPECT_THAT(nccl.misuse(), HasSubstr("captures nothing"));
}

// The stand-in lets each process continue at once, and sums when all have asked.
TEST(Communicators, OfSeveralProcessesSumOverTheRanksOfAll) {
  FakeNccl nccl;
  {
    const std::string id = new_id(nccl.library());
    EXPECT_EQ(id.size(), sizeof(ncclUniqueId));
    Ranks first(nccl, 2, 10, {.first = 0, .size = 3, .id = id});
    Ranks second(nccl, 1, 10, {.first = 2, .size = 3, .id = id});
    EXPECT_EQ(nccl.called("ncclGetUniqueId"), 1);
    first.reduce();
    EXPECT_EQ(first.value(0), 1) << "one rank is missing";
    second.reduce();
    EXPECT_EQ(first.value(0), 1 + 2 + 1);
    EXPECT_EQ(first.value(1), 4);
    EXPECT_EQ(second.value(0), 4);
  }
  EXPECT_EQ(nccl.finalized(), 3);
  EXPECT_EQ(nccl.misuse(), "");
}

TEST(Communicators, NameTheRankAmongThoseOfAllProcesses) {
  FakeNccl nccl;
  const std::string id = new_id(nccl.library());
  nccl.fail("ncclCommInitRankConfig", ncclSystemError, 1);
  EXPECT_THAT(error_of([&] { Ranks(nccl, 2, 10, {.first = 2, .size = 4, .id = id}); }),
              HasSubstr("on GPU 11, rank 3 of 4"));
  EXPECT_EQ(nccl.alive(), 0);
}

TEST(Communicators, AreNotMadeOnceTheRunHasFailed) {
  FakeNccl nccl;
  nccl.stall("ncclCommInitRankConfig");  // the other process does not come
  const std::atomic<bool> failed{true};
  EXPECT_THAT(error_of([&] {
                const RankWorld world{.first = 0, .size = 2, .id = new_id(nccl.library())};
                Communicators(
                    nccl.library(), std::vector<int>{10}, std::chrono::seconds(60), [](int) {},
                    world, &failed);
              }),
              HasSubstr("the run has failed meanwhile"));
  EXPECT_EQ(nccl.aborted(), 1);
  EXPECT_EQ(nccl.alive(), 0);
}

TEST(Communicators, RefuseAnIdThatIsNone) {
  FakeNccl nccl;
  EXPECT_THAT(error_of([&] { Ranks(nccl, 1, 10, {.first = 0, .size = 2, .id = "short"}); }),
              HasSubstr("an id of NCCL has 128 bytes, not 5"));
}

TEST(Communicators, ServeRanksOfSeveralThreads) {
  FakeNccl nccl;
  nccl.delay(3);
  {
    Ranks ranks(nccl, 3);
    std::atomic<int> running{3};
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        for (int i = 0; i < 5; ++i) ranks.reduce(r, r + 1);
        --running;
      });
    while (running > 0) ranks.made->check();
    for (std::thread& thread : threads) thread.join();
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.value(r), 6 * 3 * 3 * 3 * 3);
  }
  EXPECT_EQ(nccl.misuse(), "");
  EXPECT_EQ(nccl.alive(), 0);
}

TEST(Communicators, ThatCannotBeMadeLeaveNone) {
  for (const ncclResult_t code : kErrors)
    for (const char* call :
         {"ncclGetUniqueId", "ncclGroupStart", "ncclCommInitRankConfig", "ncclGroupEnd",
          "ncclCommGetAsyncError", "ncclCommSplit", "ncclCommFinalize"})
      for (const int but : {0, 1}) {
        if (but > 0 && std::string_view(call).find("Comm") == std::string_view::npos) continue;
        FakeNccl nccl;
        nccl.fail(call, code, but);
        EXPECT_THAT(error_of([&] { Ranks ranks(nccl); }),
                    AllOf(StartsWith(cat(call, " failed: broken in a test (", int{code}, ")"))));
        EXPECT_EQ(nccl.alive(), 0) << call;
        EXPECT_EQ(nccl.misuse(), "") << call;
        EXPECT_EQ(nccl.called("ncclGroupStart") > 0,
                  nccl.called("ncclGroupEnd") > 0 || std::string_view(call) == "ncclGroupStart");
      }
}

TEST(Communicators, NameTheCallTheRankAndTheNodeOfAnError) {
  for (const ncclResult_t code : kErrors)
    for (const char* call : {"ncclAllReduce", "ncclGroupEnd", "ncclCommGetAsyncError"})
      for (const int but : {0, 1}) {
        if (but > 0 && std::string_view(call) == "ncclGroupEnd") continue;
        FakeNccl nccl;
        Ranks ranks(nccl);
        nccl.fail(call, code, but);
        const std::string error = error_of([&] { ranks.reduce(); });
        EXPECT_THAT(error, AllOf(StartsWith(cat(call, " failed: broken in a test (", int{code})),
                                 HasSubstr("on GPU 1"), HasSubstr(" of 2")));
        const bool of_node = std::string_view(call) != "ncclCommGetAsyncError";
        EXPECT_EQ(error.find("for Const 'bucket'") != std::string::npos, of_node) << error;
        ranks.made->abort_all();
        EXPECT_EQ(nccl.alive(), 0);
        EXPECT_EQ(nccl.aborted(), 2);
        EXPECT_EQ(nccl.misuse(), "");
      }
}

TEST(Communicators, AreCheckedForWhatFailsLater) {
  for (const ncclResult_t code : kErrors) {
    FakeNccl nccl;
    Ranks ranks(nccl);
    ranks.reduce();
    nccl.break_rank(1, code);
    EXPECT_THAT(error_of([&] { ranks.made->check(); }),
                AllOf(StartsWith(cat("a collective failed: broken in a test (", int{code}, ")")),
                      HasSubstr("on GPU 11, rank 1 of 2")));
    EXPECT_THAT(error_of([&] { ranks.reduce(); }), HasSubstr("for Const 'bucket'"));
    ranks.made->abort_all();
    EXPECT_EQ(nccl.aborted(), 2);
  }
}

TEST(Communicators, WaitForNoCallLongerThanTheLimit) {
  {
    FakeNccl nccl;
    nccl.stall("ncclCommInitRankConfig");
    EXPECT_THAT(error_of([&] { Ranks ranks(nccl, 2, 0.02); }),
                StartsWith("ncclCommInitRankConfig is still in progress after 0.02 s, on GPU 10"));
    EXPECT_EQ(nccl.alive(), 0);
  }
  {
    FakeNccl nccl;
    nccl.stall("ncclCommSplit");
    EXPECT_THAT(error_of([&] { Ranks ranks(nccl, 2, 0.02); }),
                StartsWith("ncclCommSplit is still in progress after 0.02 s, on GPU 10"));
    EXPECT_EQ(nccl.alive(), 0);
  }
  for (const char* call : {"ncclAllReduce", "ncclGroupEnd"}) {
    FakeNccl nccl;
    Ranks ranks(nccl, 2, 0.02, two_of_three(nccl));
    nccl.stall(call);
    EXPECT_THAT(error_of([&] { ranks.reduce(); }),
                AllOf(StartsWith("ncclGroupEnd is still in progress after 0.02 s, for Const"),
                      HasSubstr("on GPU 10, rank 0 of 3")));
    ranks.made->abort_all();
    EXPECT_EQ(nccl.alive(), 0);
  }
}

TEST(Communicators, StopWaitingOnceARunHasFailed) {
  FakeNccl nccl;
  Ranks ranks(nccl, 2, 600, two_of_three(nccl));
  nccl.stall("ncclGroupEnd");
  ranks.failed = true;
  ranks.reduce();
  ranks.made->abort_all();
  EXPECT_EQ(nccl.aborted(), 2);
}

TEST(Communicators, ThatCannotBeFinalizedAreAborted) {
  for (const char* call : {"ncclCommFinalize", "ncclCommGetAsyncError"}) {
    FakeNccl nccl;
    {
      Ranks ranks(nccl);
      nccl.fail(call, ncclSystemError, 1);
    }
    EXPECT_EQ(nccl.alive(), 0) << call;
    EXPECT_EQ(nccl.aborted(), 2) << call;
  }
  FakeNccl nccl;
  {
    Ranks ranks(nccl, 2, 0.02, two_of_three(nccl));
    nccl.stall("ncclCommFinalize");
  }
  EXPECT_EQ(nccl.alive(), 0);
  EXPECT_EQ(nccl.misuse(), "");
}

TEST(Communicators, EndSoonThoughAPeerHasDied) {
  FakeNccl nccl;
  {
    const Ranks ranks(nccl, 2, 600, two_of_three(nccl));
    nccl.stall("ncclCommFinalize");
  }
  EXPECT_EQ(nccl.alive(), 0);
  EXPECT_EQ(nccl.aborted(), 2);
}

TEST(Communicators, WithoutTheLibrarySayWhy) {
  const NcclLibrary none = open_nccl({"libnccl_not_here.so.2"});
  const std::vector<int> gpus = {0};
  EXPECT_THAT(error_of([&] { Communicators(none, gpus, std::chrono::seconds(1), [](int) {}); }),
              HasSubstr("libnccl_not_here.so.2"));
}

TEST(SeveralRanks, AreServedSinceTwoThirtyWhereTheUserSaysSo) {
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(serves_several_ranks(23000));
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_TRUE(serves_several_ranks(23000));
  EXPECT_FALSE(serves_several_ranks(22999));
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
  EXPECT_FALSE(serves_several_ranks(23000));
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

// Sums on real GPUs.
TEST(Communicators, SumOnGpus) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  if (nccl_library().version == 0) GTEST_SKIP() << nccl_library().why_not;
  const GpuBackend& backend = *gpus().backend();
  const int count = gpus().count();
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::unique_ptr<GpuStream>> streams;
  std::vector<std::array<void*, 1>> memory;
  constexpr std::int64_t kElements = 1 << 16;
  const std::vector<float> ones(kElements, 3);
  for (const int gpu : all) {
    streams.push_back(backend.make_stream(gpu, all));
    memory.push_back({backend.allocate(gpu, 4 * kElements)});
    backend.copy(memory.back()[0], ones.data(), 4 * kElements);
  }
  Graph graph;
  const RankReduction what{.node = &constant(graph, {1}, {1}).node(),
                           .dtype = DType::kF32,
                           .elements = {kElements},
                           .divisor = 3 * count};
  {
    const std::atomic<bool> failed{false};
    // Makes them as one of several processes does.
    const RankWorld world{.first = 0, .size = count, .id = backend.communicator_id()};
    const auto made = backend.make_communicators(all, std::chrono::seconds(60), world, failed);
    std::vector<RankTensors> ranks;
    for (const int gpu : all) {
      const auto r = static_cast<std::size_t>(gpu);
      ranks.push_back({gpu, streams[r].get(), {memory[r].data(), 1}, memory[r]});
    }
    if (count == 1) backend.use(0);
    made->all_reduce(what, ranks, failed);
    for (const auto& stream : streams) stream->drain();
    EXPECT_NO_THROW(made->check());
  }
  for (const int gpu : all) {
    std::vector<float> got(kElements);
    backend.copy(got.data(), memory[static_cast<std::size_t>(gpu)][0], 4 * kElements);
    EXPECT_EQ(got, std::vector<float>(kElements, 1)) << gpu;
    backend.deallocate(gpu, memory[static_cast<std::size_t>(gpu)][0]);
  }
}

TEST(Communicators, OfARankAloneAreCapturedOnAGpu) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  if (nccl_library().version == 0) GTEST_SKIP() << nccl_library().why_not;
  const GpuBackend& backend = *gpus().backend();
  const std::vector<int> gpu = {0};
  backend.use(0);
  const auto stream = backend.make_stream(0, gpu);
  constexpr std::size_t kElements = 1024;
  const std::array<void*, 1> from = {backend.allocate(0, 4 * kElements)},
                             to = {backend.allocate(0, 4 * kElements)};
  Graph graph;
  const Node& node = constant(graph, {1}, {1}).node();
  const RankReduction what{.node = &node, .dtype = DType::kF32, .elements = {kElements}};
  const RankTensors tensors{0, stream.get(), {from.data(), 1}, to};
  const std::atomic<bool> failed{false};
  {
    const auto made = backend.make_communicators(gpu, std::chrono::seconds(60), {}, failed);
    made->all_reduce(what, {&tensors, 1}, failed);
    stream->begin_capture(node, node);
    made->all_reduce(what, {&tensors, 1}, failed);
    const auto segment = stream->end_capture();
    for (const float value : {1.f, 2.f}) {
      const std::vector<float> given(kElements, value);
      backend.copy(from[0], given.data(), 4 * kElements);
      stream->launch(*segment);
      stream->drain();
      std::vector<float> got(kElements);
      backend.copy(got.data(), to[0], 4 * kElements);
      EXPECT_EQ(got, given);
    }
  }
  backend.deallocate(0, from[0]);
  backend.deallocate(0, to[0]);
}

}  // namespace communicators_test
}  // namespace belfry::cuda
