// Feeds on their way to stand-in GPUs.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "belfry/framework/base/tensor_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/device/gpu_memory.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace staging_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Layout kLayouts[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 8}, {2, 4}};

// A flag that another thread sets once.
class Flag {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

constexpr std::chrono::seconds kPatience(20);
constexpr std::chrono::milliseconds kMoment(30);

// The same feeds in memory from which GPUs copy.
std::vector<Tensor> pinned(std::vector<Tensor> feeds) {
  const TensorMemory memory(feed_memory(*gpus().backend()));
  for (Tensor& feed : feeds) {
    const Tensor shared = feed;
    feed.mutable_raw();  // gets separate memory
  }
  return feeds;
}

// As Towers::train_in, but the feeds of each step are staged before the step before it runs.
std::vector<Tensor> train_ahead(const Towers& model, Session& session, int steps, bool are_pinned) {
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  const auto feeds = [&](int i) { return are_pinned ? pinned(model.feeds(i)) : model.feeds(i); };
  std::vector<Tensor> results;
  StagedFeeds next = step.stage(feeds(0));
  for (int i = 0; i < steps; ++i) {
    StagedFeeds now = std::exchange(next, step.stage(feeds(i + 1)));
    step.run(std::move(now), model.feeds(-1));  // nobody looks at these feeds
    for (std::size_t t = 0; t < model.losses.size(); ++t)
      results.emplace_back(step.fetched(t).item<float>());
  }
  for (const Variable v : model.variables()) results.push_back(session.read(v));
  return results;
}

TEST(Staging, OfTheNextBatchGivesTheBitsOfCpus) {
  for (const Layout layout : kLayouts)
    for (const bool are_pinned : {false, true}) {
      SCOPED_TRACE(cat(layout.physical, " x ", layout.logical, are_pinned ? " pinned" : ""));
      test::StandInGpus gpus(layout.physical);
      const test::UseGpus use(gpus);
      const Towers model("GPU", layout.devices());
      Session session(model.graph, on_gpus(layout));
      EXPECT_EQ(train_ahead(model, session, 6, are_pinned), on_cpus(layout.devices(), 6));
      const Plan& plan = *session.prepare(model.fetches(), model.feed_types()).plan();
      const auto segments = cut_segments(plan);
      EXPECT_EQ(gpus.calls().captures,
                FeedSlots::kCount * std::ranges::count_if(segments, &Segment::is_graph));
      EXPECT_EQ(gpus.calls().drains, 0);
    }
}

// Without waits for copies, the stand-in finds that copies and kernels use the same memory.
TEST(Staging, IsWaitedForWhereCopiesAreSlow) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}})
    for (const bool are_pinned : {false, true}) {
      test::StandInGpus gpus(layout.physical);
      gpus.slow_copies(kMoment);
      const test::UseGpus use(gpus);
      const Towers model("GPU", 2);
      Session session(model.graph, on_gpus(layout));
      EXPECT_EQ(train_ahead(model, session, 4, are_pinned), on_cpus(2, 4));
    }
}

