// The stand-in for GPUs refuses what GPUs refuse.
#include "belfry/tests/support/stand_in_gpus.h"

#include <thread>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace stand_in_gpus_test {

using ::testing::HasSubstr;

class StandInGpusTest : public ::testing::Test {
 protected:
  std::string refusal(const std::function<void()>& call) { return message_of<DeviceError>(call); }

  test::StandInGpus near{2}, apart{2, false};
};

TEST_F(StandInGpusTest, RefusesMemoryThatIsNotPinned) {
  const auto stream = near.make_stream(0, {});
  void* const on_gpu = near.allocate(0, 64);
  near.use(0);
  char pageable[64] = {};
  EXPECT_THAT(refusal([&] { stream->copy(on_gpu, pageable, 64); }), HasSubstr("not pinned"));
  EXPECT_THAT(refusal([&] { stream->copy(pageable, on_gpu, 64); }), HasSubstr("not pinned"));
  void* const pinned = near.allocate_pinned(64);
  stream->copy(on_gpu, pinned, 64);
  stream->drain();
  near.deallocate_pinned(pinned);
  EXPECT_THAT(refusal([&] { stream->copy(on_gpu, pinned, 64); }), HasSubstr("not pinned"));
}

TEST_F(StandInGpusTest, RefusesMemoryThatIsOutOfReach) {
  for (const test::StandInGpus* gpus : {&near, &apart}) {
    const auto stream = gpus->make_stream(0, {});
    void* const here = gpus->allocate(0, 64);
    void* const there = gpus->allocate(1, 64);
    gpus->use(0);
    if (gpus == &near)
      stream->copy(here, there, 64);
    else
      EXPECT_EQ(refusal([&] { stream->copy(here, there, 64); }),
                "GPU 0 does not reach the memory of GPU 1");
  }
}

TEST_F(StandInGpusTest, RefusesWorkOfAThreadThatUsesAnotherGpu) {
  const auto stream = near.make_stream(1, {});
  const auto event = near.make_event(1);
  near.use(0);
  EXPECT_EQ(refusal([&] { stream->record(*event); }), "this thread uses GPU 0, not 1");
  near.use(1);
  stream->record(*event);
}

TEST_F(StandInGpusTest, RefusesEventsOfAnotherGpuToBeRecorded) {
  const auto stream = near.make_stream(0, {});
  const auto event = near.make_event(1);
  near.use(0);
  EXPECT_EQ(refusal([&] { stream->record(*event); }), "an event of another GPU is recorded");
}

TEST_F(StandInGpusTest, DoesWhatIsEnqueuedInOrderAndWaitsForWhatAnEventStandsFor) {
  const auto first = near.make_stream(0, {}), second = near.make_stream(0, {});
  const auto event = near.make_event(0);
  near.use(0);
  std::vector<int> order;
  second->wait(*event);  // it has never been recorded
  for (int round = 0; round < 50; ++round) {
    order.clear();
    test::StandInGpus::enqueue(*first, [&] {
      std::this_thread::yield();
      order.push_back(1);
    });
    first->record(*event);
    second->wait(*event);
    test::StandInGpus::enqueue(*second, [&] { order.push_back(2); });
    second->drain();
    ASSERT_THAT(order, ::testing::ElementsAre(1, 2));
  }
}

TEST_F(StandInGpusTest, DoesNothingMoreOnceAGpuHasFailed) {
  const auto stream = near.make_stream(0, {});
  near.use(0);
  std::int64_t* const counter = static_cast<std::int64_t*>(near.allocate_pinned(64));
  *counter = 0;
  test::StandInGpus::enqueue(*stream, [] { throw DeviceError("an illegal address"); });
  stream->stamp(*counter, 1);
  stream->drain();
  EXPECT_EQ(refusal([&] { stream->check(); }), "nothing: an illegal address");
  EXPECT_EQ(*counter, 0);
  near.mend();
  stream->check();
  stream->stamp(*counter, 1);
  stream->drain();
  EXPECT_EQ(*counter, 1);
  near.deallocate_pinned(counter);
}

TEST_F(StandInGpusTest, TellsRefusedInputWithTheNextStampAndGoesOn) {
  const auto stream = near.make_stream(0, {});
  near.use(0);
  auto& counter = *static_cast<std::int64_t*>(near.allocate_pinned(sizeof(std::int64_t)));
  counter = 0;
  const auto stamp = [&](std::int64_t value) {
    stream->stamp(counter, value);
    while (std::atomic_ref(counter).load(std::memory_order_acquire) != value)
      std::this_thread::yield();
  };
  stamp(1);
  for (const char* what : {"first", "second"})
    test::StandInGpus::enqueue(*stream, [what] { throw InvalidArgument(what); });
  std::atomic<bool> done{false};
  test::StandInGpus::enqueue(*stream, [&] { done = true; });
  while (!done) std::this_thread::yield();
  stream->check();
  stream->check_inputs();
  stamp(2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { stream->check_inputs(); }), "first");
  stream->check();
  stream->drain();
  stamp(3);
  stream->check_inputs();
  stream->drain();
  near.deallocate_pinned(&counter);
}

TEST_F(StandInGpusTest, RefusesWorkspacesThatAreNotAligned) {
  Graph graph;
  const Output y = fill(graph, {4}, 1);
  const std::vector<TensorType> outputs{{{4}, DType::kF32}};
  KernelPlan plan(y.node(), {}, outputs, {0, 4});
  const GpuRun run = near.prepare(0, plan, true);
  const auto stream = near.make_stream(0, {});
  near.use(0);
  std::vector<void*> out{near.allocate(0, 16)};
  auto* const workspace = static_cast<std::byte*>(near.allocate(0, 512));
  run(KernelPointers({}, out, workspace, {0, 4}, 0), *stream);
  EXPECT_EQ(refusal([&] {
              run(KernelPointers({}, out, workspace + 64, {0, 4}, 0), *stream);
            }),
            "workspaces of libraries begin at 256 bytes");
  stream->drain();
}

}  // namespace stand_in_gpus_test
}  // namespace belfry
