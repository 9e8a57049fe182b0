// Kernels that fail while a step runs on several strands.
#include <atomic>
#include <cfenv>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace run_failure_test {

using ::testing::HasSubstr;

// The kernel throws if the first element of its input is negative. `running` counts running
// kernels.
std::atomic<int> running{0};

KernelRun trip_kernel(KernelPlan& plan) {
  const auto count = static_cast<std::size_t>(plan.output().shape.elements());
  const std::string name(plan.node().name());
  return [count, name](const KernelPointers& p) {
    ++running;
    const float* const from = p.input<float>(0);
    const bool trips = from[0] < 0;
    if (!trips) std::copy_n(from, count, p.output<float>());
    --running;
    require<DeviceError>(!trips, "tripped at ", name);
  };
}
const Op kTripTest{.name = "TripTest",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = "it is for tests",
                   .reference = trip_kernel};

// Layers of sums over all devices. In the middle one device has a node that trips.
struct Net {
  explicit Net(int devices, int layers = 8) {
    x = placeholder(graph, "x", DType::kF32, {1});
    std::vector<Output> layer(static_cast<std::size_t>(devices), x);
    for (int depth = 0; depth < layers; ++depth) {
      std::vector<Output> next;
      for (int d = 0; d < devices; ++d) {
        DeviceScope on(graph, cpu(d));
        const Output from = layer[static_cast<std::size_t>((d + depth) % devices)];
        next.push_back(add_n({layer[static_cast<std::size_t>(d)], from}));
        if (depth == layers / 2 && d == devices / 2)
          next.back() = graph.add(kTripTest, {next.back()}, "trip").output();
      }
      layer = next;
    }
    y = add_n(layer);
    expected = static_cast<float>(devices << layers);
  }
  Graph graph;
  Output x, y;
  float expected;
};

Tensor fed(Session& session, const Net& net, float value) {
  const FeedValue feed{net.x, floats({value})};
  return session.run(net.y, {&feed, 1});
}

TEST(RunFailure, ArrivesAndLeavesTheSessionUsableIfNothingWasWritten) {
  for (int threads = 1; threads <= 8; ++threads) {
    Net net(6);
    Session session(net.graph,
                    {.device_count = {{"CPU", 6}}, .threads = threads, .all_workers = true});
    for (int i = 0; i < 25; ++i) {
      EXPECT_EQ(message_of<DeviceError>([&] { fed(session, net, -1); }), "tripped at trip");
      ASSERT_EQ(running, 0);  // all workers are parked
      ASSERT_EQ(fed(session, net, 1), floats({net.expected}));
    }
  }
}

KernelRun starved_kernel(KernelPlan&) {
  return [](const KernelPointers&) { throw std::bad_alloc(); };
}
const Op kStarvedTest{.name = "StarvedTest",
                      .inputs = 1,
                      .shape = same_as_input,
                      .no_gradient = "it is for tests",
                      .reference = starved_kernel};

TEST(RunFailure, ForWantOfMemoryNamesTheNode) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1});
  const Output y = graph.add(kStarvedTest, {x}, "starved").output();
  Session session(graph);
  const FeedValue feed{x, floats({1})};
  EXPECT_THAT(message_of<OutOfMemory>([&] {
                session.run(y, {&feed, 1});
              }),
              ::testing::AllOf(HasSubstr("'starved'"), HasSubstr("run_failure_test.cc:"),
                               HasSubstr("there was no memory left for what it needs while it "
                                         "runs; use a smaller batch")));
}

TEST(RunFailure, OfSeveralKernelsGivesOneOfTheirErrors) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1});
  std::vector<Output> trips;
  for (int d = 0; d < 4; ++d) {
    DeviceScope on(graph, cpu(d));
    trips.push_back(graph.add(kTripTest, {x}, At(cat("trip", d))).output());
  }
  const Output y = add_n(trips);
  Session session(graph, {.device_count = {{"CPU", 4}}, .threads = 4, .all_workers = true});
  for (int i = 0; i < 50; ++i) {
    const FeedValue bad{x, floats({-1})}, good{x, floats({1})};
    EXPECT_THAT(message_of<DeviceError>([&] {
                  session.run(y, {&bad, 1});
                }),
                HasSubstr("tripped at trip"));
    ASSERT_EQ(session.run(y, {&good, 1}), floats({4}));
  }
}

