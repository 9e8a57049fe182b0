// Failures of steps on GPUs. All strands are released, and the session knows which variables may
// have been written.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/framework/run/failed_launch.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace gpu_failures_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The failed launch that the exception of f() names.
template <class F>
FailedLaunch failed_launch(const F& f) {
  try {
    f();
  } catch (const FailedLaunch& launch) {
    return launch;
  }
  ADD_FAILURE() << "no launch failed";
  return {};
}

// Launches that fail in the middle of a step that runs launch by launch. gpu_segments_test has the
// others.
class GpuFailureTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> session(const Towers& model, Layout layout) {
    SessionOptions options = on_gpus(layout);
    options.capture = false;
    options.plan_hook = [this](Plan& plan) { fault_.put_into(plan); };
    return std::make_unique<Session>(model.graph, options);
  }

  LaunchFault fault_;
};

TEST_F(GpuFailureTest, AtAnyLaunchReleasesEveryLaneThreeStepsRunning) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Towers model("GPU", 2);
    const std::vector<Tensor> expected = on_cpus(2, 3);
    const auto made = session(model, layout);
    const SavedVariables first(*made, model.variables());
    CompiledStep& step = made->prepare(model.fetches(), model.feed_types());
    const std::vector<Tensor> feeds = model.feeds(0);
    for (int l = 0; l < std::ssize(step.plan()->launches); ++l) {
      for (int i = 0; i < 3; ++i) {
        fault_.broken = l;
        EXPECT_EQ(message_of<DeviceError>([&] { step.run(feeds); }), cat("broken at ", l));
        first.restore();
        EXPECT_EQ(failed_launch([&] { step.run(feeds); }).node,
                  step.plan()->node(step.plan()->launches[LaunchIndex(l)].node).node->name());
        fault_.broken = -1;
        first.restore();
      }
      const int drains = gpus.calls().drains;
      ASSERT_EQ(model.train_in(*made, 3), expected) << "after launch " << l << " broke";
      EXPECT_EQ(gpus.calls().drains, drains);
      first.restore();
    }
  }
}

// Launches that wait for this one, directly or through others.
std::vector<std::size_t> behind(const Plan& plan, std::size_t launch) {
  std::vector<std::size_t> all;
  std::vector<char> waits(plan.launches.size());
  waits[launch] = true;
  for (std::size_t l = launch + 1; l < plan.launches.size(); ++l) {
    std::vector<Wait> before = plan.launches[l].waits;
    if (plan.launches[l].position > 0)
      before.push_back({plan.launches[l].strand, plan.launches[l].position - 1});
    waits[l] = std::ranges::any_of(
        before, [&](const Wait& wait) { return waits[at(plan.awaited(wait).value())]; });
    if (waits[l]) all.push_back(l);
  }
  return all;
}

TEST_F(GpuFailureTest, AtAnyLaunchLeavesWhatWaitsForItUndone) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2);
  const auto made = session(model, {2, 1});
  const SavedVariables first(*made, model.variables());
  CompiledStep& step = made->prepare(model.fetches(), model.feed_types());
  const Plan& plan = *step.plan();
  std::size_t on_other_gpus = 0;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const auto gpu_of = [&](std::size_t launch) {
      return plan.strands[plan.launches[launch].strand].gpu;
    };
    first.restore();
    fault_.begun();
    fault_.broken = static_cast<int>(l);
    EXPECT_THROW(step.run(model.feeds(0)), DeviceError);
    fault_.broken = -1;
    const std::set<std::size_t> begun = fault_.begun();
    for (const std::size_t other : behind(plan, l)) {
      EXPECT_FALSE(begun.contains(other)) << other << " after " << l;
      on_other_gpus += gpu_of(l) >= 0 && gpu_of(other) >= 0 && gpu_of(l) != gpu_of(other);
    }
  }
  EXPECT_GT(on_other_gpus, 0u);
}

