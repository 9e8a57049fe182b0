// Messages between ranks of several processes, over a stand-in for NCCL, and on a GPU.
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/cuda/runtime/communicators.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/exchange.h"
#include "belfry/tests/cuda/fake_nccl.h"
#include "belfry/tests/cuda/host_stream.h"

namespace belfry::cuda {
namespace rank_messages_test {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::span<std::byte> bytes_of(std::span<float> values) { return std::as_writable_bytes(values); }

// The only rank of a process.
struct Process {
  Process(const FakeNccl& nccl, int rank, int size, const std::string& id)
      : made(nccl.library(), gpus, std::chrono::seconds(10), [](int) {},
             {.first = rank, .size = size, .id = id}) {}

  void exchange(const Exchange& what) {
    made.exchange(constant(graph, {1}, {1}, "row").node(), what, 0, stream, failed);
  }

  const std::vector<int> gpus{0};
  Communicators made;
  HostStream stream;
  Graph graph;
  std::atomic<bool> failed{false};
};

TEST(RankMessages, ComeToTheRankThatWaitsForThem) {
  FakeNccl nccl;
  const std::string id = new_id(nccl.library());
  {
    Process first(nccl, 0, 2, id), second(nccl, 1, 2, id);
    std::vector<float> a{1, 2, 3}, b{4, 5, 6}, none;
    // The first two go to rank 1 one by one, and the last comes back. Empty bytes are no message.
    first.exchange({.received = {{.peer = 1, .bytes = bytes_of({&a[2], 1})}},
                    .sent = {{.peer = 1, .bytes = bytes_of({&a[0], 1})},
                             {.peer = 1, .bytes = bytes_of({&a[1], 1})},
                             {.peer = 1, .bytes = bytes_of(none)}}});
    EXPECT_THAT(b, ElementsAre(4, 5, 6)) << "rank 1 has not come";
    second.exchange({.received = {{.peer = 0, .bytes = bytes_of({&b[0], 1})},
                                  {.peer = 0, .bytes = bytes_of({&b[1], 1})}},
                     .sent = {{.peer = 0, .bytes = bytes_of({&b[2], 1})}}});
    EXPECT_THAT(a, ElementsAre(1, 2, 6));
    EXPECT_THAT(b, ElementsAre(1, 2, 6));
    EXPECT_EQ(nccl.called("ncclSend"), 3);
  }
  EXPECT_EQ(nccl.finalized(), 2);
  EXPECT_EQ(nccl.misuse(), "");
}

TEST(RankMessages, GatherPiecesOfOneSizeAtOnce) {
  FakeNccl nccl;
  const std::string id = new_id(nccl.library());
  Process first(nccl, 0, 2, id), second(nccl, 1, 2, id);
  std::vector<float> own{1, 2}, other{3, 4}, row(4), same(4);
  first.exchange({.gathered = {{bytes_of(own), bytes_of(row)}}});
  second.exchange({.gathered = {{bytes_of(other), bytes_of(same)}}});
  EXPECT_THAT(row, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(row, same);
  EXPECT_EQ(nccl.called("ncclSend") + nccl.called("ncclRecv"), 0);
  EXPECT_EQ(nccl.misuse(), "");
}

TEST(RankMessages, NameTheCallAndTheNodeOfAnError) {
  for (const char* const call : {"ncclSend", "ncclRecv", "ncclAllGather"}) {
    FakeNccl nccl;
    Process one(nccl, 0, 2, new_id(nccl.library()));
    std::vector<float> values{1, 2};
    Exchange what{.received = {{.peer = 1, .bytes = bytes_of(values)}},
                  .sent = {{.peer = 1, .bytes = bytes_of(values)}}};
    if (call == std::string("ncclAllGather")) what.gathered = {bytes_of(values), bytes_of(values)};
    nccl.fail(call, ncclRemoteError);
    try {
      one.exchange(what);
      ADD_FAILURE() << call;
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(call), HasSubstr("'row'"), HasSubstr("rank 0 of 2")));
    }
  }
}

// With NCCL itself a single rank gathers its piece, and sends to itself.
TEST(RankMessages, OfARankAloneOnAGpu) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  if (nccl_library().version == 0) GTEST_SKIP() << nccl_library().why_not;
  const GpuBackend& backend = *gpus().backend();
  const std::vector<int> gpu{0};
  constexpr std::size_t kElements = 1 << 16, kBytes = 4 * kElements;
  backend.use(0);
  const auto stream = backend.make_stream(0, gpu);
  std::vector<float> given(kElements), got(kElements);
  std::iota(given.begin(), given.end(), 1.f);
  const auto row = [&](void* memory) { return std::span(static_cast<std::byte*>(memory), kBytes); };
  void* const memory[] = {backend.allocate(0, kBytes), backend.allocate(0, kBytes),
                          backend.allocate(0, kBytes)};
  backend.copy(memory[0], given.data(), kBytes);
  Graph graph;
  const Node& node = constant(graph, {1}, {1}).node();
  const std::atomic<bool> failed{false};
  {
    const RankWorld world{.first = 0, .size = 1, .id = backend.communicator_id()};
    const auto made = backend.make_communicators(gpu, std::chrono::seconds(60), world, failed);
    made->exchange(node, {.gathered = {{row(memory[0]), row(memory[1])}}}, 0, *stream, failed);
    made->exchange(node,
                   {.received = {{.peer = 0, .bytes = row(memory[2])}},
                    .sent = {{.peer = 0, .bytes = row(memory[1])}}},
                   0, *stream, failed);
    stream->drain();
    EXPECT_NO_THROW(made->check());
  }
  backend.copy(got.data(), memory[2], kBytes);
  EXPECT_EQ(got, given);
  for (void* const one : memory) backend.deallocate(0, one);
}

}  // namespace rank_messages_test
}  // namespace belfry::cuda
