// When workers wake, and the work of those that have no launches.
#include <atomic>
#include <chrono>
#include <thread>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/useful_workers.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/framework/run/replicas_test_support.h"

namespace belfry {
namespace idle_workers_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// Whether other threads than the caller take part in a step of two devices with tensors of
// `elements`.
bool wakes_others(std::int64_t elements, bool all_workers = false) {
  Graph graph;
  std::vector<Fetch> fetches;
  for (const int device : {0, 1}) {
    DeviceScope on(graph, cpu(device));
    const Output x = fill(graph, {elements}, 1);
    fetches.emplace_back(add_n({x, x}).node());
  }
  Session session(graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = all_workers});
  Trace trace;
  session.run(fetches, {}, {.trace = &trace});
  return trace.str().find("\"name\":\"workers\"") != std::string::npos;
}

TEST(IdleWorkers, AreWokenForWorkThatIsWorthIt) {
  EXPECT_FALSE(wakes_others(256));
  EXPECT_TRUE(wakes_others(256 << 10));
  EXPECT_TRUE(wakes_others(256, true));
}

// Two devices have a variable each. Both become their sum, which device 0 computes.
class SumForTwo {
 public:
  explicit SumForTwo(std::int64_t elements) {
    std::vector<Variable> variables;
    for (const int device : {0, 1}) {
      DeviceScope on(graph_, cpu(device));
      variables.push_back(variable(graph_, cat("v", device), {elements}));
    }
    DeviceScope on(graph_, cpu(0));
    const Output sum = add_n({variables[0], variables[1]});
    step_ = &session_.prepare({assign(variables[0], sum), assign(variables[1], sum)});
  }

  const Plan& plan() const { return *step_->plan(); }

  // The bytes from other workers that launches of an op read, in order.
  std::vector<double> from_others(const Op& op, const Indexed<Strand, int>& worker_of,
                                  double most) const {
    const Indexed<Launch, double> all = bytes_from_other_workers(plan(), worker_of, 2, most);
    std::vector<double> result;
    for (std::size_t l = 0; l < all.size(); ++l)
      if (plan().node(plan().launches[l].node).op == &op) result.push_back(all[l]);
    return result;
  }

 private:
  Graph graph_;
  Session session_{graph_, {.device_count = {{"CPU", 2}}, .threads = 2}};
  CompiledStep* step_ = nullptr;
};

TEST(BytesFromOtherWorkers, AreThoseThatOtherWorkersWroteInThisRunOrTheLast) {
  const SumForTwo two(1000);
  ASSERT_EQ(two.plan().strands.size(), 2u);
  EXPECT_THAT(two.from_others(kAddN, {0, 1}, 1e9), ElementsAre(4000));
  EXPECT_THAT(two.from_others(kAddN, {0, 1}, 100), ElementsAre(100));
  EXPECT_THAT(two.from_others(kAssign, {0, 1}, 1e9), UnorderedElementsAre(0, 4000));
  EXPECT_THAT(two.from_others(kAssign, {0, 0}, 1e9), ElementsAre(0, 0));
}

TEST(UsefulWorkers, AreOneWhereOthersWouldWaitForEachOthersCaches) {
  EXPECT_EQ(useful_workers(SumForTwo(16 << 10).plan(), 2), 1);
  EXPECT_EQ(useful_workers(SumForTwo(16 << 20).plan(), 2), 2);
  EXPECT_EQ(useful_workers(SumForTwo(16 << 20).plan(), 1), 1);
}

TEST(IdleWorkers, StrandsAreDealtInTheOrderOfDevices) {
  Plan plan;
  for (const int device : {3, 0, 1, 2, 4}) plan.strands.push_back({device, {}});
  EXPECT_EQ(deal_strands(plan, 1), (Indexed<Strand, int>(5, 0)));
  EXPECT_EQ(deal_strands(plan, 2), (Indexed<Strand, int>{1, 0, 0, 0, 1}));
  EXPECT_EQ(deal_strands(plan, 5), (Indexed<Strand, int>{3, 0, 1, 2, 4}));
}

TEST(IdleWorkers, AreAsManyAsThereAreStrandsOrMoreForParts) {
  Plan plan;
  EXPECT_EQ(workers_for(plan, 4), 1);
  for (const int device : {0, 1}) plan.strands.push_back({device, {}});
  plan.launches.push_back({.node = NodeIndex(0),
                           .strand = StrandIndex(0),
                           .position = 0,
                           .range = {0, 7},
                           .part_size = 7});
  EXPECT_EQ(workers_for(plan, 4), 2);
  EXPECT_EQ(workers_for(plan, 1), 1);
  plan.launches[0].part_size = 3;
  EXPECT_EQ(plan.launches[0].parts(), 3);
  EXPECT_EQ(workers_for(plan, 4), 4);
}

