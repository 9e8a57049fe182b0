// A model of threads and streams, which take turns at random, follows command lists. In any order
// each launch must run behind those that it depends on, and all must run.
#include <deque>
#include <map>
#include <random>

#include <gtest/gtest-spi.h>

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/tests/framework/passes/random_graph.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_issue_test {

using ::testing::HasSubstr;
using Kind = Command::Kind;

class Model {
 public:
  Model(const Plan& plan, const CommandLists& lists, int workers, unsigned seed)
      : plan_(plan),
        deps_(launch_deps(plan)),
        random_(seed),
        signalled_(plan.strands.size(), -1),
        stamped_(plan.strands.size(), -1),
        streams_(plan.strands.size()),
        recorded_(plan.commands.events.size()),
        done_(plan.nodes.size()) {
    const Indexed<Strand, int> thread_of = deal_strands(plan, workers);
    threads_.resize(at(workers) + gpus_of(plan).size());
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      std::vector<StrandIndex> strands;
      for (const StrandIndex s : plan.strands.indices())
        if (at(thread_of[s]) == t) strands.push_back(s);
      threads_[t] = {.commands = merged(lists, strands), .strands = strands};
    }
  }

  // How many launches have run when nothing can continue.
  int run() {
    for (;;) {
      std::vector<std::function<void()>> ready;
      for (Thread& thread : threads_)
        if (thread.next < thread.commands.size() && passes(thread.commands[thread.next]))
          ready.emplace_back([&] {
            act(thread.commands[thread.next++]);
            if (thread.next == thread.commands.size()) end(thread);
          });
      for (std::deque<InStream>& stream : streams_)
        if (!stream.empty() && happened(stream.front()))
          ready.emplace_back([&] { happen(stream); });
      if (ready.empty()) return ran_;
      ready[random_() % ready.size()]();
    }
  }

 private:
  struct Thread {
    std::vector<Command> commands;
    std::size_t next = 0;
    std::vector<StrandIndex> strands = {};
  };
  // A wait refers to the last record of the event that was enqueued before the wait.
  struct Event {
    int enqueued = 0, done = 0;
  };
  struct InStream {
    Command command;
    int recording = 0;
  };

  bool passes(const Command& command) const {
    if (command.kind == Kind::kWait) return signalled_[command.strand] >= command.position;
    if (command.kind == Kind::kWaitStamp) return stamped_[command.strand] >= command.position;
    return true;
  }

  void act(const Command& command) {
    switch (command.kind) {
      case Kind::kSignal: signalled_[command.strand] = command.position; break;
      case Kind::kLaunch:
        if (plan_.on_gpu(command.strand))
          streams_[command.strand].push_back({command});
        else
          launch(command);
        break;
      case Kind::kRecord:
        streams_[command.strand].push_back({command, ++recorded_[at(command.number)].enqueued});
        break;
      case Kind::kWaitEvent:
        EXPECT_GT(recorded_[at(command.number)].enqueued, 0) << "waits for what nobody records";
        streams_[command.strand].push_back({command, recorded_[at(command.number)].enqueued});
        break;
      case Kind::kStamp: streams_[command.strand].push_back({command}); break;
      default: break;
    }
  }

  void end(const Thread& thread) const {
    for (const StrandIndex s : thread.strands)
      EXPECT_TRUE(streams_[s].empty())
          << "a thread ends before strand " << s.str() << " of its GPU";
  }

  bool happened(const InStream& work) const {
    return work.command.kind != Kind::kWaitEvent ||
           recorded_[at(work.command.number)].done >= work.recording;
  }

  void happen(std::deque<InStream>& stream) {
    const InStream work = stream.front();
    stream.pop_front();
    if (work.command.kind == Kind::kLaunch) launch(work.command);
    if (work.command.kind == Kind::kRecord)
      recorded_[at(work.command.number)].done = work.recording;
    if (work.command.kind == Kind::kStamp) stamped_[work.command.strand] = work.command.position;
  }

  void launch(const Command& command) {
    const NodeIndex node = plan_.launches[command.launch].node;
    for (const NodeIndex before : deps_[node])
      EXPECT_TRUE(done_[before]) << plan_.node(node).name() << " runs before "
                                 << plan_.node(before).name();
    done_[node] = true;
    ++ran_;
  }

  const Plan& plan_;
  const NodeLists deps_;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  Indexed<Strand, int> signalled_, stamped_;
  Indexed<Strand, std::deque<InStream>> streams_;
  std::vector<Event> recorded_;
  Indexed<PlanNode, char> done_;
  int ran_ = 0;
};

// Plans for two CPUs, and for the GPUs of the layout.
class Lists : public ::testing::TestWithParam<Layout> {
 protected:
  template <class F>
  void for_plans(const F& look) {
    for (unsigned seed = 0; seed < 25; ++seed) {
      const test::StandInGpus gpus(GetParam().physical);
      const test::UseGpus use(gpus);
      std::vector<DeviceSpec> devices{cpu(0), cpu(1)}, combined;
      for (int d = 0; d < GetParam().devices(); ++d) combined.push_back(gpu(d));
      devices.insert(devices.end(), combined.begin(), combined.end());
      RandomGraph random(seed, devices, combined, 60);
      Session session(random.graph, on_gpus(GetParam(), 2));
      look(*session.prepare(random.fetches).plan(), seed);
    }
  }
};