// Variables on two GPUs, and none on the host.
struct Moved {
  Moved() {
    std::vector<Node*> updates;
    for (int t = 0; t < 2; ++t) {
      DeviceScope on(graph, gpu(t));
      const auto make = [&](const char* name) {
        variables.push_back(variable(graph, cat(name, t), {3}));
        return variables.back();
      };
      const Variable w = make("w"), slot = make("slot");
      updates.push_back(&momentum_update(w, slot, tanh(w), constant(graph, 0.1)));
    }
    train = &group(graph, updates);
  }

  Graph graph;
  std::vector<Variable> variables;
  Node* train;
};

// The launch fails in the first run, in those that capture, and in a replay.
TEST(GpuStepFailures, ThatFailsOnceAGpuHasBegunToWriteClosesTheSessionUntilAllItWritesIsWritten) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Moved model;
    StreamFault fault;
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
    Session session(model.graph, options);
    const SavedVariables first(session, model.variables);
    CompiledStep& step = session.prepare({*model.train});
    const Plan& plan = *step.plan();
    for (int l = 0; l < std::ssize(plan.launches); ++l) {
      if (plan.node(plan.launches[at(l)].node).writes() == 0) continue;
      for (std::size_t healthy = 0; healthy < model.variables.size(); ++healthy) {
        first.restore();
        for (std::size_t i = 0; i < healthy; ++i) step.run();
        fault.broken = l;
        EXPECT_THROW(step.run(), DeviceError);
        fault.broken = -1;
        gpus.mend();
        for (std::size_t i = 0; i < model.variables.size(); ++i) {  // each time another one is last
          EXPECT_FALSE(session.intact()) << "launch " << l << ", " << i << " are written";
          EXPECT_THROW(step.run(), InvalidArgument);
          session.write(model.variables[(i + healthy) % model.variables.size()], floats({1, 2, 3}));
        }
        EXPECT_TRUE(session.intact());
        step.run();
      }
    }
  }
}

TEST(GpuStepFailures, ThatFailsBeforeItWritesLeavesTheSessionIntact) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Moved model;
  LaunchFault fault;
  SessionOptions options = on_gpus({1, 2});
  options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
  Session session(model.graph, options);
  const SavedVariables first(session, model.variables);
  CompiledStep& step = session.prepare({*model.train});
  ASSERT_EQ(step.plan()->node(step.plan()->launches[0].node).writes(), 0);
  fault.broken = 0;
  EXPECT_THROW(step.run(), DeviceError);
  fault.broken = -1;
  EXPECT_TRUE(session.intact());
  step.run();
}

// Towers that learn classes: their kernels check labels when they run.
struct Classifiers {
  explicit Classifiers(const std::string& type) {
    std::vector<Node*> updates;
    for (int t = 0; t < 2; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      x.push_back(placeholder(graph, cat("x", t), DType::kF32, {5, 4}));
      labels.push_back(placeholder(graph, cat("labels", t), DType::kI32, {5}));
      w.push_back(variable(graph, cat("w", t), {4, 3},
                           {.initializer = init::value(Towers::first_matrix())}));
      losses.push_back(cross_entropy(matmul(x[at(t)], w[at(t)]), labels[at(t)]));
      const Output gradient = gradients(losses.back(), {w.back()}, {.colocate = true})[0];
      updates.push_back(&assign_sub(w.back(), gradient * 0.1));
    }
    train = &group(graph, updates);
  }
  CompiledStep& step(Session& session) const {
    std::vector<FeedType> types;
    for (const Output& of_tower : x) types.push_back({of_tower, {5, 4}});
    for (const Output& of_tower : labels) types.push_back({of_tower, {5}});
    std::vector<Fetch> fetches(losses.begin(), losses.end());
    fetches.emplace_back(*train);
    return session.prepare(fetches, types);
  }
  // Feeds with `label` in the last row of the last tower.
  std::vector<Tensor> feeds(int number, int label = 2) const {
    std::vector<Tensor> all = feeds_of_towers(2, number);
    for (const int last : {1, label})
      all.emplace_back(Shape{5}, std::vector<std::int32_t>{0, 1, 2, 0, last});
    return all;
  }
  std::vector<Tensor> train_in(Session& session, int steps) const {
    std::vector<Tensor> results;
    for (int i = 0; i < steps; ++i) {
      step(session).run(feeds(i));
      for (std::size_t t = 0; t < 2; ++t)
        results.emplace_back(step(session).fetched(t).item<float>());
    }
    for (const Variable v : w) results.push_back(session.read(v));
    return results;
  }

