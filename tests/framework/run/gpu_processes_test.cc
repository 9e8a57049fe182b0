// Steps with NCCL over several processes. Threads stand in for processes, and a module for NCCL.
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/stand_in_communicators.h"

namespace belfry {
namespace gpu_processes_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kTimeout = kSanitized ? 1.5 : 0.5;
using Group = std::shared_ptr<Processes>;

// A process's share of the GPUs of one host.
SessionOptions share_of(const Group& processes, Layout layout) {
  SessionOptions options = on_gpus(layout);
  options.processes = processes;
  for (int g = 0; g < layout.physical; ++g)
    options.visible_devices += cat(g > 0 ? "," : "", processes->rank() * layout.physical + g);
  return options;
}

// The CommError that each process throws, by rank.
template <class F>
std::vector<std::string> failures(int size, const F& body, WatchOptions watch = {}) {
  std::vector<std::string> said(at(size));
  test::run_processes(
      size,
      [&](const Group& processes) {
        said[at(processes->rank())] = message_of<CommError>([&] { body(processes); });
      },
      watch);
  return said;
}

// The graph of one process. Each tower gives its number, counted over all processes, plus the index
// of the element. NCCL sums these. With `apart` another sum takes the first tower's alone.
struct Sums {
  Sums(const ProcessPlace& place, int towers, bool mean, bool apart = false,
       const std::string& name = "sum")
      : graph(1, place) {
    std::vector<Output> values;
    for (int t = 0; t < towers; ++t) {
      const DeviceScope on(graph, gpu(t).of_process(place));
      Tensor value({5}, DType::kF32);
      for (int i = 0; i < 5; ++i)
        value.mutable_data<float>()[i] = static_cast<float>(place.rank * towers + t + i);
      values.push_back(constant(graph, value));
    }
    for (const auto& of : nccl_all_reduce_bucket({{values}}, {.mean = mean}, At(name)))
      fetches.insert(fetches.end(), of.begin(), of.end());
    if (!apart) return;
    values.resize(1);
    fetches.emplace_back(nccl_all_reduce_bucket({{values}}, {}, At("apart"))[0][0]);
  }
  Graph graph;
  std::vector<Fetch> fetches;
};

struct Case {
  int size;
  Layout layout;
};
constexpr Case kCases[] = {{2, {1, 1}}, {2, {2, 1}}, {3, {1, 2}}, {2, {2, 2}}};

TEST(GpuProcesses, SumOverTheTowersOfAll) {
  for (const auto& [size, layout] : kCases)
    for (const bool mean : {false, true}) {
      const int towers = layout.devices(), all = size * towers;
      const test::StandInGpus gpus(size * layout.physical);
      const test::UseGpus use(gpus);
      test::run_processes(size, [&](const Group& processes) {
        const Sums sums(processes->place(), towers, mean);
        Session session(sums.graph, share_of(processes, layout));
        for (int run = 0; run < 3; ++run)
          for (const Tensor& sum : session.run(sums.fetches, std::span<const FeedValue>()))
            for (int i = 0; i < 5; ++i) {
              const auto wanted = static_cast<float>(all * (all - 1) / 2 + all * i);
              EXPECT_EQ(sum.data<float>()[at(i)], mean ? wanted / static_cast<float>(all) : wanted);
            }
      });
      EXPECT_EQ(gpus.nccl_faults().made, size);
      EXPECT_EQ(gpus.nccl_faults().aborted, 0);
      EXPECT_EQ(gpus.nccl_faults().alive, 0);
    }
}

TEST(GpuProcesses, MakeTheirCommunicatorsInOneOrder) {
  const test::StandInGpus gpus(4);
  const test::UseGpus use(gpus);
  test::run_processes(2, [&](const Group& processes) {
    const Sums sums(processes->place(), 2, false, true);
    Session session(sums.graph, share_of(processes, {2, 1}));
    const std::vector<Tensor> got = session.run(sums.fetches, std::span<const FeedValue>());
    EXPECT_EQ(got[0].data<float>()[0], 0 + 1 + 2 + 3);
    EXPECT_EQ(got[2].data<float>()[0], 0 + 2);
  });
  EXPECT_EQ(gpus.nccl_faults().made, 4);
}

TEST(GpuProcesses, AreRefusedWhereTheirCollectivesDiffer) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  test::run_processes(2, [&](const Group& processes) {
    const Sums sums(processes->place(), 1, processes->rank() == 1);
    Session session(sums.graph, share_of(processes, {1, 1}));
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { session.run(sums.fetches, std::span<const FeedValue>()); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("collective 0 of the step"),
                      HasSubstr("divided by 2"), HasSubstr("NcclAllReduce 'sum'")));
  });
  EXPECT_EQ(gpus.nccl_faults().made, 0);
}

