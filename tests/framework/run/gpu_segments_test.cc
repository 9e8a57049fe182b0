// Steps whose GPU work is captured in the second run, and for the other slot of feeds in the third.
// Later runs replay it.
#include <cmath>

#include "belfry/framework/base/tensor_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/device/gpu_memory.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/ops/dropout.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace gpu_segments_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Layout kLayouts[] = {{1, 1}, {2, 1}, {8, 1}, {1, 8}, {2, 4}};

// Data-parallel training whose towers use dropout. The learning rate is a feed on the host. With
// `nccl`, NCCL makes the mean.
struct DroppingTowers {
  DroppingTowers(const char* type, int count, bool nccl = false) {
    Output rate;
    {
      DeviceScope on(graph, cpu(0));
      fed_rate = placeholder(graph, "rate", DType::kF32, Shape{});
      rate = fed_rate * 0.5;
    }
    std::vector<Output> gradients_of;
    for (int t = 0; t < count; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      VariableOptions matrix{.initializer = init::value(Towers::first_matrix())};
      VariableOptions slot{.initializer = init::zeros(), .trainable = false};
      if (t > 0) {
        matrix.copy_of = &w[0].node();
        slot.copy_of = &slots[0].node();
      }
      x.push_back(placeholder(graph, cat("x", t), DType::kF32, {5, 4}));
      w.push_back(variable(graph, cat("w", t), {4, 3}, matrix));
      slots.push_back(variable(graph, cat("slot", t), {4, 3}, slot));
      const Output y = tanh(matmul(dropout(x.back(), 0.3, At(cat("drop", t))), w.back()));
      losses.push_back(reduce_mean(square(y - constant(graph, {0.5, -0.5, 0.25}, {3}))));
      gradients_of.push_back(gradients(losses.back(), {w.back()}, {.colocate = true})[0]);
    }
    const AllReduceOptions options{.mean = true};
    const auto mean = nccl ? nccl_all_reduce_bucket({&gradients_of, 1}, options)[0]
                           : all_reduce(gradients_of, options);
    for (std::size_t t = 0; t < w.size(); ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, static_cast<int>(t)));
      updates.push_back(&momentum_update(w[t], slots[t], mean[t], rate));
    }
  }

  CompiledStep& step(Session& session) const {
    std::vector<Fetch> fetches(losses.begin(), losses.end());
    for (Node* update : updates) fetches.emplace_back(*update);
    std::vector<FeedType> types{{fed_rate, {}}};
    for (const Output& of_tower : x) types.push_back({of_tower, {5, 4}});
    return session.prepare(fetches, types);
  }
  std::vector<Tensor> feeds(int number) const {
    std::vector<Tensor> values{Tensor(0.4f / static_cast<float>(1 + number))};
    for (std::size_t t = 0; t < x.size(); ++t) {
      values.emplace_back(Shape{5, 4}, DType::kF32);
      for (std::size_t i = 0; i < 20; ++i)
        values.back().mutable_data<float>()[i] =
            static_cast<float>((i * 5 + t * 11 + static_cast<std::size_t>(number) * 7) % 19) / 9 -
            1;
    }
    return values;
  }
  // The losses, then the variables.
  std::vector<Tensor> results(Session& session) const {
    std::vector<Tensor> all;
    CompiledStep& run = step(session);
    for (std::size_t t = 0; t < losses.size(); ++t) all.emplace_back(run.fetched(t).item<float>());
    for (const Variable v : variables()) all.push_back(session.read(v));
    return all;
  }
  std::vector<Variable> variables() const {
    std::vector<Variable> all = w;
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  }

  Graph graph;
  Output fed_rate;
  std::vector<Output> x, losses;
  std::vector<Variable> w, slots;
  std::vector<Node*> updates;
};

// The results after each step on CPUs.
std::vector<std::vector<Tensor>> on_cpus(int towers, int steps) {
  const DroppingTowers model("CPU", towers);
  Session session(model.graph, {.device_count = {{"CPU", towers}}, .threads = 1});
  std::vector<std::vector<Tensor>> all;
  for (int i = 0; i < steps; ++i) {
    model.step(session).run(model.feeds(i));
    all.push_back(model.results(session));
  }
  return all;
}

int captured_segments(const Plan& plan) {
  const auto segments = cut_segments(plan);
  return static_cast<int>(std::ranges::count_if(segments, &Segment::is_graph));
}

