// The steps that a session keeps after run() has compiled them.
#include <thread>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace session_steps_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor numbers(std::int64_t size) {
  std::vector<float> values(at(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return floats(values);
}

class SessionStepsTest : public ::testing::Test {
 protected:
  Session session(int kept_steps, std::int64_t limit = 0) {
    SessionOptions options{.kept_steps = kept_steps};
    if (limit > 0) options.memory_limit = {{"cpu:0", limit}};
    options.plan_hook = [this](Plan&) { ++compiled; };
    return Session(graph, options);
  }
  // Computes 4 * x.
  Tensor run(Session& session, std::int64_t size) { return session.run(y, {{{x, numbers(size)}}}); }
  CompiledStep& prepare(Session& session, std::int64_t size) {
    const FeedType type{x, {size}};
    const Fetch fetch(y);
    return session.prepare({&fetch, 1}, {&type, 1});
  }
  void expect_result(const Tensor& result, std::int64_t size) {
    ASSERT_EQ(result.shape(), Shape({size}));
    const auto data = result.data<float>();
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 4 * static_cast<float>(i));
  }
  // Bytes of the step: an arena of 8 * size, and y.
  std::int64_t step_bytes(std::int64_t size) {
    Session session(graph);
    return prepare(session, size).plan()->arena_bytes[0] + 4 * size;
  }
  static std::int64_t bytes(const Session& session) { return session.device_use()[0].bytes; }

  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  const Output sum = add_n({x, x});
  const Output y = add_n({sum, sum});
  std::atomic<int> compiled{0};
};

TEST_F(SessionStepsTest, WhoFindsNoRoomWaitsForStepsThatOthersRun) {
  constexpr std::int64_t kLargest = 40'000;
  Session limited = session(64, step_bytes(kLargest) * 3 / 2);
  const auto work = [&](std::int64_t most) {
    for (std::int64_t i = 0; i < 100; ++i) expect_result(run(limited, most - i), most - i);
  };
  std::jthread other(work, kLargest - 1000);
  EXPECT_NO_THROW(work(kLargest));
}

TEST_F(SessionStepsTest, AThousandShapesStayWithinTheMemoryOfThoseThatAreKept) {
  constexpr int kKept = 8;
  constexpr std::int64_t kShapes = kThreadSanitized ? 200 : 1000;
  const std::int64_t most = kKept * step_bytes(kShapes);
  Session few = session(kKept, most);  // this session counts allocations
  for (std::int64_t size = 1; size <= kShapes; ++size) {
    expect_result(run(few, size), size);
    ASSERT_LE(bytes(few), most);
  }
  EXPECT_EQ(compiled, kShapes);
  for (std::int64_t size = kShapes; size > kShapes - kKept; --size) run(few, size);
  EXPECT_EQ(compiled, kShapes) << "the last ones are kept";
  expect_result(run(few, 7), 7);
  EXPECT_EQ(compiled, kShapes + 1) << "the first ones are compiled again";
}

TEST_F(SessionStepsTest, TheOneThatWasUsedLongestAgoIsDropped) {
  Session two = session(2);
  run(two, 1);
  run(two, 2);
  run(two, 1);
  run(two, 3);  // replaces 2
  EXPECT_EQ(compiled, 3);
  run(two, 1);
  run(two, 3);
  EXPECT_EQ(compiled, 3);
  run(two, 2);
  EXPECT_EQ(compiled, 4);
}

TEST_F(SessionStepsTest, PreparedStepsStayAndDoNotCount) {
  Session one = session(1);
  CompiledStep& prepared = prepare(one, 5);
  run(one, 6);
  CompiledStep& same = prepare(one, 6);  // kept from the run
  EXPECT_EQ(compiled, 2);
  for (std::int64_t size = 10; size < 30; ++size) run(one, size);
  prepared.run(std::vector{numbers(5)});
  expect_result(prepared.fetched(0), 5);
  same.run(std::vector{numbers(6)});
  expect_result(same.fetched(0), 6);
  EXPECT_EQ(&prepare(one, 5), &prepared);
  EXPECT_EQ(compiled, 22);
}

TEST_F(SessionStepsTest, BytesAreOfWhatIsKeptAndPeakBytesTheMostSoFar) {
  Session one = session(1);
  run(one, 1 << 10);
  EXPECT_EQ(bytes(one), step_bytes(1 << 10));
  run(one, 1 << 8);
  EXPECT_EQ(bytes(one), step_bytes(1 << 8));
  EXPECT_EQ(one.device_use()[0].peak_bytes, step_bytes(1 << 10));
  EXPECT_EQ(one.peak_bytes().begin()->second, step_bytes(1 << 10));
  prepare(one, 1 << 10);
  EXPECT_EQ(bytes(one), step_bytes(1 << 10) + 4 * (1 << 8)) << "one arena, and what each fetches";
  EXPECT_EQ(one.peak_bytes().begin()->second, bytes(one));
}

TEST_F(SessionStepsTest, CountTheirFetchesOnTheDeviceThatTheyAreFrom) {
  DeviceScope there(graph, "/cpu:1");
  const Output z = add_n({x, x}), scalar = reduce_sum(z);
  Session two(graph, {.device_count = {{"CPU", 2}}});
  const FeedType type{x, {1000}};
  const Plan& plan = *two.prepare({y, z, scalar, Fetch(z.node())}, {type}).plan();
  EXPECT_THAT(plan.fetch_bytes, ::testing::ElementsAre(4000, 4000 + 4));
  const std::vector<DeviceUse> use = two.device_use();
  for (const std::size_t d : {0, 1})
    EXPECT_EQ(use[d].bytes, plan.arena_bytes[d] + plan.fetch_bytes[d]);
  EXPECT_EQ(use[1].peak_bytes, use[1].bytes);
}

