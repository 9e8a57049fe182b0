// The stand-in for GPUs keeps CUDA's rules of captures, and finds work that nothing orders.
#include <mutex>
#include <thread>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/stand_in_communicators.h"

namespace belfry {
namespace stand_in_captures_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StandInCapturesTest : public ::testing::Test {
 protected:
  StandInCapturesTest() { gpus.use(0); }
  ~StandInCapturesTest() override {
    for (const auto& stream : {a.get(), b.get()}) {
      stream->abandon_capture();
      stream->drain();
    }
  }

  static std::string refusal(const std::function<void()>& call) {
    return message_of<DeviceError>(call);
  }
  void begin(GpuStream& stream) { stream.begin_capture(node, node); }
  void note(GpuStream& stream, int number) {
    test::StandInGpus::enqueue(stream, [this, number] { done.push_back(number); });
  }
  // Puts captured work of `second` behind the work of `first`, by an event.
  void order(GpuStream& first, GpuStream& second, GpuEvent& event) {
    first.record(event);
    second.wait(event);
  }

  Graph graph;
  const Node& node = fill(graph, {4}, 1, DType::kF32, "y").node();
  test::StandInGpus gpus{2};
  std::unique_ptr<GpuStream> a = gpus.make_stream(0, {}), b = gpus.make_stream(0, {});
  std::unique_ptr<GpuEvent> fork = gpus.make_event(0), join = gpus.make_event(0),
                            other = gpus.make_event(0);
  std::vector<int> done;
};

TEST_F(StandInCapturesTest, KeepsWorkAndDoesItAtEachLaunch) {
  begin(*a);
  note(*a, 1);
  order(*a, *b, *fork);
  note(*b, 2);
  order(*b, *a, *join);
  note(*a, 3);
  const auto segment = a->end_capture();
  a->drain();
  b->drain();
  EXPECT_THAT(done, ElementsAre());
  a->launch(*segment);
  a->drain();
  b->launch(*segment);
  b->drain();
  EXPECT_THAT(done, ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_EQ(gpus.calls().captures, 1);
  EXPECT_EQ(gpus.calls().replays, 2);
}

TEST_F(StandInCapturesTest, DoesWorkInTheMostUnlikelyOrderThatIsAllowed) {
  begin(*a);
  order(*a, *b, *fork);
  note(*a, 1);
  note(*a, 2);
  note(*b, 3);
  order(*b, *a, *join);
  note(*a, 4);
  a->launch(*a->end_capture());
  a->drain();
  EXPECT_THAT(done, ElementsAre(3, 1, 2, 4));
}

TEST_F(StandInCapturesTest, RefusesWaitsForWhatIsNoPartOfTheCapture) {
  a->record(*other);
  begin(*a);
  EXPECT_THAT(refusal([&] { a->wait(*other); }), HasSubstr("(905)"));
  EXPECT_THAT(refusal([&] { a->end_capture(); }), HasSubstr("(901)"));
  a->abandon_capture();
  note(*a, 1);
  a->drain();
  EXPECT_THAT(done, ElementsAre(1));
}

TEST_F(StandInCapturesTest, RefusesEventsOfACaptureThatHasEnded) {
  begin(*a);
  a->record(*fork);
  a->end_capture();
  EXPECT_THAT(refusal([&] { b->wait(*fork); }), HasSubstr("(907)"));
  a->record(*fork);
  b->wait(*fork);
}

TEST_F(StandInCapturesTest, RefusesAnEndThatAStreamIsNotWaitedForAt) {
  begin(*a);
  order(*a, *b, *fork);
  note(*b, 1);
  EXPECT_THAT(refusal([&] { a->end_capture(); }), HasSubstr("(904)"));
}

TEST_F(StandInCapturesTest, RefusesWhatACapturedStreamCannotDo) {
  std::int64_t* const counter = static_cast<std::int64_t*>(gpus.allocate_pinned(64));
  const std::function<void()> calls[] = {[&] { a->stamp(*counter, 1); },
                                         [&] { a->set_step(*a, 1); },
                                         [&] { a->check(); },
                                         [&] { begin(*a); },
                                         [&] { begin(*b); },
                                         [&] { gpus.allocate(0, 64); },
                                         [&] { gpus.allocate_pinned(64); },
                                         [&] { gpus.copy(counter, counter, 8); }};
  for (const auto& call : calls) {
    begin(*a);
    EXPECT_NE(refusal(call), "");
    a->abandon_capture();
  }
  for (const auto& call :
       {std::function<void()>([&] { a->drain(); }), std::function<void()>([&] { b->drain(); })}) {
    begin(*a);
    call();
    EXPECT_THAT(refusal([&] { a->end_capture(); }), HasSubstr("(901)"));
    a->abandon_capture();
  }
  gpus.deallocate_pinned(counter);
}

TEST_F(StandInCapturesTest, EndsWhereItBegan) {
  begin(*a);
  order(*a, *b, *fork);
  EXPECT_THAT(refusal([&] { b->end_capture(); }), HasSubstr("(903)"));
  std::thread([&] {
    gpus.use(0);
    EXPECT_THAT(refusal([&] { a->end_capture(); }), HasSubstr("(908)"));
  }).join();
}

class StandInRacesTest : public StandInCapturesTest {
 protected:
  StandInRacesTest() {
    for (void*& memory : on_gpu) memory = gpus.allocate(0, 64);
  }
  void copy(GpuStream& stream, int to, int from) { stream.copy(on_gpu[to], on_gpu[from], 64); }

  void* on_gpu[3];
};

TEST_F(StandInRacesTest, FindsWorkOfACaptureThatNothingOrders) {
  for (const auto& [to, from] : {std::pair(1, 2), std::pair(0, 1), std::pair(2, 0)}) {
    begin(*a);
    order(*a, *b, *fork);
    a->serve(node);
    copy(*a, 1, 0);
    if (to == 2) {
      EXPECT_NO_THROW(copy(*b, to, from));
    } else {
      EXPECT_THAT(refusal([&] { copy(*b, to, from); }), HasSubstr("nothing orders them"));
    }
    a->abandon_capture();
  }
  begin(*a);
  copy(*a, 1, 0);
  order(*a, *b, *fork);
  copy(*b, 2, 1);
  order(*b, *a, *join);
  copy(*a, 1, 0);
  a->end_capture();
}

TEST_F(StandInRacesTest, FindsWorkInFlightThatNothingOrders) {
  std::mutex mutex;
  mutex.lock();
  test::StandInGpus::enqueue(*a, [&] { const std::lock_guard held(mutex); });
  a->serve(node);
  copy(*a, 1, 0);
  b->serve(node);
  EXPECT_THAT(refusal([&] { copy(*b, 2, 1); }), HasSubstr("'y' and 'y' use the same memory"));
  order(*a, *b, *other);
  copy(*b, 2, 1);
  mutex.unlock();
  b->drain();
  copy(*a, 2, 0);
}

TEST_F(StandInRacesTest, FindsSegmentsInFlightThatNothingOrders) {
  begin(*a);
  copy(*a, 1, 0);
  const auto segment = a->end_capture();
  std::mutex mutex;
  mutex.lock();
  test::StandInGpus::enqueue(*a, [&] { const std::lock_guard held(mutex); });
  a->launch(*segment);
  EXPECT_THAT(refusal([&] { b->launch(*segment); }), HasSubstr("nothing orders them"));
  order(*a, *b, *other);
  b->launch(*segment);
  mutex.unlock();
  b->drain();
}

TEST_F(StandInRacesTest, FindsStampsThatComeBeforeTheWorkOfTheirStream) {
  std::int64_t* const counter = static_cast<std::int64_t*>(gpus.allocate_pinned(64));
  begin(*a);
  order(*a, *b, *fork);
  copy(*b, 1, 0);
  order(*b, *a, *join);
  const auto segment = a->end_capture();
  std::mutex mutex;
  mutex.lock();
  test::StandInGpus::enqueue(*a, [&] { const std::lock_guard held(mutex); });
  a->launch(*segment);
  EXPECT_THAT(refusal([&] { b->stamp(*counter, 1); }), HasSubstr("nothing orders them"));
  order(*a, *b, *other);
  b->stamp(*counter, 1);
  mutex.unlock();
  b->drain();
  EXPECT_EQ(*counter, 1);
  gpus.deallocate_pinned(counter);
}

TEST_F(StandInCapturesTest, ServesRanksOfOneProcessAlone) {
  const std::atomic<bool> failed{false};
  const RankReduction what{.node = &node, .dtype = DType::kF32, .elements = {4}};
  void* const memory[] = {gpus.allocate(0, 16)};
  const RankTensors tensors{0, a.get(), {memory, 1}, {memory, 1}};
  const auto alone =
      gpus.make_communicators(std::vector<int>{0}, std::chrono::seconds(1), {}, failed);
  begin(*a);
  alone->all_reduce(what, {&tensors, 1}, failed);
  a->launch(*a->end_capture());
  a->drain();
  const RankWorld first{.first = 0, .size = 2, .id = gpus.communicator_id()};
  const RankWorld second{.first = 1, .size = 2, .id = first.id};
  std::unique_ptr<GpuCommunicators> of_other;
  std::thread other_process([&] {
    of_other =
        gpus.make_communicators(std::vector<int>{1}, std::chrono::seconds(1), second, failed);
  });
  const auto two =
      gpus.make_communicators(std::vector<int>{0}, std::chrono::seconds(1), first, failed);
  other_process.join();
  begin(*a);
  EXPECT_THAT(refusal([&] {
                two->all_reduce(what, {&tensors, 1}, failed);
              }),
              HasSubstr("y: ranks of several processes"));
  EXPECT_THAT(refusal([&] { a->end_capture(); }), HasSubstr("(901)"));
}

}  // namespace stand_in_captures_test
}  // namespace belfry