TEST(GpuSegments, TrainToTheBitsOfCpus) {
  constexpr int kSteps = 5;
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
    const auto expected = on_cpus(layout.devices(), kSteps);
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const DroppingTowers model("GPU", layout.devices());
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = model.step(session);
    for (int i = 0; i < kSteps; ++i) {
      step.run(model.feeds(i));
      EXPECT_EQ(model.results(session), expected[at(i)]) << "step " << i;
    }
    const int segments = captured_segments(*step.plan());
    EXPECT_EQ(segments == 1, layout.physical == 1);
    EXPECT_GE(segments, layout.physical);
    EXPECT_EQ(gpus.calls().captures, FeedSlots::kCount * segments);
    EXPECT_EQ(gpus.calls().replays, segments * (kSteps - 1));
    EXPECT_EQ(gpus.calls().drains, 0);
  }
}

TEST(GpuSegments, AreAllOfAStepOnOneGpu) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const DroppingTowers model("GPU", 4);
  Session session(model.graph, on_gpus({1, 4}));
  CompiledStep& step = model.step(session);
  for (int i = 0; i < 5; ++i) {
    const test::StandInGpus::Calls before = gpus.calls();
    step.run(model.feeds(i));
    const test::StandInGpus::Calls after = gpus.calls();
    EXPECT_EQ(after.enqueued > before.enqueued, i < 3) << i;
    EXPECT_EQ(after.replays - before.replays, i > 0) << i;
    if (i < 3) continue;
    EXPECT_EQ(after.copied - before.copied, 4);  // the feeds
    EXPECT_EQ(after.stamps - before.stamps, 4);
    EXPECT_EQ(after.waits - before.waits, 3 + 1);
    EXPECT_EQ(after.records - before.records, 1 + 1);
  }
}

TEST(GpuSegments, HoldWhatNcclDoesForOneGpu) {
  for (const Layout layout : {Layout{1, 1}, {1, 8}}) {
    const auto expected = on_cpus(layout.devices(), 4);
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const DroppingTowers model("GPU", layout.devices(), true);
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = model.step(session);
    for (int i = 0; i < 4; ++i) {
      step.run(model.feeds(i));
      EXPECT_EQ(model.results(session), expected[at(i)]) << "step " << i;
    }
    EXPECT_EQ(cut_segments(*step.plan()).size(), 1u);
    EXPECT_EQ(gpus.calls().captures, 2) << "for each slot of feeds";
    EXPECT_EQ(gpus.calls().replays, 3);
    EXPECT_EQ(gpus.calls().all_reduces, 4) << "to connect, to run, and to be captured twice";
  }
}

TEST(GpuSegments, HoldWhatNcclDoesForSeveralGpus) {
  for (const Layout layout : {Layout{2, 1}, {2, 4}, {8, 1}}) {
    const auto expected = on_cpus(layout.devices(), 5);
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const DroppingTowers model("GPU", layout.devices(), true);
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = model.step(session);
    for (int i = 0; i < 5; ++i) {
      step.run(model.feeds(i));
      const std::vector<Tensor> results = model.results(session);
      for (std::size_t r = 0; r < results.size(); ++r)
        for (std::int64_t e = 0; e < results[r].shape().elements(); ++e)
          EXPECT_NEAR(results[r].data<float>()[e], expected[at(i)][r].data<float>()[e], 1e-5);
    }
    EXPECT_EQ(std::ssize(cut_segments(*step.plan())), layout.physical) << "a graph for each GPU";
    EXPECT_EQ(gpus.calls().captures, 2 * layout.physical) << "for each slot of feeds";
    EXPECT_EQ(gpus.calls().replays, 4 * layout.physical);
    EXPECT_EQ(gpus.calls().all_reduces, 4 * layout.physical)
        << "to connect, to run, and to be captured twice";
  }
}

TEST(GpuSegments, AreNotReplayedWhereARunIsTraced) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto expected = on_cpus(2, 5);
  const DroppingTowers model("GPU", 2);
  Session session(model.graph, on_gpus({1, 2}));
  CompiledStep& step = model.step(session);
  for (int i = 0; i < 5; ++i) {
    Trace trace;
    step.run(model.feeds(i), {.trace = i == 0 || i == 3 ? &trace : nullptr});
    EXPECT_EQ(model.results(session), expected[at(i)]) << i;
    if (i == 3) {
      EXPECT_THAT(trace.str(), HasSubstr("FusedUpdate"));
    }
  }
  EXPECT_EQ(gpus.calls().captures, 2);
  EXPECT_EQ(gpus.calls().replays, 3);
}

