// An op of one process hangs in a step. The other processes must name this process.
#include <atomic>
#include <chrono>
#include <thread>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace stall_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The op hangs before the messages of a step, between them, or behind the last one.
class Stall : public testing::TestWithParam<const char*> {};

// Two sums over both processes, with an op before, between and behind them.
Output ops_and_sums(Graph& graph, Output x) {
  const ProcessPlace place = graph.process();
  const auto sum = [&](Output of) { return sum_over_processes({{of}}, place, 1, false); };
  const Output first = sum(tanh(x, "before"));
  return tanh(sum(tanh(first, "between")), "behind");
}

TEST_P(Stall, NamesTheOpThatHangs) {
  std::atomic<bool> ended{false};
  std::string said;
  const WatchOptions watch{.beat = std::chrono::milliseconds(50),
                           .most_silent = 3000,
                           .stall_warn = {},
                           .stall_end = std::chrono::milliseconds(400)};
  test::run_processes(
      2,
      [&](const std::shared_ptr<Processes>& processes) {
        Graph graph(1, processes->place());
        const Output x = placeholder(graph, "x", DType::kF32, {4});
        const Fetch last(ops_and_sums(graph, x));
        SessionOptions options{.threads = 1, .processes = processes};
        options.plan_hook = [&](Plan& plan) {
          for (Launch& launch : plan.launches)
            if (processes->rank() == 1 && plan.node(launch.node).name() == GetParam())
              launch.run = [&, run = launch.run](const KernelPointers& p) {
                while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                run(p);
              };
        };
        Session session(graph, options);
        CompiledStep& step = session.prepare({&last, 1}, std::vector<FeedType>{{x, {4}}});
        // Rank 0 waits in the second step if the op hangs behind the last message of the first.
        const std::string error = message_of<StallError>([&] {
          for (int i = 0; i < 2; ++i) step.run(std::vector<Tensor>{Tensor({4}, DType::kF32)});
        });
        if (processes->rank() == 1) return;
        said = error;
        processes->end_others(  // as programs do
            ErrorFields{.kind = ErrorKind::kStalled, .why = error});
        ended = true;
      },
      watch);
  EXPECT_THAT(said, AllOf(HasSubstr("late: rank 1"), HasSubstr(cat("computes Tanh '", GetParam())),
                          HasSubstr("stall_test.cc:")));
}

INSTANTIATE_TEST_SUITE_P(Run, Stall, testing::Values("before", "between", "behind"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace stall_test
}  // namespace belfry
