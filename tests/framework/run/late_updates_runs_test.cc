// When late updates are done: in traced runs, while GPUs work, and where runs fail.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "belfry/framework/trace/trace.h"
#include "belfry/tests/framework/run/late_updates_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace late_updates_test {

using ::testing::HasSubstr;

// A number of the last slice of an op: "ts", when it begins, or "dur".
double of_last(const Trace& trace, const std::string& op, const std::string& number) {
  const std::string what = cat("\"ph\":\"X\",\"cat\":\"Op\",\"name\":\"", op, "\"");
  const std::size_t slice = trace.str().rfind(what);
  if (slice == std::string::npos) return -1;
  const std::string key = cat("\"", number, "\":");
  return std::stod(trace.str().substr(trace.str().find(key, slice) + key.size()));
}

TEST_F(LateUpdates, OfATracedRunAreAtItsEnd) {
  static constexpr int kMilliseconds = 5;
  Session& on = session([&](Plan& plan) {
    for (Launch& launch : plan.launches)
      if (plan.node(launch.node).late)
        launch.run = [run = launch.run](const Pointers& p) {
          std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds));
          run(p);
        };
  });
  for (int i = 0; i < 6; ++i) {
    Trace trace;
    const bool traced = i == 0 || i == 3 || i == 4;
    model.step(on).run(model.feeds(i), {.trace = traced ? &trace : nullptr});
    if (!traced) continue;
    EXPECT_GT(of_last(trace, "CopyToHost", "ts"), 0);
    EXPECT_GT(of_last(trace, "AssignSub", "ts"), of_last(trace, "CopyToHost", "ts"));
    EXPECT_GT(of_last(trace, "AssignSub", "ts"), of_last(trace, "NoOp", "ts"));
    EXPECT_GE(of_last(trace, "AssignSub", "dur"), 1000 * kMilliseconds);
  }
  EXPECT_EQ(model.values(on), expected(6));
}

// A trace shows the late launches of its own run, and those of the last one are no part of it.
TEST_F(LateUpdates, OfTheRunBeforeATracedOneAreDoneBeforeItBegins) {
  std::vector<bool> late;  // of the launches of hosts, in order
  Session& on = session([&](Plan& plan) {
    for (Launch& launch : plan.launches)
      if (launch.run)
        launch.run = [&, is_late = plan.node(launch.node).late,
                      run = launch.run](const Pointers& p) {
          late.push_back(is_late);
          run(p);
        };
  });
  const auto count = std::ssize(late_ops(model.step(on).plan()));
  model.train(on, 0, 1);
  late.clear();
  model.train(on, 1, 2);
  ASSERT_FALSE(late.at(0)) << "a launch that is not late stands before them";
  late.clear();
  Trace trace;
  model.step(on).run(model.feeds(2), {.trace = &trace});
  EXPECT_EQ(std::ranges::find(late, false) - late.begin(), count);
  EXPECT_EQ(std::ranges::find(late.rbegin(), late.rend(), false) - late.rbegin(), count);
}

// Stops late launches until GPUs have worked, or for ten seconds.
class Meanwhile {
 public:
  void watch(Plan& plan) {
    int last = -1;  // that writes on a GPU
    for (std::size_t l = 0; l < plan.launches.size(); ++l)
      if (plan.launches[l].enqueue && plan.node(plan.launches[l].node).writes() > 0)
        last = static_cast<int>(l);
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      Launch& launch = plan.launches[l];
      const PlanNode& node = plan.node(launch.node);
      if (node.late)
        launch.run = [this, run = launch.run](const Pointers& p) {
          wait();
          run(p);
          const std::lock_guard lock(mutex_);
          ++done_;
        };
      const bool copies = node.op == &kCopyToHost;
      if (!copies && static_cast<int>(l) != last) continue;
      launch.enqueue = [this, copies, run = launch.enqueue](const Pointers& p, GpuStream& stream) {
        test::StandInGpus::enqueue(stream, [this, copies] { copies ? copy() : work(); });
        run(p, stream);
      };
    }
  }
  void begin() {
    const std::lock_guard lock(mutex_);
    watches_ = true;
    worked_ = false;
    done_ = 0;
  }
  bool met() const { return met_; }  // GPUs worked while late launches were stopped
  int done_before_copies() const { return done_before_copies_; }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    if (!watches_) return;
    met_ = changed_.wait_for(lock, std::chrono::seconds(10), [&] { return worked_; });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  void work() {
    const std::lock_guard lock(mutex_);
    worked_ = true;
    changed_.notify_all();
  }
  void copy() {
    const std::lock_guard lock(mutex_);
    done_before_copies_ = done_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool watches_ = false, worked_ = false, met_ = false;
  int done_ = 0, done_before_copies_ = -1;
};