TEST(GpuSegments, AreNotCapturedWhereThatIsSwitchedOff) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const DroppingTowers model("GPU", 2);
  SessionOptions options = on_gpus({1, 2});
  options.capture = false;
  Session session(model.graph, options);
  for (int i = 0; i < 3; ++i) model.step(session).run(model.feeds(i));
  EXPECT_EQ(gpus.calls().captures, 0);
}

TEST(GpuSegments, AreCapturedAgainForAPlanThatReplacesTheirs) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  std::vector<std::vector<Tensor>> results;
  for (const char* type : {"CPU", "GPU"}) {
    const DroppingTowers model(type, 2);
    SessionOptions options = on_gpus({1, 2}, 2);
    if (type[0] == 'C') options = {.device_count = {{"CPU", 2}}, .threads = 1};
    Session session(model.graph, options);
    for (int i = 0; i < 7; ++i) {
      if (i == 3) {
        EXPECT_TRUE(session.shares_storage(model.w[1]));
        session.write(model.w[1], Tensor({4, 3}, std::vector<float>(12, 0.25f)));
        EXPECT_FALSE(session.shares_storage(model.w[1]));
      }
      model.step(session).run(model.feeds(i));
    }
    results.push_back(model.results(session));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(gpus.calls().captures, 2 * FeedSlots::kCount);
}

TEST(GpuSegments, LeaveFeedsStagedForAPlanThatReplacesTheirs) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  std::vector<std::vector<Tensor>> results;
  for (const char* type : {"CPU", "GPU"}) {
    const DroppingTowers model(type, 2);
    SessionOptions options = on_gpus({1, 2}, 2);
    if (type[0] == 'C') options = {.device_count = {{"CPU", 2}}, .threads = 1};
    Session session(model.graph, options);
    CompiledStep& step = model.step(session);
    step.run(model.feeds(0));
    StagedFeeds first = step.stage(model.feeds(1)), second;
    {
      const TensorMemory memory(feed_memory(gpus));
      second = step.stage(model.feeds(2));
    }
    session.write(model.w[1], Tensor({4, 3}, std::vector<float>(12, 0.25f)));
    step.run(std::move(first), model.feeds(1));
    step.run(std::move(second), model.feeds(2));
    results.push_back(model.results(session));
  }
  EXPECT_EQ(results[0], results[1]);
}

// Captured graphs hold addresses in the arena.
TEST(GpuSegments, AreCapturedAgainWhenTheArenaMoves) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  std::vector<std::vector<Tensor>> results;
  for (const char* type : {"CPU", "GPU"}) {
    DroppingTowers model(type, 2);
    Output large;
    {
      DeviceScope on(model.graph, DeviceSpec::local(type, 0));
      const Output filled = fill(model.graph, {100'000}, 0.5);
      large = reduce_sum(tanh(filled));
    }
    SessionOptions options = on_gpus({1, 2}, 2);
    if (type[0] == 'C') options = {.device_count = {{"CPU", 2}}, .threads = 1};
    Session session(model.graph, options);
    CompiledStep& step = model.step(session);
    for (int i = 0; i < 5; ++i) step.run(model.feeds(i));
    StagedFeeds staged = step.stage(model.feeds(5));
    const Fetch fetch(large);
    CompiledStep& other = session.prepare({&fetch, 1});
    other.run();
    step.run(std::move(staged), model.feeds(5));
    for (int i = 6; i < 10; ++i) {
      step.run(model.feeds(i));
      other.run();
      EXPECT_NEAR(other.fetched(0).item<float>(), 100'000 * std::tanh(0.5), 10);
    }
    results.push_back(model.results(session));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(gpus.calls().captures, 2 * FeedSlots::kCount + 1)
      << "the one twice per slot of feeds; the other is fed nothing";
}

// A launch fails on its GPU: in the first run, which goes launch by launch, in the second or third,
// which capture, or in a replay.
TEST(GpuSegments, ThatFailReleaseEveryLaneThreeStepsRunning) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    const auto expected = on_cpus(2, 4);
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const DroppingTowers model("GPU", 2);
    StreamFault fault;
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
    Session session(model.graph, options);
    const SavedVariables first(session, model.variables());
    CompiledStep& step = model.step(session);
    for (int l = 0; l < std::ssize(step.plan()->launches); ++l) {
      const Launch& launch = step.plan()->launches[at(l)];
      if (!launch.enqueue) continue;
      const std::string name(step.plan()->node(launch.node).node->name());
      for (int healthy = 0; healthy < 4; ++healthy) {
        for (int i = 0; i < 3; ++i) {
          first.restore();
          for (int h = 0; h < (i == 0 ? healthy : 0); ++h) step.run(model.feeds(h));
          fault.broken = l;
          EXPECT_THAT(message_of<DeviceError>([&] { step.run(model.feeds(0)); }),
                      StartsWith(name + ": broken"));
          fault.broken = -1;
          gpus.mend();
        }
        first.restore();
        const int drains = gpus.calls().drains;
        for (int i = 0; i < 4; ++i) {
          step.run(model.feeds(i));
          ASSERT_EQ(model.results(session), expected[at(i)])
              << "step " << i << " after launch " << l << " broke after " << healthy;
        }
        EXPECT_EQ(gpus.calls().drains, drains);
      }
    }
  }
}

TEST(GpuSegments, ThatCannotBeCapturedSayWhyAndLeaveTheStepIntact) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto expected = on_cpus(2, 3);
  const DroppingTowers model("GPU", 2);
  bool allocates = false;
  SessionOptions options = on_gpus({1, 2});
  options.plan_hook = [&](Plan& plan) {
    for (Launch& launch : plan.launches)
      if (launch.enqueue)
        launch.enqueue = [&, run = launch.enqueue](const KernelPointers& p, GpuStream& stream) {
          run(p, stream);
          if (allocates) gpus.allocate(0, 64);
        };
  };
  Session session(model.graph, options);
  CompiledStep& step = model.step(session);
  step.run(model.feeds(0));
  allocates = true;
  EXPECT_THAT(message_of<DeviceError>([&] { step.run(model.feeds(1)); }), HasSubstr("(900)"));
  allocates = false;
  EXPECT_TRUE(session.intact());
  for (int i = 1; i < 3; ++i) {
    step.run(model.feeds(i));
    EXPECT_EQ(model.results(session), expected[at(i)]) << i;
  }
}

