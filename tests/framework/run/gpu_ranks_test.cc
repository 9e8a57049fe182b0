// Steps with a stand-in for NCCL: sums, failures, and the state after failures.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/kernels/half_bits.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/stand_in_communicators.h"

namespace belfry {
namespace gpu_ranks_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The timeout for all collectives, also those that do not stall: a busy machine must not take so
// long.
constexpr double kTimeout = kSanitized ? 1.5 : 0.5;

void expect_near(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    for (std::size_t e = 0; e < got[i].data<float>().size(); ++e)
      ASSERT_NEAR(got[i].data<float>()[e], wanted[i].data<float>()[e], 1e-5) << i;
}

constexpr Layout kLayouts[] = {{1, 1}, {1, 2}, {2, 1}, {1, 8}, {8, 1}, {2, 4}, {3, 2}};

TEST(GpuRanks, TrainAsCpusDo) {
  for (const Layout layout : kLayouts) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    {
      const Towers model("GPU", layout.devices(), true);
      Session session(model.graph, on_gpus(layout));
      expect_near(model.train_in(session, 4), on_cpus(layout.devices(), 4));
      EXPECT_EQ(gpus.nccl_faults().made, 1);
      EXPECT_EQ(gpus.calls().all_reduces, 4 * layout.physical)
          << "a rank connects, runs, and is captured for each slot of feeds";
      EXPECT_EQ(gpus.calls().drains, 0);
    }
    EXPECT_EQ(gpus.nccl_faults().alive, 0);
    EXPECT_EQ(gpus.nccl_faults().aborted, 0);
    for (int gpu = 0; gpu < layout.physical; ++gpu) EXPECT_EQ(gpus.in_use(gpu), 0);
  }
}

template <class T>
Tensor values(std::int64_t elements, int tower) {
  Tensor tensor({elements}, dtype_of<T>());
  for (std::int64_t i = 0; i < elements; ++i)
    tensor.mutable_data<T>()[at(i)] = static_cast<T>(i % 7 + tower);
  return tensor;
}

// The values are whole numbers, whose sums are exact.
TEST(GpuRanks, SumABucketOfAnySizes) {
  const std::vector<std::int64_t> sizes = {5, 0, 1, 1031};
  for (const Layout layout : {Layout{1, 3}, {2, 1}, {3, 1}, {2, 2}}) {
    const int towers = layout.devices();
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const auto expect_sums = [&]<class T>(T, bool mean) {
      Graph graph;
      std::vector<std::vector<Output>> tensors;
      for (const std::int64_t size : sizes) {
        tensors.emplace_back();
        for (int t = 0; t < towers; ++t) {
          DeviceScope on(graph, gpu(t));
          tensors.back().push_back(constant(graph, values<T>(size, t)));
        }
      }
      std::vector<Fetch> fetches;
      for (const auto& sums : nccl_all_reduce_bucket(tensors, {.mean = mean}))
        fetches.insert(fetches.end(), sums.begin(), sums.end());
      Session session(graph, on_gpus(layout));
      const std::vector<Tensor> got = session.run(fetches, std::span<const FeedValue>());
      for (std::size_t f = 0; f < got.size(); ++f) {
        const std::span<const T> of = got[f].data<T>();
        ASSERT_EQ(std::ssize(of), sizes[f / at(towers)]);
        for (std::size_t i = 0; i < of.size(); ++i) {
          const T sum =
              static_cast<T>(static_cast<int>(i % 7) * towers + towers * (towers - 1) / 2);
          ASSERT_EQ(of[i], mean ? sum / static_cast<T>(towers) : sum) << f << " " << i;
        }
      }
    };
    for (const bool mean : {false, true}) {
      expect_sums(float{}, mean);
      expect_sums(double{}, mean);
    }
    expect_sums(std::int32_t{}, false);
  }
}

