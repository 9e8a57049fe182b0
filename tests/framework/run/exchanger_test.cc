#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace exchanger_test {

// Rank 1 computes what it adds to the first sum only when rank 0 has the second one.
TEST(Exchanger, ASumDoesNotWaitForOneThatWasAskedForBefore) {
  constexpr std::chrono::seconds kMost{10};
  std::atomic<bool> seen{false}, in_time{false};
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    Graph graph(1, place);
    const Output x = fill(graph, {4}, 0);
    const Fetch first(sum_over_processes({{tanh(x, "late")}}, place, 1, false));
    const Fetch second(tanh(sum_over_processes({{x}}, place, 1, false), "second"));
    SessionOptions options{.threads = 1, .processes = processes};
    options.plan_hook = [&](Plan& plan) {
      for (Launch& launch : plan.launches) {
        const std::string name = plan.node(launch.node).name();
        if (name == "late" && place.rank == 1)
          launch.run = [&, run = launch.run](const KernelPointers& p) {
            const auto last = std::chrono::steady_clock::now() + kMost;
            while (!seen && std::chrono::steady_clock::now() < last)
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            in_time = seen.load();
            run(p);
          };
        if (name == "second" && place.rank == 0)
          launch.run = [&, run = launch.run](const KernelPointers& p) {
            run(p);
            seen = true;
          };
      }
    };
    Session session(graph, options);
    for (const Tensor& sum : session.run({first, second}))
      EXPECT_THAT(sum.data<float>(), testing::Each(0));
  });
  EXPECT_TRUE(in_time);
}

// No message is under way when the group fails, and none arrives later.
TEST(Exchanger, AProcessThatOnlyComputesActsOnALoss) {
  constexpr std::chrono::seconds kMost{20};
  std::atomic<bool> computes{false}, abandoned{false}, in_time{false};
  WatchOptions watch{.beat = std::chrono::milliseconds(10),
                     .patience = std::chrono::milliseconds(20)};
  watch.abandon = [&](const ProcessGroup& group, const std::exception&) {
    if (group.rank() == 0) abandoned = true;
  };
  const auto sleep_until = [&](const std::atomic<bool>& flag) {
    const auto last = std::chrono::steady_clock::now() + kMost;
    while (!flag && std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  test::run_processes(
      2,
      [&](const std::shared_ptr<Processes>& processes) {
        const ProcessPlace place = processes->place();
        if (place.rank == 1) {
          sleep_until(computes);
          processes->end_others({.why = "the disk is full"});
          return;
        }
        Graph graph(1, place);
        const Output own = tanh(fill(graph, {4}, 0), "long");
        const Fetch sum(sum_over_processes({{own}}, place, 1, false));
        SessionOptions options{.threads = 1, .processes = processes};
        options.plan_hook = [&](Plan& plan) {
          for (Launch& launch : plan.launches)
            if (plan.node(launch.node).name() == "long")
              launch.run = [&](const KernelPointers&) {
                computes = true;
                sleep_until(abandoned);
                in_time = abandoned.load();
              };
        };
        Session session(graph, options);
        EXPECT_THAT(message_of<CommError>([&] { session.run({sum}); }),
                    testing::HasSubstr("the disk is full"));
      },
      watch);
  EXPECT_TRUE(in_time);
}

// The message thread sees only later that the run has failed, and which tensors are not computed.
TEST(Exchanger, SendsNothingThatAFailedRunHasNotComputed) {
  std::atomic<bool> throws{false};
  std::atomic<int> begun{0};
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    if (place.rank == 1) {
      EXPECT_THROW(processes->gather("x"), std::exception);
      return;
    }
    Graph graph(1, place);
    const Output x = fill(graph, {4}, 0);
    const Fetch first(sum_over_processes({{tanh(x, "first")}}, place, 1, false));
    const Fetch second(sum_over_processes({{tanh(x, "second")}}, place, 1, false));
    SessionOptions options{.threads = 1, .processes = processes};
    options.plan_hook = [&](Plan& plan) {
      for (Launch& launch : plan.launches) {
        const PlanNode& node = plan.node(launch.node);
        if (node.name() == "second")
          launch.run = [&](const KernelPointers&) {
            while (begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            throws = true;
            throw InvalidArgument("no second one");
          };
        if (node.op == &kAddReceived)
          launch.run = [&](const KernelPointers&) {
            ++begun;
            while (!throws) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it has failed
          };
      }
    };
    Session session(graph, options);
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  session.run({first, second});
                }),
                testing::HasSubstr("no second one"));
  });
  EXPECT_EQ(begun, 1);
}

// More sums than may be under way at the same time, of all sizes, which other nodes then add.
TEST(Exchanger, ManySumsGiveTheSameAsOneByOne) {
  constexpr int kSums = 30, kProcesses = 3;
  test::run_processes(kProcesses, [&](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    Graph graph(1, place);
    std::vector<Fetch> sums;
    for (int i = 0; i < kSums; ++i) {
      const std::int64_t elements = i % 3 == 0 ? 100'000 + i : 1 + i;
      const Output own = fill(graph, {elements}, i + 100 * place.rank);
      sums.emplace_back(
          sum_over_processes({{sum_over_processes({{own}}, place, 1, false)}}, place, 1, true));
    }
    Session session(graph, {.threads = 2, .processes = processes});
    for (int run = 0; run < 3; ++run) {
      const std::vector<Tensor> found = session.run(sums);
      for (int i = 0; i < kSums; ++i)
        EXPECT_THAT(found[static_cast<std::size_t>(i)].data<float>(),
                    testing::Each(static_cast<float>(kProcesses * i + 300)));
    }
  });
}

}  // namespace exchanger_test
}  // namespace belfry