class GpuSegmentWaitsTest : public ::testing::TestWithParam<Layout> {
 protected:
  // The results of the third and fourth run, if a GPU forgets wait `lost` of run `run`. The third
  // run captures segments.
  std::vector<std::vector<Tensor>> results(int gpu, int run = -1, int lost = -1) {
    test::StandInGpus gpus(GetParam().physical);
    const test::UseGpus use(gpus);
    const DroppingTowers model("GPU", GetParam().devices());
    Session session(model.graph, on_gpus(GetParam()));
    CompiledStep& step = model.step(session);
    for (int i = 0; i < 2; ++i) step.run(model.feeds(i));
    std::vector<std::vector<Tensor>> all;
    for (int i = 0; i < 2; ++i) {
      const int before = gpus.waits_of(gpu);
      if (i == run) gpus.lose_wait(gpu, before + lost);
      step.run(model.feeds(2 + i));
      all.push_back(model.results(session));
      waits_[i] = gpus.waits_of(gpu) - before;
    }
    return all;
  }

  int waits_[2] = {};  // waits of that GPU in each of these runs
};

TEST_P(GpuSegmentWaitsTest, AreAllNeeded) {
  if (kSanitized) GTEST_SKIP() << "what a wait was taken from is a race, and may use dead memory";
  auto expected = on_cpus(GetParam().devices(), 4);
  expected.erase(expected.begin(), expected.begin() + 2);
  for (int gpu = 0; gpu < GetParam().physical; ++gpu) {
    EXPECT_EQ(results(gpu), expected);
    const int waits[] = {waits_[0], waits_[1]};
    EXPECT_GT(waits[1], 0);
    for (int run = 0; run < 2; ++run)
      for (int lost = 0; lost < waits[run]; ++lost) {
        bool noticed = false;
        try {
          noticed = results(gpu, run, lost) != expected;
        } catch (const DeviceError&) {
          noticed = true;
        }
        EXPECT_TRUE(noticed) << "GPU " << gpu << ", run " << run << ", wait " << lost << " of "
                             << waits[run];
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuSegmentWaitsTest,
                         ::testing::Values(Layout{1, 2}, Layout{2, 1}, Layout{2, 2}, Layout{1, 8},
                                           Layout{8, 1}, Layout{2, 4}),
                         [](const auto& layout) {
                           return cat(layout.param.physical, "x", layout.param.logical);
                         });

}  // namespace gpu_segments_test
}  // namespace belfry