// 2048 + 1 is 2048 in f16, and 256 + 1 is 256 in bf16, so the test sees where a sum is rounded.
TEST(GpuRanks, RoundSixteenBitsOnceOnAGpuAndAtEachAdditionBetweenThem) {
  const auto expect_sums = []<class T>(T, DType dtype, float large, Layout layout, bool mean) {
    using Stored = kernels::Stored<T>;
    const auto rounded = [](float x) { return Stored::widen(Stored::narrow(x)); };
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const int towers = layout.devices();
    const auto n = static_cast<float>(towers);
    Graph graph;
    std::vector<std::vector<Output>> tensors(1);
    std::vector<float> of_gpu(at(layout.physical));
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, gpu(t));
      const float value = t + 1 == towers ? large : 1;
      of_gpu[at(t / layout.logical)] += value;
      tensors[0].push_back(constant(graph, value, dtype));
    }
    float expected = of_gpu.back();
    if (layout.physical > 1) {
      expected = rounded(expected);
      for (std::size_t r = of_gpu.size() - 1; r-- > 0;)
        expected = rounded(expected + rounded(of_gpu[r]));
    }
    expected = rounded(mean ? expected / n : expected);
    std::vector<Fetch> fetches;
    const auto sums = nccl_all_reduce_bucket(tensors, {.mean = mean});
    for (const Output& sum : sums[0]) fetches.emplace_back(cast(sum, DType::kF32));
    Session session(graph, on_gpus(layout));
    for (const Tensor& sum : session.run(fetches, std::span<const FeedValue>()))
      EXPECT_EQ(sum.item<float>(), expected)
          << layout.physical << " x " << layout.logical << (mean ? ", mean" : "");
  };
  for (const Layout layout : {Layout{1, 3}, {3, 1}, {2, 2}, {3, 2}})
    for (const bool mean : {false, true}) {
      expect_sums(kernels::F16{}, DType::kF16, 2048, layout, mean);
      expect_sums(kernels::BF16{}, DType::kBF16, 256, layout, mean);
    }
}

TEST(GpuRanks, ShareCommunicatorsBetweenSteps) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2, true);
  Session session(model.graph, on_gpus({2, 1}));
  CompiledStep& all = session.prepare(model.fetches(), model.feed_types());
  const std::vector<Fetch> train{*model.train};
  CompiledStep& update = session.prepare(train, model.feed_types());
  for (int i = 0; i < 3; ++i) {
    all.run(model.feeds(i));
    update.run(model.feeds(i));
  }
  EXPECT_EQ(gpus.nccl_faults().made, 1);
}

TEST(GpuRanks, AllocateAndConnectNothingInASteadyStep) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 4, true);
  Session session(model.graph, on_gpus({2, 2}));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  const std::vector<Tensor> feeds = model.feeds(0);
  for (int i = 0; i < 3; ++i) step.run(feeds);  // the second and the third capture
  const test::StandInGpus::Calls before = gpus.calls();
  for (int i = 0; i < 3; ++i) step.run(feeds);
  const test::StandInGpus::Calls after = gpus.calls();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.all_reduces, before.all_reduces) << "graphs hold them";
  EXPECT_GT(after.replays, before.replays);
}

// A step with NCCL fails three times, and afterwards runs as if nothing had happened.
class GpuRankFailures : public ::testing::TestWithParam<Layout> {
 protected:
  // `set_fault` breaks a step that is already connected. `what`: its message.
  template <class Set>
  void expect_recovery(const Set& set_fault, const ::testing::Matcher<std::string>& what) {
    const Layout layout = GetParam();
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    test::NcclFaults& faults = gpus.nccl_faults();
    const Towers model("GPU", layout.devices(), true);
    SessionOptions options = on_gpus(layout);
    options.stall_abort_seconds = kTimeout;
    Session session(model.graph, options);
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    const SavedVariables first(session, model.variables());
    for (int i = 0; i < 3; ++i) {
      faults.reset();
      if (i > 0) faults.calls = -layout.physical;  // does not count those that connect anew
      set_fault(faults);
      EXPECT_THAT(message_of<CommError>([&] { step.run(model.feeds(0)); }), what);
      EXPECT_EQ(faults.aborted, i + 1);
      EXPECT_EQ(faults.alive, 0);
      first.restore();
    }
    faults.reset();
    expect_near(model.train_in(session, 3), on_cpus(layout.devices(), 3));
    EXPECT_EQ(faults.made, 4);
    EXPECT_EQ(faults.alive, 1);
  }
};