// Feeds in pinned memory live until the run has ended; the others go to the slot.
TEST(Staging, SharesFeedsInPinnedMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<FeedType> types;
  Output sum;
  {
    DeviceScope on(graph, gpu(0));
    const Output a = placeholder(graph, "a", DType::kF32, {2}),
                 b = placeholder(graph, "b", DType::kF32, {2});
    types = {{a, {2}}, {b, {2}}};
    sum = a + b;
  }
  Session session(graph, on_gpus({1, 1}));
  CompiledStep& step = session.prepare(std::vector<Fetch>{sum}, types);
  for (int i = 0; i < 4; ++i) step.run(std::vector<Tensor>{floats({0, 0}), floats({0, 0})});
  const std::int64_t before = gpus.in_use(-1);
  for (const auto& [a_is_pinned, b_is_pinned] :
       {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    const int all = (a_is_pinned ? 1 : 0) + (b_is_pinned ? 1 : 0), copied = gpus.calls().copied;
    std::vector<Tensor> feeds{floats({1, 2}), floats({10, 20})};
    {
      const std::vector<Tensor> copies = pinned(feeds);
      if (a_is_pinned) feeds[0] = copies[0];
      if (b_is_pinned) feeds[1] = copies[1];
    }
    StagedFeeds staged = step.stage(feeds);
    feeds.assign(2, Tensor());
    EXPECT_EQ(gpus.in_use(-1) - before, 8 * all);
    step.run(std::move(staged), feeds);
    EXPECT_EQ(step.fetched(0), floats({11, 22}));
    EXPECT_EQ(gpus.in_use(-1), before);
    EXPECT_EQ(gpus.calls().copied - copied, all > 0 ? 2 : 1) << "that of the fetch is captured";
  }
}

// One addition on each of some GPUs. Each has a feed of its own.
struct Sums {
  explicit Sums(int count) {
    for (int d = 0; d < count; ++d) {
      DeviceScope on(graph, gpu(d));
      x.push_back(placeholder(graph, cat("x", d), DType::kF32, {64}));
      y.push_back(x.back() + x.back());
    }
  }
  CompiledStep& prepare(Session& session) const {
    std::vector<FeedType> types;
    for (const Output& of : x) types.push_back({of, {64}});
    return session.prepare(std::vector<Fetch>(y.begin(), y.end()), types);
  }
  std::vector<Tensor> feeds(float value) const {
    return std::vector<Tensor>(x.size(), Tensor({64}, std::vector<float>(64, value)));
  }
  void expect(const CompiledStep& step, float fed) const {
    for (std::size_t d = 0; d < y.size(); ++d)
      for (const float value : step.fetched(d).data<float>()) ASSERT_EQ(value, 2 * fed);
  }

  Graph graph;
  std::vector<Output> x, y;
};

TEST(Staging, CopiesByAThreadForEachGpu) {
  for (const Layout layout : {Layout{1, 2}, {2, 1}, {3, 2}}) {
    test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Sums sums(layout.devices());
    Session session(sums.graph, on_gpus(layout));
    int started = 0;
    set_thread_hook([&](const ThreadUse&) { ++started; });
    CompiledStep& step = sums.prepare(session);
    set_thread_hook({});
    EXPECT_EQ(started, layout.physical - 1) << "the caller is one of them";
    step.run(sums.feeds(3));
    sums.expect(step, 3);
  }
}

// The GPU continues with the first step only after the feeds of the second have been staged.
TEST(Staging, OfTheNextBatchEndsBeforeTheStepBeforeIt) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(1);
  Flag begun, staged;
  std::atomic<bool> in_time{false};
  SessionOptions options = on_gpus({1, 1});
  options.capture = false;
  options.plan_hook = [&](Plan& plan) {
    Launch& first = plan.launches[0];
    first.enqueue = [&, run = first.enqueue](const KernelPointers& p, GpuStream& stream) {
      test::StandInGpus::enqueue(stream, [&] {
        begun.set();
        in_time = staged.wait(kPatience);
      });
      run(p, stream);
    };
  };
  Session session(model.graph, options);
  CompiledStep& step = model.prepare(session);
  StagedFeeds next;
  std::jthread other([&] {
    EXPECT_TRUE(begun.wait(kPatience));
    next = step.stage(model.feeds(2));
    staged.set();
  });
  step.run(model.feeds(1));
  other.join();
  EXPECT_TRUE(in_time);
  model.expect(step, 1);
  EXPECT_EQ(gpus.calls().copied, 3) << "two batches and a fetch";
  step.run(std::move(next), model.feeds(0));
  model.expect(step, 2);
  EXPECT_EQ(gpus.calls().copied, 4) << "a fetch";
}

TEST(Staging, IsDoneByAThreadOfItsOwnWhileStepsRun) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Sums model(4);
  Session session(model.graph, on_gpus({2, 2}));
  CompiledStep& step = model.prepare(session);
  constexpr int kSteps = 60;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<StagedFeeds> ready;
  std::thread other([&] {
    for (int i = 0; i < kSteps; ++i) {
      StagedFeeds staged = step.stage(model.feeds(static_cast<float>(i)));
      const std::lock_guard lock(mutex);
      ready.push_back(std::move(staged));
      changed.notify_all();
    }
  });
  for (int i = 0; i < kSteps; ++i) {
    StagedFeeds staged;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !ready.empty(); });
      staged = std::move(ready.front());
      ready.erase(ready.begin());
    }
    step.run(std::move(staged), model.feeds(-1));
    model.expect(step, static_cast<float>(i));
  }
  other.join();
}

TEST(Staging, WaitsWhileBothSlotsAreTaken) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(1);
  Session session(model.graph, on_gpus({1, 1}));
  CompiledStep& step = model.prepare(session);
  StagedFeeds first = step.stage(model.feeds(1)), second = step.stage(model.feeds(2));
  Flag done;
  StagedFeeds third;
  std::thread other([&] {
    third = step.stage(model.feeds(3));
    done.set();
  });
  EXPECT_FALSE(done.wait(kMoment));
  step.run(std::move(second), model.feeds(0));
  EXPECT_TRUE(done.wait(kPatience));
  other.join();
  model.expect(step, 2);
  step.run(std::move(third), model.feeds(0));
  model.expect(step, 3);
  step.run(std::move(first), model.feeds(0));
  model.expect(step, 1);
}