// The other process waits in its stream for a rank that does not come.
TEST(GpuProcesses, EndTogetherWhenACollectiveOfOneFails) {
  for (const Layout layout : {Layout{1, 1}, {2, 1}}) {
    const test::StandInGpus gpus(2 * layout.physical);
    const test::UseGpus use(gpus);
    test::NcclFaults& faults = gpus.nccl_faults();
    faults.fail_at = 2 * layout.physical;  // the first one after those that connect
    const auto said = failures(2, [&](const Group& processes) {
      const Sums sums(processes->place(), layout.devices(), false);
      Session session(sums.graph, share_of(processes, layout));
      session.run(sums.fetches, std::span<const FeedValue>());
    });
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("ncclAllReduce failed: in a test"),
                                     HasSubstr("it failed NcclAllReduce 'sum'"))));
    EXPECT_THAT(said, Contains(AllOf(HasSubstr("rank "), HasSubstr("it failed NcclAllReduce"))));
    EXPECT_EQ(faults.aborted, 2);
    EXPECT_EQ(faults.alive, 0);
  }
}

// The same sum by messages of GPUs: each process sends pieces to their owners.
struct SumByMessages {
  explicit SumByMessages(const ProcessPlace& place) : graph(1, place) {
    const DeviceScope on(graph, gpu(0).of_process(place));
    sum = sum_over_processes({{constant(graph, {place.rank + 1.f, 2, 3}, {3})}}, place, 1, false);
  }
  Graph graph;
  Output sum;
};

TEST(GpuProcesses, EndTogetherWhenAMessageOfOneFails) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  test::NcclFaults& faults = gpus.nccl_faults();
  faults.fail_at = 8;  // after two connecting messages of each process, and the first run
  std::atomic<int> good{0};
  const auto said = failures(2, [&](const Group& processes) {
    const SumByMessages sums(processes->place());
    Session session(sums.graph, share_of(processes, {1, 1}));
    CompiledStep& step = session.prepare({sums.sum});
    for (int i = 0; i < 4; ++i) {
      step.run();
      good += step.fetched(0).data<float>()[0] == 3;
    }
  });
  EXPECT_THAT(said, Contains(AllOf(HasSubstr("ncclSend failed: in a test"), HasSubstr("it failed "),
                                   ContainsRegex("ReduceScatter|AllGather"))));
  EXPECT_THAT(said, Contains(AllOf(HasSubstr("rank "), HasSubstr("ncclSend failed: in a test"))));
  EXPECT_EQ(faults.aborted, 2);
  EXPECT_EQ(faults.alive, 0);
  // Both processes finish the first run, or one does, if the other hears of the failure at its end.
  EXPECT_GE(good, 1);
  EXPECT_LE(good, 2);
}

TEST(GpuProcesses, EndWhenAnotherHasEndedThem) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const auto said = failures(2, [&](const Group& processes) {
    const Sums sums(processes->place(), 1, false);
    Session session(sums.graph, share_of(processes, {1, 1}));
    CompiledStep& step = session.prepare(sums.fetches);
    step.run();
    if (processes->rank() == 0) return step.run();
    processes->end_others({.why = "its data are gone"});
    throw CommError("gone");
  });
  EXPECT_THAT(said[0], AllOf(HasSubstr("rank 1"), HasSubstr("its data are gone")));
  EXPECT_EQ(gpus.nccl_faults().aborted, 1);
}