TEST_P(GpuRankFailures, OfACallRecover) {
  for (int call = 0; call < GetParam().physical; ++call)
    expect_recovery([&](test::NcclFaults& faults) { faults.fail_at = call; },
                    AllOf(HasSubstr("ncclAllReduce failed: in a test"),
                          HasSubstr("it failed NcclAllReduce 'NcclAllReduce' (built at ")));
}

TEST_P(GpuRankFailures, ThatComeLaterRecover) {
  for (int call = 0; call < GetParam().physical; ++call)
    expect_recovery(
        [&](test::NcclFaults& faults) {
          faults.fail_later_at = call;
          faults.stall_at = call;  // otherwise the step may end before anybody looks
        },
        AllOf(HasSubstr("a collective failed: in a test"), HasSubstr("it failed NcclAllReduce")));
}

TEST_P(GpuRankFailures, ByAStallAreNamedAfterATime) {
  for (int call = 0; call < GetParam().physical; ++call)
    expect_recovery(
        [&](test::NcclFaults& faults) { faults.stall_at = call; },
        AllOf(HasSubstr("NcclAllReduce 'NcclAllReduce' (built at "), HasSubstr("device:GPU:"),
              HasSubstr("has not finished within"), HasSubstr("stall_abort_seconds")));
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuRankFailures,
                         ::testing::Values(Layout{1, 2}, Layout{2, 1}, Layout{2, 2}),
                         [](const auto& layout) {
                           return cat(layout.param.physical, "x", layout.param.logical);
                         });

// On one GPU the second run captures the step.
class GpuRankSegments : public ::testing::Test {
 protected:
  GpuRankSegments() : session(model.graph, options()) {}

  static SessionOptions options() {
    SessionOptions made = on_gpus({1, 2});
    made.stall_abort_seconds = kTimeout;
    return made;
  }
  std::string failure() {
    return message_of<CommError>([&] { step.run(model.feeds(0)); });
  }

  const test::StandInGpus gpus{1};
  const test::UseGpus use{gpus};
  test::NcclFaults& faults = gpus.nccl_faults();
  const Towers model{"GPU", 2, true};
  Session session;
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
};

TEST_F(GpuRankSegments, ThatCannotBeCapturedNameTheCollectiveAndLeaveTheStepIntact) {
  std::vector<Tensor> results;
  for (int i = 0; i < 3; ++i) {
    step.run(model.feeds(i));
    for (const std::size_t t : {0, 1}) results.emplace_back(step.fetched(t).item<float>());
    faults.reset();
    faults.fail_at = 0;
    EXPECT_THAT(failure(), AllOf(HasSubstr("ncclAllReduce failed: in a test"),
                                 HasSubstr("it failed NcclAllReduce 'NcclAllReduce' (built at ")));
    EXPECT_EQ(faults.aborted, i + 1);
    EXPECT_EQ(gpus.calls().replays, 0);
    EXPECT_TRUE(session.intact());
    faults.reset();
  }
  for (const Variable v : model.variables()) results.push_back(session.read(v));
  expect_near(results, on_cpus(2, 3));
}

