// Steps on GPUs that are stood in for.
#include <thread>

#include "belfry/framework/checkpoint.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/segments.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/framework/gpu_test_support.h"
#include "belfry/tests/framework/memory_file_system.h"
#include "belfry/tests/framework/random_graph.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace gpu_step_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Layout kLayouts[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {1, 8}, {8, 1}};

TEST(GpuStep, TrainsToTheBitsOfCpus) {
  for (const Layout layout : kLayouts) {
    const int towers = layout.devices();
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Towers model("GPU", towers);
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) { watch_hosts(plan, gpus); };
    Session session(model.graph, options);
    EXPECT_EQ(model.train_in(session, 4), on_cpus(towers, 4))
        << layout.physical << " x " << layout.logical;
    EXPECT_EQ(session.step(), 4u);
  }
}

// Without a collective: the updates of each GPU are one launch.
TEST(GpuStep, GivesTheBitsOfCpusWithGroupedUpdates) {
  const auto values = [](const DeviceSpec& device, const SessionOptions& options) {
    Graph graph;
    std::vector<Node*> updates;
    std::vector<Variable> variables;
    {
      DeviceScope on(graph, device);
      const Output x = constant(graph, {0.5, -1.5, 2.25}, {3});
      for (int i = 0; i < 14; ++i) {
        const auto make = [&](const char* name) {
          variables.push_back(variable(graph, cat(name, i), {3}));
          return variables.back();
        };
        const Variable w = make("w"), m = make("m");
        updates.push_back(&momentum_update(w, m, tanh(w + x * (i + 1)), constant(graph, 0.1)));
      }
    }
    Session session(graph, options);
    Step& step = session.prepare({group(graph, updates)});
    for (int i = 0; i < 4; ++i) step.run();
    std::vector<Tensor> all;
    for (const Variable v : variables) all.push_back(session.read(v));
    return std::pair(all, std::ranges::count(step.plan().nodes, &kFusedUpdate, &PlanNode::op));
  };
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto [of_cpu, none] = values(cpu(0), {});
  const auto [of_gpu, fused] = values(gpu(0), on_gpus({1, 1}));
  EXPECT_EQ(of_gpu, of_cpu);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(fused, 2);
}

TEST(GpuStep, GivesBackAllMemoryOfGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  {
    const Towers model("GPU", 2);
    Session session(model.graph, on_gpus({2, 1}));
    model.train_in(session, 1);
    EXPECT_GT(gpus.in_use(0), 0);
    EXPECT_GT(gpus.in_use(1), 0);
    EXPECT_GT(gpus.in_use(-1), 0);
  }
  for (const int gpu : {-1, 0, 1}) EXPECT_EQ(gpus.in_use(gpu), 0) << gpu;
}

TEST(GpuStep, WaitsForNothingAndAllocatesNothingInASteadyStep) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 4);
  Session session(model.graph, on_gpus({2, 2}));
  Step& step = session.prepare(model.fetches(), model.feed_types());
  const std::vector<Tensor> feeds = model.feeds(0);
  for (int i = 0; i < 3; ++i) step.run(feeds);  // the second and the third capture
  const test::StandInGpus::Calls before = gpus.calls();
  for (int i = 0; i < 5; ++i) step.run(feeds);
  const test::StandInGpus::Calls after = gpus.calls();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.copies, before.copies);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.prepared, before.prepared);
  EXPECT_EQ(after.captures, before.captures);
  EXPECT_EQ(after.drains, 0);
  EXPECT_GT(after.replays, before.replays);
}

// An event or a stamp that nobody waits for would cost time.
TEST(GpuStep, RecordsAndStampsOnlyWhatIsWaitedFor) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  Output y = fill(graph, {4}, 1);
  for (int i = 0; i < 6; ++i) y = tanh(y);
  Session session(graph, on_gpus({1, 1}));
  Step& step = session.prepare({y});
  step.run();
  const test::StandInGpus::Calls calls = gpus.calls();
  EXPECT_EQ(calls.enqueued, 7);
  EXPECT_EQ(calls.copied, 1);
  EXPECT_EQ(calls.stamps, 1);  // behind the copy to the host, which is the end, too
  EXPECT_EQ(calls.records, 0);
  EXPECT_EQ(calls.waits, 0);
  EXPECT_EQ(calls.events, 0);
}