TEST(Staging, StopsWaitingWhenItIsAskedTo) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(1);
  Session session(model.graph, on_gpus({1, 1}));
  CompiledStep& step = model.prepare(session);
  const StagedFeeds first = step.stage(model.feeds(1)), second = step.stage(model.feeds(2));
  StagedFeeds third;
  {
    std::jthread other([&](std::stop_token stop) { third = step.stage(model.feeds(3), stop); });
    std::this_thread::sleep_for(kMoment);
  }
  EXPECT_TRUE(first);
  EXPECT_FALSE(third);
}

TEST(Staging, TakesTheSlotOfFeedsThatNoRunTook) {
  test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(1);
  Session session(model.graph, on_gpus({1, 1}));
  CompiledStep& step = model.prepare(session);
  gpus.slow_copies(kMoment);
  for (int i = 0; i < 4; ++i) step.stage(model.feeds(9));  // and gives their slots back
  step.run(model.feeds(1));
  model.expect(step, 1);
  step.stage(model.feeds(9));  // the session ends while it is copied
}

TEST(Staging, RefusesWhatDoesNotFit) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  const auto fed_on = [&](const DeviceSpec& device, const char* name) {
    DeviceScope on(graph, device);
    return placeholder(graph, name, DType::kF32, {2});
  };
  const Output a = fed_on(gpu(0), "a"), b = fed_on(cpu(0), "b");
  Output y;
  {
    DeviceScope on(graph, gpu(0));
    y = a + b;
  }
  Session session(graph, on_gpus({1, 1}));
  CompiledStep& step = session.prepare({y}, {{a, {2}}, {b, {2}}});
  CompiledStep& other = session.prepare({y.node()}, {{a, {2}}, {b, {2}}});
  const std::vector<Tensor> good{floats({1, 2}), floats({10, 20})};
  const std::vector<Tensor> wrong_a{floats({1}), good[1]}, wrong_b{good[0], floats({1})};
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                step.stage({good.data(), 1});
              }),
              HasSubstr("the step takes 2 feeds, not 1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.stage(wrong_a); }),
              AllOf(HasSubstr("Placeholder 'a'"), HasSubstr("fed with f32[1]")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(step.stage(wrong_b), wrong_b); }),
              AllOf(HasSubstr("Placeholder 'b'"), HasSubstr("fed with f32[1]")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(StagedFeeds(), good); }),
              HasSubstr("no feeds are staged"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(other.stage(good), good); }),
              HasSubstr("staged for another step"));
  step.run(step.stage(wrong_b), {good.data(), 2});  // each checks its own feeds
  EXPECT_EQ(step.fetched(0), floats({11, 22}));
}

TEST(Staging, LeavesFeedsOfCpusWhereTheyAre) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const Output y = x + x;
  Session session(graph);
  CompiledStep& step = session.prepare({y}, {{x, {2}}});
  std::vector<StagedFeeds> many;
  for (int i = 0; i < 5; ++i) many.push_back(step.stage(std::vector<Tensor>(1)));
  for (StagedFeeds& staged : many) {
    const std::vector<Tensor> feeds{floats({1, 2})};
    step.run(std::move(staged), feeds);
    EXPECT_EQ(step.fetched(0), floats({2, 4}));
  }
  EXPECT_TRUE(step.plan()->feed_slots.empty());
  step.run(StagedFeeds(), std::vector<Tensor>{floats({3, 4})});  // there was nothing to stage
  EXPECT_EQ(step.fetched(0), floats({6, 8}));
}

TEST(Staging, ServesOtherGpusAndCpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  Output x, empty;
  {
    DeviceScope on(graph, gpu(1));
    x = placeholder(graph, "x", DType::kF32, {2});
    empty = placeholder(graph, "empty", DType::kF32, {0});
  }
  std::vector<Fetch> fetches{x};
  for (const DeviceSpec& device : {gpu(0), gpu(1), gpu(2), gpu(3), cpu(0)}) {
    DeviceScope on(graph, device);
    fetches.emplace_back(tanh(identity(x)) + x);
    fetches.emplace_back(tanh(empty));
  }
  std::vector<Tensor> expected;
  for (const bool on_gpu : {false, true}) {
    SessionOptions options = on_gpus({2, 2});
    if (!on_gpu) options = {.allow_soft_placement = true, .threads = 1};
    Session session(graph, options);
    CompiledStep& step = session.prepare(fetches, std::vector<FeedType>{{x, {2}}, {empty, {0}}});
    for (int i = 0; i < 5; ++i) {
      const auto value = static_cast<float>(i);
      step.run(std::vector<Tensor>{floats({value, -value}), floats({})});
      for (std::size_t f = 0; f < fetches.size(); ++f) {
        if (!on_gpu)
          expected.push_back(Tensor(step.fetched(f)));
        else
          EXPECT_EQ(step.fetched(f), expected[at(i) * fetches.size() + f]) << i << " " << f;
        if (!on_gpu) expected.back().mutable_raw();  // gets memory of its own
      }
    }
  }
}