class WrittenTest : public ::testing::Test {
 protected:
  // Two variables on two devices. The step writes v before the trip, and w after it.
  WrittenTest() {
    x = placeholder(graph, "x", DType::kF32, {1});
    {
      DeviceScope on(graph, cpu(0));
      v = variable(graph, "v", {1}, {.initializer = init::ones()});
      early = &assign_add(v, fill(graph, {1}, 1));
    }
    DeviceScope on(graph, cpu(1));
    w = variable(graph, "w", {1}, {.initializer = init::ones()});
    trip = graph.add(kTripTest, {x}, "trip").output();
    {
      ControlDependencies after(graph, {early});
      late_trip = graph.add(kTripTest, {x}, "late_trip").output();
    }
    Node* const first[] = {&assign_add(w, late_trip), early};
    writes_first = &group(graph, first);
    ControlDependencies after(graph, {&trip.node()});
    fails_first = &assign_add(w, trip);
  }
  void run(Session& session, Node& node, float value) {
    session.run({node}, {{x, floats({value})}});
  }

  Graph graph;
  Output x, trip, late_trip;
  Variable v, w;
  Node *early, *writes_first, *fails_first;
};

TEST_F(WrittenTest, ARunThatFailedAfterAWriteMustBeRestored) {
  for (const int threads : {1, 2, 4}) {
    Session session(graph, {.device_count = {{"CPU", 2}}, .threads = threads, .all_workers = true});
    run(session, *writes_first, 1);
    EXPECT_EQ(session.step(), 1u);
    EXPECT_EQ(message_of<DeviceError>([&] { run(session, *writes_first, -1); }),
              "tripped at late_trip");
    EXPECT_EQ(session.step(), 1u);
    for (int i = 0; i < 3; ++i)
      EXPECT_THAT(message_of<InvalidArgument>([&] { run(session, *writes_first, 1); }),
                  HasSubstr("restore them with restore_checkpoint, Session::restore or "
                            "Session::write before running again"));
    EXPECT_THROW(session.run({v}), InvalidArgument);  // other steps as well
    EXPECT_EQ(session.read(v), floats({3}));          // reading is allowed
    session.write(v, floats({10}));
    session.write(w, floats({20}));
    run(session, *writes_first, 1);
    EXPECT_EQ(session.read(v), floats({11}));
    EXPECT_EQ(session.read(w), floats({21}));
  }
}

TEST_F(WrittenTest, RestoringOpensTheSessionAgainAndGivesLostVariablesTheirFirstValue) {
  Session session(graph, {.device_count = {{"CPU", 2}}});
  run(session, *writes_first, 1);
  EXPECT_TRUE(session.intact());
  EXPECT_THROW(run(session, *writes_first, -1), DeviceError);
  EXPECT_FALSE(session.intact());
  const Tensor ten = floats({10}), wrong = floats({1, 2});
  const VariableBytes values[] = {{v, {ten.raw(), ten.bytes()}}};
  const VariableBytes bad[] = {values[0], {w, {wrong.raw(), wrong.bytes()}}};
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.restore(bad, 7); }),
              HasSubstr("has 4 bytes, but would be restored from 8"));
  EXPECT_FALSE(session.intact());
  EXPECT_EQ(session.read(v), floats({3}));
  session.restore(values, 7);
  EXPECT_TRUE(session.intact());
  EXPECT_EQ(session.step(), 7u);
  EXPECT_EQ(session.read(w), floats({1}));
  run(session, *writes_first, 1);
  EXPECT_EQ(session.read(v), floats({11}));
}

TEST_F(WrittenTest, ARunThatFailedBeforeItsWritesNeedsNoRestore) {
  for (const int threads : {1, 2}) {
    Session session(graph, {.device_count = {{"CPU", 2}}, .threads = threads, .all_workers = true});
    for (int i = 0; i < 3; ++i) {
      run(session, *fails_first, 1);  // earlier runs that wrote do not count
      EXPECT_THROW(run(session, *fails_first, -1), DeviceError);
    }
    EXPECT_EQ(session.read(w), floats({4}));
    EXPECT_EQ(session.step(), 3u);
  }
}

TEST_F(WrittenTest, VariablesThatAreNewAfterTheFailureGetTheirFirstValue) {
  Session session(graph, {.device_count = {{"CPU", 2}}});
  EXPECT_THROW(run(session, *writes_first, -1), DeviceError);
  const Variable fresh = variable(graph, "fresh", {1}, {.initializer = init::ones()});
  session.write(fresh, floats({5}));
  EXPECT_EQ(session.read(fresh), floats({5}));
}

TEST(RunFailure, OfAnInitialiserLeavesNoVariableBehind) {
  Graph graph;
  float start = -1;
  const Variable v =
      variable(graph, "v", {1}, {.initializer = [&](Graph& g, const Shape& s, DType) {
                 return g.add(kTripTest, {fill(g, s, start)}).output();
               }});
  Session session(graph);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(session.read(v), DeviceError);
  EXPECT_THROW(session.run({v}), DeviceError);
  EXPECT_EQ(session.peak_bytes().begin()->second, 0);
}