TEST(GpuStep, EndsWhenTheGpuHasFinished) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  Node& last = fill(graph, {4}, 1).node();
  std::atomic<int> finished{0};
  SessionOptions options = on_gpus({1, 1});
  options.plan_hook = [&](Plan& plan) {
    for (Launch& launch : plan.launches)
      launch.enqueue = [&, run = launch.enqueue](const Pointers& p, GpuStream& stream) {
        run(p, stream);
        test::StandInGpus::enqueue(stream, [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++finished;
        });
      };
  };
  Session session(graph, options);
  Step& step = session.prepare({last});
  for (int i = 1; i <= 3; ++i) {
    step.run();
    EXPECT_EQ(finished, i);
  }
}

TEST(GpuStep, FetchesFeedsAndConstantsOfGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(1));
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const Output c = constant(graph, {3, 4}, {2});
  const Output empty = fill(graph, {0}, 1);
  Session session(graph, on_gpus({2, 1}));
  const std::vector<Tensor> results =
      session.run({x, c, x + c, empty, tanh(empty)}, {{x, floats({1, 2})}});
  EXPECT_EQ(results[0], floats({1, 2}));
  EXPECT_EQ(results[1], floats({3, 4}));
  EXPECT_EQ(results[2], floats({4, 6}));
  EXPECT_EQ(results[3].elements(), 0);
  EXPECT_EQ(results[4].elements(), 0);
}

TEST(GpuStep, ReadsWritesAndRestoresVariablesOfGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2);
  Session session(model.graph, on_gpus({2, 1}));
  EXPECT_EQ(session.read(model.w[1]), Towers::first_matrix());
  const Tensor ones({4, 3}, std::vector<float>(12, 1));
  session.write(model.w[0], ones);
  EXPECT_EQ(session.read(model.w[0]), ones);
  MemoryFileSystem files("/m");
  save_checkpoint(session, "/m/saved", Json::object(), files);
  const std::vector<Tensor> expected = model.train_in(session, 3);
  EXPECT_NE(session.read(model.w[0]), ones);
  restore_checkpoint(session, "/m/saved", files);
  EXPECT_EQ(session.read(model.w[0]), ones);
  EXPECT_EQ(model.train_in(session, 3), expected);
}

TEST(GpuStep, CopiesOfVariablesStartAsTheirOriginalsOnOtherGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<Variable> v;
  for (int t = 0; t < 3; ++t) {
    DeviceScope on(graph, t < 2 ? gpu(t) : cpu(0));
    VariableOptions options{.initializer = init::uniform(-1, 1)};
    if (t > 0) options.copy_of = &v[0].node();
    v.push_back(variable(graph, cat("v", t), {8}, options));
  }
  Session session(graph, on_gpus({2, 1}));
  EXPECT_EQ(session.read(v[2]), session.read(v[0]));
  EXPECT_EQ(session.read(v[1]), session.read(v[0]));
}

TEST(GpuStep, KeepsTheMemoryLimitOfEachLogicalGpu) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(1));
  const Variable v = variable(graph, "v", {1024});
  const Output y = tanh(v);
  SessionOptions options = on_gpus({1, 2});
  options.memory_limit = {{"gpu:1", 8191}};
  Session small(graph, options);
  EXPECT_THAT(message_of<OutOfMemory>([&] { small.run(y); }),
              HasSubstr("device:GPU:1: its plans need 8192 bytes"));
  options.memory_limit = {{"gpu:1", 8192}};
  Session enough(graph, options);
  enough.run(y);
}

TEST(GpuStep, SaysThatAGpuHasNoMoreMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  const Variable v = variable(graph, "v", {1 << 30});
  Session session(graph, on_gpus({1, 1}));
  EXPECT_THAT(message_of<OutOfMemory>([&] { session.read(v); }),
              AllOf(HasSubstr("device:GPU:0: "), HasSubstr("bytes")));
  EXPECT_EQ(gpus.in_use(0), 0);
}