// All processes have enqueued it, so NCCL itself hangs. A clock shows that.
TEST(GpuProcesses, NameACollectiveThatHangsInNccl) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  gpus.nccl_faults().stall_at = 2;
  std::vector<std::string> said(2);
  test::run_processes(2, [&](const Group& processes) {
    said[at(processes->rank())] = message_of<StallError>([&] {
      const Sums sums(processes->place(), 1, false);
      SessionOptions options = share_of(processes, {1, 1});
      options.stall_abort_seconds = kTimeout;
      Session session(sums.graph, options);
      session.run(sums.fetches, std::span<const FeedValue>());
    });
  });
  EXPECT_THAT(said, Each(HasSubstr("NcclAllReduce 'sum'")));
  EXPECT_THAT(said, Each(HasSubstr("no process is late with it")));
  EXPECT_EQ(gpus.nccl_faults().aborted, 2);
}

// Rank 1 computes on its host before it can sum anything.
TEST(GpuProcesses, NameTheProcessThatIsLateAndWhatItComputes) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  std::atomic<bool> ended{false};
  std::vector<std::string> said(2);
  const WatchOptions watch{.stall_warn = std::chrono::milliseconds(0),
                           .stall_end = std::chrono::milliseconds(kSanitized ? 1500 : 400)};
  test::run_processes(
      2,
      [&](const Group& processes) {
        Graph graph(1, processes->place());
        Output x, late;
        {
          const DeviceScope on(graph, cpu(0).of_process(processes->place()));
          x = placeholder(graph, "x", DType::kF32, {4});
          late = tanh(x, At("late_op"));
        }
        const DeviceScope on(graph, gpu(0).of_process(processes->place()));
        const std::vector<Output> values{late + 0.0};
        const Fetch sum(nccl_all_reduce_bucket({{values}}, {}, At("sum"))[0][0]);
        SessionOptions options = share_of(processes, {1, 1});
        options.plan_hook = [&](Plan& plan) {
          for (Launch& launch : plan.launches)
            if (processes->rank() == 1 && plan.node(launch.node).name() == "late_op")
              launch.run = [&, run = launch.run](const KernelPointers& p) {
                while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                run(p);
              };
        };
        Session session(graph, options);
        CompiledStep& step = session.prepare({&sum, 1}, std::vector<FeedType>{{x, {4}}});
        said[at(processes->rank())] = message_of<StallError>(
            [&] { step.run(std::vector<Tensor>{Tensor({4}, DType::kF32)}); });
        if (processes->rank() == 0)  // as programs do
          processes->end_others(ErrorFields{.kind = ErrorKind::kStalled, .why = said[0]});
        ended = true;
      },
      watch);
  EXPECT_THAT(said[0], AllOf(HasSubstr("NcclAllReduce 'sum'"), HasSubstr("late: rank 1"),
                             HasSubstr("computes Tanh 'late_op'")));
}

using Call = test::NcclFaults::Call;

// Three processes sum by NCCL, or exchange messages over it, in two runs. Each call waits for up to
// 2 ms, as a seed says, and one call may kill its process. Deaths are noticed by silence.
class RunsOfThree {
 public:
  static constexpr int kSize = 3, kRuns = 2;
  struct Death {
    int rank;
    Call call;
    int at;  // the number of this call of the rank
  };

  RunsOfThree(bool messages, unsigned seed, std::optional<Death> death = {})
      : messages_(messages), seed_(seed), death_(death) {
    gpus_.nccl_faults().dies = [this](int rank, Call call) { return dies(rank, call); };
    const test::UseGpus use(gpus_);
    const WatchOptions watch{.beat = std::chrono::milliseconds(20),
                             .most_silent = kSanitized || !death_ ? 100 : 25};
    test::run_in_memory(
        network_, kSize, [&](const Group& processes) { run(processes); }, watch);
  }