TEST_F(GpuRankSegments, AreWatchedWhereTheyAreReplayed) {
  const SavedVariables first(session, model.variables());
  for (int i = 0; i < 3; ++i) {
    step.run(model.feeds(0));
    faults.reset();
    faults.stall_at = 0;  // while it is captured, and so in each replay
    EXPECT_THAT(failure(), AllOf(HasSubstr("NcclAllReduce 'NcclAllReduce' (built at "),
                                 HasSubstr("device:GPU:0 has not finished within")));
    faults.reset();
    first.restore();
  }
  expect_near(model.train_in(session, 3), on_cpus(2, 3));
}

TEST_F(GpuRankSegments, OfAllStepsEndBeforeTheCommunicators) {
  const std::vector<Fetch> train{*model.train};
  CompiledStep& update = session.prepare(train, model.feed_types());
  const SavedVariables first(session, model.variables());
  for (int i = 0; i < 4; ++i) {
    step.run(model.feeds(i));
    update.run(model.feeds(i));
    if (i != 1) continue;
    EXPECT_GT(gpus.calls().replays, 0);
    gpus.fail(0, "fell off the bus");
    EXPECT_EQ(message_of<DeviceError>([&] { step.run(model.feeds(0)); }), "fell off the bus");
    gpus.mend();
    first.restore();
  }
  EXPECT_EQ(faults.made, 2);
  EXPECT_EQ(faults.outlived, 0);
}

TEST(GpuRanks, OfSeveralGpusHaveSegmentsThatEndBeforeTheCommunicators) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  {
    const Towers model("GPU", 2, true);
    Session session(model.graph, on_gpus({2, 1}));
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    const SavedVariables first(session, model.variables());
    for (int i = 0; i < 3; ++i) step.run(model.feeds(i));
    EXPECT_EQ(gpus.calls().all_reduces, 4 * 2) << "to connect, to run, and to be captured twice";
    gpus.fail(0, "fell off the bus");
    EXPECT_THAT(message_of<DeviceError>([&] { step.run(model.feeds(3)); }),
                HasSubstr("fell off the bus"));
    gpus.mend();
    first.restore();
    expect_near(model.train_in(session, 4), on_cpus(2, 4));
  }
  EXPECT_EQ(gpus.nccl_faults().made, 2);
  EXPECT_EQ(gpus.nccl_faults().outlived, 0);
}

// Ranks connect in prepare(), and in the run after a failure, by collectives whose results nobody
// wants.
TEST(GpuRanks, ConnectWithoutChangingVariables) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<Variable> variables;
  std::vector<std::vector<Output>> tensors(1);
  for (int t = 0; t < 2; ++t) {
    const DeviceScope on(graph, gpu(t));
    variables.push_back(variable(graph, cat("v", t), {3}, {.initializer = init::constant(t + 1)}));
    tensors[0].push_back(variables.back());
  }
  const auto sums = nccl_all_reduce_bucket(tensors, {});
  std::vector<Node*> writes;
  for (int t = 0; t < 2; ++t) writes.push_back(&assign(variables[at(t)], sums[0][at(t)]));
  const Fetch sum(group(graph, writes));
  Session session(graph, on_gpus({2, 1}));
  const auto expect_values = [&](float first, float second) {
    EXPECT_EQ(session.read(variables[0]).data<float>()[0], first);
    EXPECT_EQ(session.read(variables[1]).data<float>()[0], second);
  };
  CompiledStep& step = session.prepare({sum});
  expect_values(1, 2);
  step.run({});
  expect_values(3, 3);
  const SavedVariables saved(session, variables);
  gpus.nccl_faults().reset();
  gpus.nccl_faults().fail_at = 0;
  EXPECT_THROW(step.run({}), CommError);
  gpus.nccl_faults().reset();
  saved.restore();
  step.run({});  // connects anew
  expect_values(6, 6);
}