TEST(GpuStep, RefusesRunsBesideEachOther) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  const Output y = fill(graph, {4}, 1);
  Session session(graph, on_gpus({1, 1}));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { session.prepare({y}, {}, {.locks = Locks::kEachVariable}); }),
              AllOf(HasSubstr("work on"), HasSubstr("device:GPU:0"), HasSubstr("CPUs alone")));
}

TEST(GpuStep, IsTraced) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2);
  Session session(model.graph, on_gpus({2, 1}));
  Step& step = session.prepare(model.fetches(), model.feed_types());
  Trace trace;
  step.run(model.feeds(0), {.trace = &trace});
  EXPECT_EQ(trace.transfers().size(), step.plan().transfers.size());
  EXPECT_THAT(trace.str(), AllOf(HasSubstr("device:GPU:1"), HasSubstr("MomentumUpdate")));
  expect_sound(trace);
}

// Values come from and go to everywhere.
void expect_agreement(unsigned first, unsigned last, Layout layout, int cpus) {
  const test::StandInGpus gpus(layout.physical);
  const test::UseGpus use(gpus);
  std::vector<DeviceSpec> devices, combined;
  for (int d = 0; d < layout.devices(); ++d) combined.push_back(gpu(d));
  for (int d = 0; d < cpus; ++d) devices.push_back(cpu(d));
  devices.insert(devices.end(), combined.begin(), combined.end());
  for (unsigned seed = first; seed < last; seed += kSanitized ? 4 : 1) {
    RandomGraph random(seed, devices, combined, 60);
    Interpreter interpreter;
    SessionOptions options = on_gpus(layout, cpus);
    options.threads = 1 + static_cast<int>(seed % 3);
    options.plan_hook = [&](Plan& plan) { watch_hosts(plan, gpus); };
    Session session(random.graph, options);
    for (int run = 0; run < 3; ++run) {
      const auto expected = interpreter.run(random.fetches, std::span<const Feed>());
      const auto got = session.run(random.fetches, std::span<const Feed>());
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[i]) << "seed " << seed << ", result " << i;
    }
    for (const Variable v : random.variables)
      ASSERT_EQ(session.read(v), interpreter.read(v)) << "seed " << seed;
  }
}

TEST(GpuStep, GivesTheBitsOfTheInterpreterOnOneGpu) { expect_agreement(0, 30, {1, 3}, 1); }

TEST(GpuStep, GivesTheBitsOfTheInterpreterOnTwoGpus) { expect_agreement(100, 130, {2, 2}, 2); }

TEST(GpuStep, GivesTheBitsOfTheInterpreterOnFourGpus) { expect_agreement(200, 230, {4, 1}, 3); }