TEST_F(LateUpdates, AreDoneWhileGpusWorkForTheNextStepWhoseCopiesWait) {
  for (const bool captured : {false, true}) {
    Meanwhile meanwhile;
    Session& on = session(
        [&](Plan& plan) {
          if (!plan.feeds.empty()) meanwhile.watch(plan);
        },
        captured);
    model.train(on, 0, 3);
    meanwhile.begin();
    model.train(on, 3, 4);
    EXPECT_TRUE(meanwhile.met());
    EXPECT_GE(meanwhile.done_before_copies(), late_until_last_reader(model.step(on).plan()));
    EXPECT_EQ(model.values(on), expected(4));
  }
}

// Whatever fails on a GPU, in the first run, in the one that captures, or in a replay.
TEST_F(LateUpdates, OfAStepBeforeOneThatFailsAreNotLost) {
  StreamFault fault;
  Session& on = session([&](Plan& plan) { fault.put_into(plan); });
  const std::vector<Tensor> first = model.values(on);
  std::vector<std::vector<Tensor>> after;
  for (int steps = 0; steps < 4; ++steps) after.push_back(expected(steps));
  const Plan& plan = model.step(on).plan();
  for (int l = 0; l < std::ssize(plan.launches); ++l) {
    if (!plan.launches[at(l)].enqueue) continue;
    for (const int healthy : {1, 2, 3}) {
      on.restore(as_bytes(first), 0);
      model.train(on, 0, healthy);
      fault.broken = l;
      EXPECT_THROW(model.train(on, healthy, healthy + 1), DeviceError);
      fault.broken = -1;
      gpus_.mend();
      // What the earlier steps did to the averages is done, and nothing of the one that failed.
      const std::vector<Tensor>& wanted = after[at(healthy)];
      EXPECT_EQ(on.read(model.mean), wanted[0]) << "launch " << l << " after " << healthy;
      EXPECT_EQ(on.read(model.spread), wanted[1]) << "launch " << l << " after " << healthy;
      on.restore(as_bytes(first), 0);
      EXPECT_EQ(model.values(on), first);
      model.train(on, 0, 3);
      ASSERT_EQ(model.values(on), after[3]) << "launch " << l << " after " << healthy;
    }
  }
}

TEST_F(LateUpdates, AreDoneWhereTheNextStepFailsBeforeItWrites) {
  bool allocates = false;
  Session& on = session([&](Plan& plan) {
    for (Launch& launch : plan.launches)
      if (launch.enqueue)
        launch.enqueue = [&, run = launch.enqueue](const Pointers& p, GpuStream& stream) {
          run(p, stream);
          if (allocates) gpus_.allocate(0, 64);
        };
  });
  model.train(on, 0, 1);
  EXPECT_THROW(model.step(on).run({}), InvalidArgument);
  allocates = true;
  EXPECT_THROW(model.train(on, 1, 2), DeviceError);  // in a capture
  allocates = false;
  EXPECT_TRUE(on.intact());
  model.train(on, 1, 3);
  EXPECT_EQ(model.values(on), expected(3));
}

// A late launch itself fails: in the next run, or where somebody reads.
TEST_F(LateUpdates, ThatFailCloseTheSessionUntilTheirVariablesAreWritten) {
  int calls = 0, fails_at = -1;
  Session& on = session([&](Plan& plan) {
    for (Launch& launch : plan.launches)
      if (plan.node(launch.node).late)
        launch.run = [&, run = launch.run](const Pointers& p) {
          if (calls++ == fails_at) throw DeviceError("a late launch");
          run(p);
        };
  });
  const int late = static_cast<int>(late_ops(model.step(on).plan()).size());
  const std::vector<Tensor> first = model.values(on);
  for (int i = 0; i < late; ++i) {
    on.restore(as_bytes(first), 0);
    model.train(on, 0, 2);
    const std::vector<Tensor> after_two = expected(2);
    calls = 0;
    fails_at = i;
    EXPECT_THAT(message_of<DeviceError>([&] { on.read(model.counter); }),
                HasSubstr("a late launch"));
    EXPECT_FALSE(on.intact());
    EXPECT_THAT(message_of<InvalidArgument>([&] { model.train(on, 2, 3); }),
                HasSubstr("an earlier run failed"));
    on.write(model.mean, after_two[0]);
    on.write(model.spread, after_two[1]);
    EXPECT_TRUE(on.intact());
    model.train(on, 2, 4);
    EXPECT_EQ(model.values(on), expected(4));

    on.restore(as_bytes(first), 0);
    model.train(on, 0, 2);
    calls = 0;
    EXPECT_THAT(message_of<DeviceError>([&] { model.train(on, 2, 3); }),
                HasSubstr("a late launch"));
    EXPECT_FALSE(on.intact());
    on.restore(as_bytes(first), 0);
    EXPECT_EQ(model.values(on), first);
    fails_at = -1;
    model.train(on, 0, 3);
    EXPECT_EQ(model.values(on), expected(3));
  }
}