TEST(Staging, CountsItsSlotsAgainstTheLimitsOfDevices) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(2);
  SessionOptions options = on_gpus({1, 2});
  std::int64_t needed[2];
  {
    Session session(model.graph, options);
    const Plan& plan = *model.prepare(session).plan();
    ASSERT_EQ(plan.feed_slots.size(), 2u);
    for (const FeedSlots& slots : plan.feed_slots) EXPECT_EQ(slots.bytes, 256);
    needed[0] = session.device_use()[0].peak_bytes;
    needed[1] = session.device_use()[2].peak_bytes;
    EXPECT_GE(needed[0], 4 * 256);
    EXPECT_GE(needed[1], 3 * 256);
  }
  for (const int d : {0, 1}) {
    options.memory_limit = {{d == 0 ? "cpu:0" : "gpu:1", needed[d] - 1}};
    Session small(model.graph, options);
    EXPECT_THROW(model.prepare(small), OutOfMemory);
    options.memory_limit = {{d == 0 ? "cpu:0" : "gpu:1", needed[d]}};
    Session enough(model.graph, options);
    model.prepare(enough).run(model.feeds(1));
  }
}

TEST(Staging, IsTraced) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Sums model(1);
  Session session(model.graph, on_gpus({1, 1}));
  CompiledStep& step = model.prepare(session);
  for (int i = 0; i < 4; ++i) {
    Trace trace;
    step.run(model.feeds(static_cast<float>(i)), {.trace = &trace});
    model.expect(step, static_cast<float>(i));
    EXPECT_EQ(trace.transferred_bytes(), 2 * 256);
    EXPECT_THAT(trace.str(), HasSubstr(R"("name":"x0: 256 bytes")"));
  }
}

// A run fails on one of two GPUs while the feeds of the next run are staged, or even copied by a
// GPU that has stopped.
TEST(Staging, OutlivesAFailureOfTheStepBefore) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Towers model("GPU", 2);
    bool breaks = false;
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) {
      for (Launch& launch : plan.launches)
        if (launch.enqueue && plan.node(launch.node).writes() > 0)
          launch.enqueue = [&, run = launch.enqueue](const KernelPointers& p, GpuStream& stream) {
            run(p, stream);
            test::StandInGpus::enqueue(stream, [&] {
              if (breaks) throw DeviceError("broken");
            });
          };
    };
    Session session(model.graph, options);
    std::vector<Tensor> values;
    std::vector<VariableBytes> first;
    for (const Variable v : model.variables()) values.push_back(session.read(v));
    for (std::size_t i = 0; i < values.size(); ++i)
      first.push_back({model.variables()[i], {values[i].raw(), values[i].bytes()}});
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    // Feeds of another step of the session, which does not fail.
    const std::vector<Fetch> one{model.losses[0]};
    CompiledStep& loss = session.prepare(one, model.feed_types());
    bool are_pinned = false;
    const auto feeds = [&](int i) { return are_pinned ? pinned(model.feeds(i)) : model.feeds(i); };
    loss.run(model.feeds(0));
    const Tensor expected_loss(loss.fetched(0).item<float>());
    const std::vector<Tensor> expected = on_cpus(2, 3);
    for (int healthy = 0; healthy < 4; ++healthy)
      for (const bool late : {false, true}) {
        SCOPED_TRACE(cat(healthy, late ? " late" : ""));
        are_pinned = healthy % 2 == 1;
        for (int i = 0; i < healthy; ++i) step.run(model.feeds(i));
        StagedFeeds now = step.stage(feeds(1)), next, other;
        if (late) gpus.fail(layout.physical - 1, "fell off the bus");
        next = step.stage(feeds(0));
        other = loss.stage(feeds(0));
        breaks = true;
        EXPECT_THROW(step.run(std::move(now), model.feeds(0)), DeviceError);
        breaks = false;
        gpus.mend();
        session.restore(first, 0);
        loss.run(std::move(other), model.feeds(-1));
        EXPECT_EQ(Tensor(loss.fetched(0).item<float>()), expected_loss);
        step.run(std::move(next), model.feeds(-1));
        for (int i = 1; i < 3; ++i) step.run(model.feeds(i));
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(session.read(model.variables()[i]), expected[3 * 2 + i]) << i;
        session.restore(first, 0);
      }
  }
}

}  // namespace staging_test
}  // namespace belfry