TEST_F(SessionStepsTest, AreRefusedFetchesBeyondTheLimit) {
  const std::int64_t needed = step_bytes(1000);
  Session enough = session(64, needed);
  expect_result(run(enough, 1000), 1000);
  Session limited = session(64, needed - 1);
  EXPECT_THAT(
      message_of<OutOfMemory>([&] { run(limited, 1000); }),
      AllOf(HasSubstr("device:CPU:0: its plans need"),
            HasSubstr(" for this one's arena and 4000 for its fetches, but its limit is ")));
}

TEST_F(SessionStepsTest, GiveWayToAPlanThatWouldNotFitBesideThem) {
  Session limited = session(64, step_bytes(2048) + 4 * 1000);
  for (const std::int64_t size : {1024, 1000, 2048, 900}) expect_result(run(limited, size), size);
  EXPECT_THAT(message_of<OutOfMemory>([&] { run(limited, 4096); }), HasSubstr("its limit is"));
  expect_result(run(limited, 1024), 1024);
  prepare(limited, 2048);
  EXPECT_THROW(run(limited, 1024), OutOfMemory) << "prepared ones do not";
}

// Notes the size of the arena of cpu:0 after each allocation.
class SharedArena : public SessionStepsTest {
 protected:
  ~SharedArena() override { set_allocation_hook({}); }
  void watch(Session& session) {
    set_allocation_hook(
        [&, owner = session.devices()[0].str()](const std::string& of, std::size_t bytes) {
          if (of != owner || bytes == 0) return;
          if (std::erase(refused, bytes) > 0) throw OutOfMemory("refused");
          arenas.push_back(bytes);
        });
  }
  void expect_run(CompiledStep& step, std::int64_t size) {
    step.run(std::vector{numbers(size)});
    expect_result(step.fetched(0), size);
  }

  std::vector<std::size_t> arenas, refused;
};

TEST_F(SharedArena, IsAsLargeAsTheLargestStepNeedsAndServesAll) {
  Session one = session(1);
  watch(one);
  CompiledStep& small = prepare(one, 16);
  expect_run(small, 16);
  CompiledStep& large = prepare(one, 1024);
  CompiledStep& medium = prepare(one, 512);
  for (int i = 0; i < 3; ++i) {
    expect_run(small, 16);
    expect_run(large, 1024);
    expect_run(medium, 512);
  }
  EXPECT_THAT(arenas, ElementsAre(8 * 16, 8 * 1024)) << "a step that fits takes no memory";
}

TEST_F(SharedArena, ShrinksWhenTheLargestStepIsDropped) {
  Session one = session(1);
  watch(one);
  CompiledStep& small = prepare(one, 16);
  expect_result(run(one, 1024), 1024);
  expect_result(run(one, 512), 512);  // replaces the other one
  expect_run(small, 16);
  EXPECT_THAT(arenas, ElementsAre(8 * 16, 8 * 1024, 8 * 512));
}

TEST_F(SharedArena, ComesBackAfterAStepThatFoundNoMemory) {
  Session one = session(1);
  watch(one);
  CompiledStep& small = prepare(one, 16);
  expect_run(small, 16);
  refused = {8 * 1024};
  EXPECT_THROW(prepare(one, 1024), OutOfMemory);
  expect_run(small, 16);
  refused = {8 * 1024, 8 * 16};
  EXPECT_THROW(prepare(one, 1024), OutOfMemory);
  EXPECT_THROW(small.run(std::vector{numbers(16)}), OutOfMemory) << "not yet";
  expect_run(small, 16);
  expect_run(prepare(one, 1024), 1024);
  expect_run(small, 16);
  EXPECT_THAT(arenas, ElementsAre(8 * 16, 8 * 16, 8 * 16, 8 * 1024));
}

// Steps of LockDuration::kEachVariable run beside others.
TEST_F(SharedArena, IsNotThatOfStepsBesideOthers) {
  const Variable v = variable(graph, "v", {64}, {.initializer = init::ones()});
  const Output read = add_n({v, v}), twice = add_n({read, read});
  Session one(graph);
  const Fetch fetch(twice);
  const std::int64_t before = bytes(one);
  const Plan& plan = *one.prepare({&fetch, 1}, {}, {.locks = LockDuration::kEachVariable}).plan();
  const std::int64_t beside = bytes(one) - before;
  EXPECT_GE(plan.arena_bytes[0], 4 * 64);
  prepare(one, 1024);
  EXPECT_EQ(bytes(one), before + beside + step_bytes(1024));
}

TEST_F(SessionStepsTest, OfSeveralThreadsAreNotDroppedWhileTheyRun) {
  constexpr int kThreads = 4, kRounds = kSanitized ? 20 : 100;
  Session one = session(1);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::int64_t size = 100 * (t + 1) + i % 3;
        expect_result(run(one, size), size);
      }
    });
  threads.clear();
  run(one, 1);
  EXPECT_EQ(bytes(one), step_bytes(1)) << "what could not be dropped then was now";
}

TEST_F(SessionStepsTest, KeepTheValuesOfVariables) {
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  const Output one = placeholder(graph, "one", DType::kF32, {1});
  Node& count = assign_add(v, one);
  Session session(graph, {.kept_steps = 1});
  for (int i = 0; i < 5; ++i) {
    session.run({count}, {{one, floats({1})}});
    session.run(y, {{{x, numbers(3)}}});
  }
  EXPECT_EQ(session.read(v).data<float>()[0], 5);
  EXPECT_EQ(session.step(), 5u);
}

TEST_F(SessionStepsTest, AreAtLeastOne) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { session(0); }),
              HasSubstr("kept_steps must be at least 1, not 0"));
}

}  // namespace session_steps_test
}  // namespace belfry