TEST_P(Lists, RunEachLaunchBehindWhatItDependsOn) {
  int in_segments = 0;
  for_plans([&](const Plan& plan, unsigned seed) {
    for (const int workers : {1, 2}) {
      for (unsigned turn = 0; turn < 4; ++turn) {
        EXPECT_EQ(Model(plan, plan.commands.lists, workers, seed + turn).run(),
                  std::ssize(plan.launches));
        if (plan.commands.in_segments.empty()) continue;
        ++in_segments;
        EXPECT_EQ(Model(plan, plan.commands.in_segments, workers, seed + turn).run(),
                  std::ssize(plan.launches));
      }
    }
  });
  EXPECT_GT(in_segments, 0);
}

// A model that finds no fault proves nothing. So it must find a missing wait.
TEST_P(Lists, WithoutAWaitSomethingRunsTooEarly) {
  int found = 0;
  for_plans([&](const Plan& plan, unsigned seed) {
    if (found > 0) return;
    CommandLists lists = plan.commands.lists;
    for (std::vector<Command>& list : lists)
      std::erase_if(list, [](const Command& command) {
        return command.kind == Kind::kWait || command.kind == Kind::kWaitStamp ||
               command.kind == Kind::kWaitEvent;
      });
    ::testing::TestPartResultArray failures;
    {
      ::testing::ScopedFakeTestPartResultReporter here(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      Model(plan, lists, 2, seed).run();
    }
    found += failures.size();
  });
  EXPECT_GT(found, 0);
}

TEST_P(Lists, NeverGoBackInTheGlobalOrder) {
  for_plans([](const Plan& plan, unsigned) {
    for (const CommandLists* lists : {&plan.commands.lists, &plan.commands.in_segments})
      for (const std::vector<Command>& list : *lists)
        EXPECT_TRUE(std::ranges::is_sorted(list, {}, &Command::launch));
  });
}

INSTANTIATE_TEST_SUITE_P(Gpus, Lists,
                         ::testing::Values(Layout{1, 1}, Layout{2, 1}, Layout{1, 2}, Layout{2, 2}));

TEST(Commands, ArePrintedByStrand) {
  Graph graph;
  const auto on = [&](int device, const auto& build) {
    DeviceScope scope(graph, cpu(device));
    return build();
  };
  const Output a = on(0, [&] { return fill(graph, {2}, 1); });
  const Output b = on(1, [&] { return add_n({a, a}); });
  const auto devices = cpu_devices(2);
  const std::string text = compiled(devices, {b.node()}).str(devices);
  EXPECT_THAT(text, HasSubstr("strand 0: /job:localhost/replica:0/task:0/device:CPU:0\n"
                              "  launch 0 Fill: (Fill)\n  signal 0 #0\n"));
  EXPECT_THAT(text, HasSubstr("  wait 0 #0\n  launch 1 AddN: (AddN)\n"));
}

TEST(Commands, WakeTheThreadBetweenProcessesBehindWhatItWaitsFor) {
  const ProcessPlace place{.rank = 0, .size = 4, .per_host = 4};
  Graph graph(1, place);
  const std::vector<Output> own{tanh(fill(graph, {1 << 18}, 1))};
  const Fetch sum(tanh(sum_over_processes(own, place, 1, false)));
  Session session(graph, {.dry_run = true, .planned_place = place});
  const Plan& plan = *session.prepare({&sum, 1}).plan();
  int woken = 0;
  for (const StrandIndex s : plan.strands.indices()) {
    if (!plan.exchanges(s)) continue;
    for (const Command& wait : plan.commands.lists[s]) {
      if (wait.kind != Kind::kWait || plan.exchanges(wait.strand)) continue;
      const std::vector<Command>& list = plan.commands.lists[wait.strand];
      const auto wake = std::ranges::find_if(list, [&](const Command& command) {
        return command.kind == Kind::kWake && command.position == wait.position;
      });
      ASSERT_NE(wake, list.end());
      EXPECT_EQ(std::prev(wake)->kind, Kind::kSignal);
      EXPECT_EQ(std::prev(wake)->position, wait.position);
      ++woken;
    }
  }
  EXPECT_EQ(woken, 2) << "ReduceScatter waits for tanh, AllGather for AddPieces";
}

// A step may run either list of a GPU's strand, so both are printed.
TEST(Commands, OfGpusArePrintedWithSegmentsAndWithout) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  const auto fetched = [&] {
    const DeviceScope scope(graph, gpu(0));
    const Output a = fill(graph, {2}, 1);
    return add_n({add_n({a, a}), a});
  }();
  Session session(graph, on_gpus({1, 1}));
  const auto devices = make_devices(on_gpus({1, 1}));
  const std::string text = session.prepare({fetched}).plan()->str(devices);
  const std::size_t in_segments = text.find(" in segments:\n");
  ASSERT_NE(in_segments, text.npos) << text;
  const std::string by_launch = text.substr(0, in_segments), rest = text.substr(in_segments);
  EXPECT_THAT(by_launch, HasSubstr("  stamp 0 #"));
  EXPECT_THAT(by_launch, Not(HasSubstr("begin segment")));
  EXPECT_THAT(rest, HasSubstr("  begin segment 0 in strand 0\n"));
  for (const std::string& lists : {by_launch, rest}) EXPECT_THAT(lists, HasSubstr(": (AddN)\n"));
}

}  // namespace passes_issue_test
}  // namespace belfry