class CollectiveHookTest : public ::testing::Test {
 protected:
  ~CollectiveHookTest() override { set_collective_hook({}); }
};

// All launches are on the strand of the first device, so the other workers have nothing else to do.
TEST_F(CollectiveHookTest, WorkersWithoutLaunchesTakePartsOfCollectives) {
  Graph graph;
  const std::vector<Output> parts(2, fill(graph, {100'000}, 2));
  const Output sum = all_reduce(parts)[0];
  std::atomic<std::thread::id> first{};
  std::atomic<bool> helped{false};
  set_collective_hook([&](const Node&, WorkRange) {
    std::thread::id none{};
    const std::thread::id self = std::this_thread::get_id();
    if (!first.compare_exchange_strong(none, self) && none != self) helped = true;
    while (!helped) std::this_thread::yield();
  });
  Session session(graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = true});
  const Tensor result = session.run(sum);
  EXPECT_TRUE(helped);
  for (const float value : result.data<float>()) ASSERT_EQ(value, 4);
}

// The step was worth one worker only, until a write took its replicas apart.
TEST_F(CollectiveHookTest, WorkersWithoutLaunchesHelpAStepThatWasCompiledAgain) {
  constexpr std::int64_t kElements = 20'000;  // just enough for that
  const Replicas made(2, kElements);
  Session session(made.graph, made.options(true, true, 2));
  const std::vector<Fetch> updates{*made.updates[0], *made.updates[1]};
  CompiledStep& step = session.prepare(updates, made.feed_types());
  const Tensor ones({kElements}, std::vector<float>(kElements, 1));
  Trace trace;
  step.run(std::vector{ones, ones}, {.trace = &trace});
  EXPECT_THAT(trace.str(), Not(HasSubstr("\"name\":\"workers\"")));
  session.write(made.w[1], ones);
  std::atomic<std::thread::id> first{};
  std::atomic<bool> helped{false};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  set_collective_hook([&](const Node&, WorkRange) {
    std::thread::id none{};
    const std::thread::id self = std::this_thread::get_id();
    if (!first.compare_exchange_strong(none, self) && none != self) helped = true;
    while (!helped && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  step.run(std::vector{ones, ones}, {.trace = &trace});
  EXPECT_TRUE(helped);
  EXPECT_THAT(trace.str(), HasSubstr("\"name\":\"workers\""));
}

TEST_F(CollectiveHookTest, WorkersWithoutLaunchesSurviveAFailure) {
  Graph graph;
  const std::vector<Output> parts(2, fill(graph, {200'000}, 2));
  const Output sum = all_reduce(parts)[0];
  std::atomic<int> calls{0};
  set_collective_hook([&](const Node&, WorkRange) {
    if (++calls % 5 == 3) throw CommError("lost a peer");
  });
  Session session(graph, {.device_count = {{"CPU", 3}}, .threads = 3, .all_workers = true});
  for (int i = 0; i < 50; ++i) EXPECT_THROW(session.run(sum), CommError);
  set_collective_hook({});
  EXPECT_EQ(session.run(sum).data<float>()[199'999], 4);
}

// How many nodes of kMeetTest have begun.
std::atomic<int> begun{0};

const Op kMeetTest{.name = "MeetTest",
                   .inputs = 0,
                   .shape = no_outputs,
                   .no_gradient = "a test",
                   .reference = [](KernelPlan&) -> KernelRun {
                     return [](const KernelPointers&) {
                       ++begun;
                       const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                       while (begun < 2 && std::chrono::steady_clock::now() < end)
                         std::this_thread::yield();
                       require(begun == 2, "nobody else came");
                     };
                   },
                   .cpu_only = "a test"};

// The first worker owns both strands of kMeetTest. The second worker's own strand has hardly any
// work.
TEST(IdleWorkers, FollowTheStrandsOfBusyOnes) {
  Graph graph;
  std::vector<Fetch> fetches;
  for (const int device : {0, 1}) {
    DeviceScope on(graph, cpu(device));
    fetches.emplace_back(graph.add(kMeetTest, {}));
  }
  {
    DeviceScope on(graph, cpu(2));
    fetches.emplace_back(fill(graph, {2}, 1));
  }
  Session session(graph, {.device_count = {{"CPU", 3}}, .threads = 2, .all_workers = true});
  CompiledStep& step = session.prepare(fetches);
  for (int run = 0; run < 100; ++run) {
    begun = 0;
    step.run();
  }
}

}  // namespace idle_workers_test
}  // namespace belfry