// Workers share a collective of many parts. One part fails, at any of them.
TEST(RunFailure, InTheMiddleOfASharedCollectiveArrivesAndTheNextRunIsRight) {
  constexpr int kDevices = 4;
  constexpr std::int64_t kElements = 400'000;
  Graph graph;
  std::vector<Output> parts;
  for (int d = 0; d < kDevices; ++d) {
    DeviceScope on(graph, cpu(d));
    parts.push_back(fill(graph, {kElements}, d + 1));
  }
  const auto first = all_reduce(parts);
  const auto second = all_reduce(first);
  std::atomic<int> left{0};
  std::atomic<int> calls{0};
  set_collective_hook([&](const Node&, WorkRange) {
    ++calls;
    if (left.fetch_sub(1) == 1) throw CommError("lost a peer");
  });
  for (const int threads : {1, 2, 3, 4}) {
    Session session(graph,
                    {.device_count = {{"CPU", kDevices}}, .threads = threads, .all_workers = true});
    CompiledStep& step = session.prepare({second[0], second[3]});
    calls = 0;
    step.run();
    const int calls_made = calls;
    EXPECT_GE(calls_made, threads == 1 ? 2 : 50);
    for (int i = 0; i < 25; ++i) {
      left = 1 + i * calls_made / 25;
      EXPECT_EQ(message_of<CommError>([&] { step.run(); }), "lost a peer") << i;
      left = 0;
      step.run();
      for (const std::size_t f : {0, 1}) {
        ASSERT_EQ(step.fetched(f).data<float>()[0], 40);
        ASSERT_EQ(step.fetched(f).data<float>()[kElements - 1], 40);
      }
    }
  }
  set_collective_hook({});
}

// The value is made in the memory of the variable before the write runs.
TEST(RunFailure, BetweenAValueAndItsAssignmentLosesTheVariable) {
  Graph graph;
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  const Output value = fill(graph, {1}, -2);
  const ControlDependencies after(graph, {graph.add(kTripTest, {value}, "trip")});
  Node& write = assign(v, value);
  Session session(graph, {.threads = 1});
  EXPECT_THROW(session.run({write}), DeviceError);
  EXPECT_FALSE(session.intact());
  session.write(v, floats({0}));
  EXPECT_TRUE(session.intact());
}

// Counts runs that find another value than zero.
std::atomic<int> dirty{0};
KernelRun look_kernel(KernelPlan&) {
  return [](const KernelPointers& p) { dirty += p.input<float>(0)[0] != 0; };
}
const Op kLookTest{.name = "LookTest",
                   .inputs = 1,
                   .shape = no_outputs,
                   .no_gradient = "it is for tests",
                   .reference = look_kernel};

// A run fails while the values of other variables are restored, and leaves its variable
// half-written. No run may start before this variable has its first value again. Restores come at
// all moments of the runs.
TEST(RunFailure, BesideARestoreOfOtherVariablesIsNotForgotten) {
  Graph graph;
  const Variable v = variable(graph, "v", {1}, {.initializer = init::zeros()});
  const Variable other = variable(graph, "other", {1}, {.initializer = init::zeros()});
  Node& look = graph.add(kLookTest, {v.read()}, "look");
  Output trip;
  {
    const ControlDependencies after(graph, {look, assign_add(v, fill(graph, {1}, 1))});
    trip = graph.add(kTripTest, {fill(graph, {1}, -1)}, "trip").output();
  }
  Session session(graph, {.threads = 1});
  CompiledStep& step = session.prepare({trip});
  dirty = 0;
  std::jthread runs([&](std::stop_token stop) {
    while (!stop.stop_requested()) try {
        step.run();
      } catch (const DeviceError&) {
      } catch (const InvalidArgument&) {  // refused after a failure
      }
  });
  const float zero = 0;
  const VariableBytes restored[] = {{other, std::as_bytes(std::span(&zero, 1))}};
  for (int i = 0; i < 30'000; ++i) session.restore(restored, 0);
  runs = {};
  EXPECT_EQ(dirty, 0);
}

TEST(RunFailure, OfTheFloatingPointModeIsAnErrorNotAWrongResult) {
  Graph graph;
  Session session(graph, {.threads = 1});
  const Output x = fill(graph, {1}, 1);
  std::fesetround(FE_UPWARD);
  EXPECT_THROW(session.run(x), InvalidArgument);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(session.run(x), floats({1}));
}

}  // namespace run_failure_test
}  // namespace belfry