// A late launch fails when it has written, and nothing else of its run has. What it has done is not
// done again; all that late launches write, and nothing else, must be restored.
TEST_F(LateUpdates, ThatHaveFailedAreNotDoneAgain) {
  for (const int broken : {0, 1}) {
    const Averaging uncounted("GPU", layout_.devices(), false);
    std::atomic<bool> armed{false}, failed{false};
    int writes = 0, again = 0;
    SessionOptions options = on_gpus(layout_);
    options.capture = false;
    options.plan_hook = [&](Plan& plan) {
      for (Launch& launch : plan.launches) {
        const PlanNode& node = plan.node(launch.node);
        if (node.late && node.writes() > 0)
          launch.run = [&, run = launch.run](const Pointers& p) {
            if (failed) ++again;
            run(p);
            if (!armed || writes++ != broken) return;
            failed = true;
            throw DeviceError("a late launch");
          };
        if (launch.enqueue)  // nothing, in the run that fails
          launch.enqueue = [&, run = launch.enqueue](const Pointers& p, GpuStream& stream) {
            if (!armed) return run(p, stream);
            while (!failed) std::this_thread::yield();
            throw DeviceError("a GPU");
          };
      }
    };
    Session on(uncounted.graph, options);
    const std::vector<Tensor> after_two = on_cpus(2, 2, false);
    uncounted.train(on, 0, 2);
    armed = true;
    EXPECT_THROW(uncounted.train(on, 2, 3), DeviceError);
    armed = false;
    EXPECT_EQ(again, 0);
    EXPECT_FALSE(on.intact());
    const bool mean_first = broken == 0;
    on.write(mean_first ? uncounted.mean : uncounted.spread, after_two[mean_first ? 0 : 1]);
    EXPECT_FALSE(on.intact());
    on.write(mean_first ? uncounted.spread : uncounted.mean, after_two[mean_first ? 1 : 0]);
    ASSERT_TRUE(on.intact());
    failed = false;
    EXPECT_EQ(uncounted.values(on), after_two);
    uncounted.train(on, 2, 4);
    EXPECT_EQ(uncounted.values(on), on_cpus(2, 4, false));
  }
}

// A run stops in the midst of them: what they have in the arena does not last.
TEST_F(LateUpdates, ThatARunHasBegunAreEndedWithIt) {
  std::atomic<bool> armed{false}, broken{false};
  std::set<float*> results;
  Session& on = session([&](Plan& plan) {
    for (Launch& launch : plan.launches) {
      const PlanNode& node = plan.node(launch.node);
      if (node.late)
        launch.run = [&, writes = node.writes() > 0, run = launch.run](const Pointers& p) {
          run(p);
          if (!writes) results.insert(p.output<float>());
          if (!armed) return;
          while (!broken) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        };
      if (launch.enqueue)
        launch.enqueue = [&, run = launch.enqueue](const Pointers& p, GpuStream& stream) {
          test::StandInGpus::enqueue(stream, [&] {
            if (!armed) return;
            broken = true;
            throw DeviceError("broken");
          });
          run(p, stream);
        };
    }
  });
  model.train(on, 0, 3);
  armed = true;
  EXPECT_THROW(model.train(on, 3, 4), DeviceError);
  armed = false;
  gpus_.mend();
  EXPECT_FALSE(results.empty());
  if (!kSanitized)  // AddressSanitizer does not let anybody touch them
    for (float* const result : results) std::fill_n(result, 3, -100.0f);
  EXPECT_EQ(on.read(model.mean), expected(3)[0]);
  EXPECT_EQ(on.read(model.spread), expected(3)[1]);
}

TEST(LateUpdatesOf, DryRunsAreThoseOfRealOnes) {
  const Averaging model("GPU", 4);
  SessionOptions options = on_gpus({2, 2});
  options.dry_run = true;
  Session session(model.graph, options);
  const Plan& plan = model.step(session).plan();
  EXPECT_EQ(std::ranges::count(late_ops(plan), "AssignSub"), 2);
  EXPECT_EQ(std::ranges::count(plan.nodes, &kCopyToHost, &PlanNode::op), 2);
}

}  // namespace late_updates_test
}  // namespace belfry