// What fails, and where, in the middle of a step. In runs launch by launch; gpu_segments_test has
// the others.
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
    Step& step = made->prepare(model.fetches(), model.feed_types());
    const std::vector<Tensor> feeds = model.feeds(0);
    for (int l = 0; l < std::ssize(step.plan().launches); ++l) {
      for (int i = 0; i < 3; ++i) {
        fault_.broken = l;
        EXPECT_EQ(message_of<DeviceError>([&] { step.run(feeds); }), cat("broken at ", l));
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

// What waits for a launch, and what waits for that, and so on.
std::vector<std::size_t> behind(const Plan& plan, std::size_t launch) {
  std::vector<std::size_t> all;
  std::vector<char> waits(plan.launches.size());
  waits[launch] = true;
  for (std::size_t l = launch + 1; l < plan.launches.size(); ++l) {
    std::vector<Wait> before = plan.launches[l].waits;
    if (plan.launches[l].position > 0)
      before.push_back({plan.launches[l].lane, plan.launches[l].position - 1});
    waits[l] = std::ranges::any_of(
        before, [&](const Wait& wait) { return waits[at(awaited(plan, wait))]; });
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
  Step& step = made->prepare(model.fetches(), model.feed_types());
  const Plan& plan = step.plan();
  std::size_t on_other_gpus = 0;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const auto gpu_of = [&](std::size_t launch) {
      return plan.lanes[at(plan.launches[launch].lane)].gpu;
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

// Variables of two GPUs, and none of the host.
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

// In the first run, in those that capture, and in a replay.
TEST(GpuStep, ThatFailsOnceAGpuHasBegunToWriteClosesTheSessionUntilAllItWritesIsWritten) {
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Moved model;
    StreamFault fault;
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
    Session session(model.graph, options);
    const SavedVariables first(session, model.variables);
    Step& step = session.prepare({*model.train});
    const Plan& plan = step.plan();
    for (int l = 0; l < std::ssize(plan.launches); ++l) {
      if (plan.node(plan.launches[at(l)].node).writes() == 0) continue;
      for (std::size_t healthy = 0; healthy < model.variables.size(); ++healthy) {
        first.restore();
        for (std::size_t i = 0; i < healthy; ++i) step.run();
        fault.broken = l;
        EXPECT_THROW(step.run(), DeviceError);
        fault.broken = -1;
        gpus.mend();
        for (std::size_t i = 0; i < model.variables.size(); ++i) {  // another one is the last
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

TEST(GpuStep, ThatFailsBeforeItWritesLeavesTheSessionIntact) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Moved model;
  LaunchFault fault;
  SessionOptions options = on_gpus({1, 2});
  options.plan_hook = [&](Plan& plan) { fault.put_into(plan); };
  Session session(model.graph, options);
  const SavedVariables first(session, model.variables);
  Step& step = session.prepare({*model.train});
  ASSERT_EQ(step.plan().node(step.plan().launches[0].node).writes(), 0);
  fault.broken = 0;
  EXPECT_THROW(step.run(), DeviceError);
  fault.broken = -1;
  EXPECT_TRUE(session.intact());
  step.run();
}

// Towers that learn classes: kernels look at labels when they run.
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
  Step& step(Session& session) const {
    std::vector<FeedType> types;
    for (const Output& of_tower : x) types.push_back({of_tower, {5, 4}});
    for (const Output& of_tower : labels) types.push_back({of_tower, {5}});
    std::vector<Fetch> fetches(losses.begin(), losses.end());
    fetches.emplace_back(*train);
    return session.prepare(fetches, types);
  }
  // With this label in the last row of the last tower.
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

// In the first run, in those that capture, and in a replay. Other than on CPUs, the step goes on to
// its end.
TEST(GpuStep, RefusesInputInTheWordsOfCpusAndCanBeRestored) {
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
      EXPECT_EQ(model.train_in(session, 3), expected) << "after " << healthy;
    }
  }
}

TEST(GpuStep, AsksForDeterministicKernelsWhereTheSessionIs) {
  for (const bool deterministic : {false, true})
    for (const bool nccl : {false, true}) {
      const test::StandInGpus gpus(2);
      const test::UseGpus use(gpus);
      const Towers model("GPU", 4, nccl);
      SessionOptions options = on_gpus({2, 2});
      options.deterministic = deterministic;
      Session session(model.graph, options);
      session.prepare(model.fetches(), model.feed_types());
      const test::StandInGpus::Calls calls = gpus.calls();
      EXPECT_GT(deterministic ? calls.deterministic : calls.fastest, 0);
      EXPECT_EQ(deterministic ? calls.fastest : calls.deterministic, 0) << nccl;
    }
}

TEST(GpuStep, ThrowsWhatAKernelFailsWithInItsStream) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  DeviceScope on(graph, gpu(0));
  const Output y = tanh(fill(graph, {4}, 1), "y");
  SessionOptions options = on_gpus({1, 1});
  options.plan_hook = [](Plan& plan) {
    plan.launches[1].enqueue = [](const Pointers&, GpuStream& stream) {
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
  Step& step = made->prepare(model.fetches(), model.feed_types());
  const SavedVariables first(*made, model.variables());
  for (int i = 0; i < 3; ++i) {
    gpus.fail(1, "fell off the bus");
    EXPECT_EQ(message_of<DeviceError>([&] { step.run(model.feeds(0)); }), "fell off the bus");
    gpus.mend();
    first.restore();
  }
  EXPECT_EQ(model.train_in(*made, 3), expected);
}

}  // namespace gpu_step_test
}  // namespace belfry