// A failure of any launch outside NCCL leaves ranks that wait for others.
TEST(GpuRanks, AreAbortedAfterAnyFailure) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 4, true);
  LaunchFault fault;
  SessionOptions options = on_gpus({2, 2});
  options.capture = false;  // replays do not call `enqueue`
  options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
  Session session(model.graph, options);
  const SavedVariables first(session, model.variables());
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  const std::vector<Tensor> feeds = model.feeds(0), expected = on_cpus(4, 2);
  for (int l = 0; l < std::ssize(step.plan()->launches); l += kSanitized ? 5 : 1) {
    for (int i = 0; i < 3; ++i) {
      fault.broken = l;
      EXPECT_EQ(message_of<DeviceError>([&] { step.run(feeds); }), cat("broken at ", l));
      fault.broken = -1;
      first.restore();
    }
    ASSERT_NO_FATAL_FAILURE(expect_near(model.train_in(session, 2), expected)) << l;
    first.restore();
  }
}

TEST(GpuRanks, ThatCannotBeMadeLeaveNothing) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2, true);
  Session session(model.graph, on_gpus({2, 1}));
  test::NcclFaults& faults = gpus.nccl_faults();
  faults.fails_to_make = true;
  EXPECT_THAT(message_of<CommError>([&] { session.prepare(model.fetches(), model.feed_types()); }),
              HasSubstr("ncclCommInitRankConfig failed"));
  faults.reset();
  faults.fail_at = 1;  // while ranks connect
  EXPECT_THAT(message_of<CommError>([&] { session.prepare(model.fetches(), model.feed_types()); }),
              HasSubstr("ncclAllReduce failed"));
  EXPECT_EQ(faults.alive, 0);
  faults.reset();
  expect_near(model.train_in(session, 2), on_cpus(2, 2));
}

// A write takes replicas on one GPU apart, so the step gets another plan.
TEST(GpuRanks, OfAPlanThatReplacesAnotherHearOfFailures) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<Variable> w;
  std::vector<std::vector<Output>> gradients_of(1);
  for (int t = 0; t < 4; ++t) {
    DeviceScope on(graph, gpu(t));
    VariableOptions options{.initializer = init::ones()};
    if (t > 0) options.copy_of = &w[0].node();
    w.push_back(variable(graph, cat("w", t), {4}, options));
    gradients_of[0].push_back(w.back() * 0.5);
  }
  const auto sums = nccl_all_reduce_bucket(gradients_of);
  std::vector<Fetch> updates;
  for (std::size_t t = 0; t < 4; ++t) {
    DeviceScope on(graph, gpu(static_cast<int>(t)));
    updates.emplace_back(sgd_update(w[t], sums[0][t], constant(graph, 0.1)));
  }
  Session session(graph, on_gpus({2, 2}));
  CompiledStep& step = session.prepare(updates);
  step.run();
  ASSERT_TRUE(session.shares_storage(w[1]));
  session.write(w[1], session.read(w[0]));
  ASSERT_FALSE(session.shares_storage(w[1]));
  test::NcclFaults& faults = gpus.nccl_faults();
  faults.reset();
  faults.calls = -2;  // does not count those that connect
  faults.in_progress_at = 0;
  faults.fail_at = 1;
  EXPECT_THAT(message_of<CommError>([&] { step.run(); }), HasSubstr("ncclAllReduce failed"));
  EXPECT_EQ(faults.heard, 1);
}

TEST(GpuRanks, AreTraced) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 4, true);
  Session session(model.graph, on_gpus({2, 2}));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  Trace trace;
  step.run(model.feeds(0), {.trace = &trace});
  EXPECT_THAT(trace.str(),
              AllOf(HasSubstr("NcclAllReduce/rank0"), HasSubstr("NcclAllReduce/rank1")));
  expect_sound(trace);
}

TEST(GpuRanks, RefuseATimeOutOfNothing) {
  Graph graph;
  EXPECT_THAT(message_of<InvalidArgument>([&] { Session(graph, {.stall_abort_seconds = 0}); }),
              HasSubstr("stall_abort_seconds"));
}

}  // namespace gpu_ranks_test
}  // namespace belfry