  Graph graph;
  std::vector<Output> x, labels, losses;
  std::vector<Variable> w;
  Node* train;
};

// The label is wrong in the first run, in those that capture, and in a replay. Unlike on CPUs, the
// step continues to its end.
TEST(GpuStepFailures, RefusesInputInTheWordsOfCpusAndCanBeRestored) {
  const Classifiers reference("CPU");
  Session of_cpus(reference.graph, {.device_count = {{"CPU", 2}}, .threads = 1});
  const SavedVariables first_values(of_cpus, reference.w);
  const std::string refused =
      message_of<InvalidArgument>([&] { reference.step(of_cpus).run(reference.feeds(0, 3)); });
  EXPECT_THAT(refused,
              AllOf(HasSubstr("SparseSoftmaxCrossEntropy"), HasSubstr("label 3 in row 4")));
  first_values.restore();
  const std::vector<Tensor> expected = reference.train_in(of_cpus, 3);
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Classifiers model("GPU");
    Session session(model.graph, on_gpus(layout));
    const SavedVariables first(session, model.w);
    for (int healthy = 0; healthy < 4; ++healthy) {
      first.restore();
      for (int i = 0; i < healthy; ++i) model.step(session).run(model.feeds(i));
      EXPECT_EQ(
          message_of<InvalidArgument>([&] { model.step(session).run(model.feeds(healthy, 3)); }),
          refused)
          << "after " << healthy;
      EXPECT_FALSE(session.intact());
      first.restore();
      const FailedLaunch launch =
          failed_launch([&] { model.step(session).run(model.feeds(0, 3)); });
      EXPECT_THAT(launch.node, HasSubstr("SparseSoftmaxCrossEntropy"));
      EXPECT_TRUE(launch.device.is_gpu()) << launch.device.str();
      first.restore();
      EXPECT_EQ(model.train_in(session, 3), expected) << "after " << healthy;
    }
  }
}

TEST(GpuStepFailures, ThrowsWhatAKernelFailsWithInItsStream) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  const Output y = tanh(fill(graph, {4}, 1), "y");
  SessionOptions options = on_gpus({1, 1});
  options.plan_hook = [](Plan& plan) {
    plan.launches[1].enqueue = [](const KernelPointers&, GpuStream& stream) {
      test::StandInGpus::enqueue(stream, [] { throw DeviceError("an illegal address"); });
    };
  };
  Session session(graph, options);
  EXPECT_EQ(message_of<DeviceError>([&] { session.run(y); }), "y: an illegal address");
}

TEST_F(GpuFailureTest, OfAGpuIsNoticedWhileTheHostWaits) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2);
  const auto made = session(model, {2, 1});
  const std::vector<Tensor> expected = on_cpus(2, 3);
  CompiledStep& step = made->prepare(model.fetches(), model.feed_types());
  const SavedVariables first(*made, model.variables());
  for (int i = 0; i < 3; ++i) {
    gpus.fail(1, "fell off the bus");
    EXPECT_EQ(message_of<DeviceError>([&] { step.run(model.feeds(0)); }), "fell off the bus");
    gpus.mend();
    first.restore();
  }
  EXPECT_EQ(model.train_in(*made, 3), expected);
}

}  // namespace gpu_failures_test
}  // namespace belfry
