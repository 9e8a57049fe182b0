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