  int calls(int rank, Call call) const { return calls_[at(rank)][at(static_cast<int>(call))]; }
  std::vector<std::string> said = std::vector<std::string>(kSize);  // by rank
  std::array<double, kSize> seconds{};  // from the death until a process has failed

 private:
  using Clock = std::chrono::steady_clock;

  bool dies(int rank, Call call) {
    const int number = calls_[at(rank)][at(static_cast<int>(call))]++;
    if (call != Call::kCheck) {
      std::seed_seq seeds{seed_, static_cast<unsigned>(rank), static_cast<unsigned>(call),
                          static_cast<unsigned>(number)};
      std::mt19937 random(seeds);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
    if (!death_ || rank != death_->rank || call != death_->call || number != death_->at)
      return false;
    died_ = Clock::now();
    network_.kill(rank);
    return true;
  }
  void run(const Group& processes) {
    const int rank = processes->rank();
    try {
      const Sums sums(processes->place(), 1, false);
      const SumByMessages by_messages(processes->place());
      SessionOptions options = share_of(processes, {1, 1});
      options.gpu_spin_ms = 0;  // who waits soon asks NCCL, whatever the number of cores
      Session session(messages_ ? by_messages.graph : sums.graph, options);
      CompiledStep& step =
          session.prepare(messages_ ? std::vector<Fetch>{by_messages.sum} : sums.fetches);
      for (int i = 0; i < kRuns; ++i) {
        step.run();
        EXPECT_EQ(step.fetched(0).data<float>()[0], messages_ ? 1 + 2 + 3 : 0 + 1 + 2);
      }
    } catch (const std::exception& error) {  // a killed process throws anything
      said[at(rank)] = error.what();
      seconds[at(rank)] = std::chrono::duration<double>(Clock::now() - died_.load()).count();
    }
  }

  const bool messages_;
  const unsigned seed_;
  const std::optional<Death> death_;
  const test::StandInGpus gpus_{kSize};
  test::MemoryNetwork network_{kSize};
  std::array<std::array<std::atomic<int>, 5>, kSize> calls_{};
  std::atomic<Clock::time_point> died_{};
};

TEST(GpuProcesses, SumWhateverTheirCallsWaitFor) {
  for (const bool messages : {false, true})
    for (unsigned seed = 0; seed < 10; ++seed)
      EXPECT_THAT(RunsOfThree(messages, seed).said, Each("")) << seed;
}

// At each call, and while each kernel of NCCL is in flight. At the last two kinds of calls others
// may have all results.
TEST(GpuProcesses, NameOneThatDiesAtAnyCallOfNccl) {
  unsigned seed = 0;
  for (const bool messages : {false, true}) {
    const RunsOfThree healthy(messages, seed);
    for (const Call call : {Call::kMake, Call::kEnqueue, Call::kWork, Call::kCheck, Call::kEnd}) {
      const int rank = static_cast<int>(++seed % RunsOfThree::kSize);
      const int calls = std::min(healthy.calls(rank, call), call == Call::kCheck ? 1 : 100);
      EXPECT_GT(calls, 0);
      for (int number = 0; number < calls; ++number) {
        const RunsOfThree with(messages, ++seed, RunsOfThree::Death{rank, call, number});
        EXPECT_GT(with.calls(rank, call), number) << "none died";
        for (int other = 0; other < RunsOfThree::kSize; ++other) {
          SCOPED_TRACE(cat(messages ? "messages" : "sums", ", call ", static_cast<int>(call),
                           " number ", number, ", rank ", rank, " dies, rank ", other));
          if (other == rank) continue;
          if (call != Call::kCheck && call != Call::kEnd) {
            EXPECT_THAT(with.said[at(other)], HasSubstr(cat("rank ", rank)));
          } else {
            EXPECT_THAT(with.said[at(other)], AnyOf("", HasSubstr(cat("rank ", rank))));
          }
          EXPECT_LT(with.seconds[at(other)], 10);
        }
      }
    }
  }
}

}  // namespace gpu_processes_test
}  // namespace belfry
