// Steps on stand-in GPUs.
#include <thread>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/op.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/passes/random_graph.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
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

// Tensors so large that GPUs share their sums. The stand-in would find two that write one element.
TEST(GpuStep, SharesLargeSumsToTheBitsOfCpus) {
  const auto trained = [](const char* type, Layout layout, bool reads_gradients) {
    const int towers = layout.devices();
    Graph graph;
    std::vector<Variable> w, slots;
    std::vector<std::vector<Output>> tensors(2);
    std::vector<Fetch> fetches;
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      w.push_back(variable(graph, cat("w", t), {131, 130}, {.initializer = init::ones()}));
      slots.push_back(variable(graph, cat("slot", t), {131, 130},
                               {.initializer = init::zeros(), .trainable = false}));
      tensors[0].push_back(fill(graph, {5}, t));
      tensors[1].push_back(tanh(w.back() * (0.1 * t + 0.3)));
      if (reads_gradients) fetches.emplace_back(tanh(tensors[1].back()));
    }
    const auto means = all_reduce_bucket(tensors, {.mean = true});
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, DeviceSpec::local(type, t));
      const auto i = static_cast<std::size_t>(t);
      fetches.emplace_back(momentum_update(w[i], slots[i], means[1][i], constant(graph, 0.1)));
      fetches.emplace_back(means[0][i]);
    }
    SessionOptions options = on_gpus(layout);
    if (type[0] == 'C') options = {.device_count = {{"CPU", towers}}, .threads = 1};
    Session session(graph, options);
    CompiledStep& step = session.prepare(fetches);
    for (int i = 0; i < 4; ++i) step.run();
    std::vector<Tensor> all;
    for (const Variable v : w) all.push_back(session.read(v));
    for (std::size_t f = 0; f < fetches.size(); ++f)
      if (fetches[f].output) all.push_back(step.fetched(f));
    return all;
  };
  for (const Layout layout : {Layout{2, 1}, {3, 1}, {2, 2}})
    for (const bool reads_gradients : {false, true}) {
      const auto expected = trained("CPU", layout, reads_gradients);
      const test::StandInGpus gpus(layout.physical);
      const test::UseGpus use(gpus);
      EXPECT_EQ(trained("GPU", layout, reads_gradients), expected)
          << layout.physical << " x " << layout.logical;
    }
}

// Together they are as many bytes as the sum of all elements.
TEST(GpuStep, TracesTheSharesOfALargeSum) {
  const test::StandInGpus gpus(3);
  const test::UseGpus use(gpus);
  constexpr std::int64_t kElements = 48'000;
  Graph graph;
  std::vector<Output> tensors;
  for (int g = 0; g < 3; ++g) {
    DeviceScope on(graph, gpu(g));
    tensors.push_back(tanh(fill(graph, {kElements}, g)));
  }
  Session session(graph, on_gpus({3, 1}));
  Trace trace;
  session.prepare({all_reduce(tensors)[0].node()}).run({}, {.trace = &trace});
  expect_sound(trace);
  std::int64_t launches = 0, bytes = 0;
  const JsonValue file = JsonValue::parse(trace.str());
  for (const JsonValue& event : file.at("traceEvents").items()) {
    const JsonValue* const args = event.find("args");
    const JsonValue* const op = args ? args->find("op") : nullptr;
    if (!op || op->text() != "AllReduce") continue;
    EXPECT_EQ(args->at("phase").text(), "messages");
    ++launches;
    bytes += args->at("bytes").integer();
  }
  EXPECT_EQ(launches, 3);
  EXPECT_EQ(bytes, 2 * 3 * kElements * 4);
}

// There is no collective, so the updates of each GPU are one launch.
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
    CompiledStep& step = session.prepare({group(graph, updates)});
    for (int i = 0; i < 4; ++i) step.run();
    std::vector<Tensor> all;
    for (const Variable v : variables) all.push_back(session.read(v));
    return std::pair(all, std::ranges::count(step.plan()->nodes, &kFusedUpdate, &PlanNode::op));
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
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
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
  CompiledStep& step = session.prepare({y});
  step.run();
  const test::StandInGpus::Calls calls = gpus.calls();
  EXPECT_EQ(calls.enqueued, 7);
  EXPECT_EQ(calls.copied, 1);
  EXPECT_EQ(calls.stamps, 1);  // behind the copy to the host, which is also the end
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
      launch.enqueue = [&, run = launch.enqueue](const KernelPointers& p, GpuStream& stream) {
        run(p, stream);
        test::StandInGpus::enqueue(stream, [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++finished;
        });
      };
  };
  Session session(graph, options);
  CompiledStep& step = session.prepare({last});
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
  save_checkpoint(session, "/m/saved", JsonValue::object(), files);
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
                  [&] { session.prepare({y}, {}, {.locks = LockDuration::kEachVariable}); }),
              AllOf(HasSubstr("work on"), HasSubstr("device:GPU:0"), HasSubstr("CPUs alone")));
}

TEST(GpuStep, IsTraced) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 2);
  Session session(model.graph, on_gpus({2, 1}));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  Trace trace;
  step.run(model.feeds(0), {.trace = &trace});
  EXPECT_EQ(trace.transfers().size(), step.plan()->transfers.size());
  EXPECT_THAT(trace.str(), AllOf(HasSubstr("device:GPU:1"), HasSubstr("MomentumUpdate")));
  expect_sound(trace);
}

// A GPU kernel that waits until the host has enqueued everything behind it. A CPU op tells when.
std::atomic<bool> all_enqueued{false};
KernelRun patient_kernel(KernelPlan&) {
  return [](const KernelPointers& p) {
    while (!all_enqueued) std::this_thread::yield();
    *p.output<float>() = *p.input<float>(0);
  };
}
const Op kPatientTest{.name = "PatientTest",
                      .inputs = 1,
                      .shape = same_as_input,
                      .no_gradient = "it is for tests",
                      .reference = patient_kernel};

// The times of slices in microseconds, by the names of their nodes: start, end, enqueued.
struct Times {
  double start = 0, end = 0, enqueued = -1;
};
std::map<std::string, Times> times_of(const Trace& trace) {
  std::map<std::string, Times> all;
  const JsonValue file = JsonValue::parse(trace.str());
  for (const JsonValue& event : file.at("traceEvents").items()) {
    if (event.at("ph").text() != "X") continue;
    Times& times = all[event.at("args").at("name").text()];
    times.start = event.at("ts").number();
    times.end = times.start + event.at("dur").number();
    if (const JsonValue* enqueued = event.at("args").find("enqueued"))
      times.enqueued = std::stod(enqueued->text());
  }
  return all;
}

// The host has enqueued the second node long before the GPU has finished the first.
TEST(GpuStep, IsTracedByTheTimesOfTheGpu) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  Output x, y;
  {
    DeviceScope on(graph, gpu(0));
    x = Output(graph.add(kPatientTest, {fill(graph, {1}, 1)}, "x"), 0);
    y = tanh(x);
  }
  Session session(graph, on_gpus({1, 1}));
  CompiledStep& step = session.prepare({y.node()});
  all_enqueued = false;
  const int all = gpus.calls().enqueued + 3;
  std::thread watcher([&] {
    while (gpus.calls().enqueued < all) std::this_thread::yield();
    // The host notes the time of the last node after its call.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    all_enqueued = true;
  });
  Trace trace;
  step.run(std::span<const Tensor>(), {.trace = &trace});
  watcher.join();
  const auto times = times_of(trace);
  const Times first = times.at("x"), second = times.at(std::string(y.node().name()));
  EXPECT_GT(first.end, second.enqueued);
  EXPECT_GE(second.enqueued, first.enqueued);
  EXPECT_GE(first.start, first.enqueued);
  EXPECT_GE(second.start, first.end);
  EXPECT_EQ(gpus.calls().timers, 2 * 3 + 1);
  expect_sound(trace);
  step.run();
  EXPECT_EQ(gpus.calls().timers, 2 * 3 + 1);  // only runs with a trace take timers
}

// A polling thread naps only between two checks whether a GPU has failed.
TEST(GpuStep, IsWaitedForWithoutNapsWhereThereAreCores) {
  test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Towers model("GPU", 1);
  SessionOptions options = on_gpus({1, 1});
  options.gpu_spin_ms = 3'600'000;
  Session session(model.graph, options);
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  gpus.slow_down(std::chrono::microseconds(200));
  for (int i = 0; i < 3; ++i) step.run(model.feeds(i));
  EXPECT_EQ(gpus.calls().checks, 0);
  options.gpu_spin_ms = 0;
  Session hasty(model.graph, options);
  hasty.prepare(model.fetches(), model.feed_types()).run(model.feeds(0));
  EXPECT_GT(gpus.calls().checks, 0);
}

TEST(GpuStep, RefusesToSpinForLessThanNothing) {
  Graph graph;
  SessionOptions options;
  options.gpu_spin_ms = -1;
  EXPECT_THAT(message_of<InvalidArgument>([&] { Session(graph, options); }),
              HasSubstr("gpu_spin_ms must not be less than 0"));
}

// Values move between all devices.
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
      const auto expected = interpreter.run(random.fetches, std::span<const FeedValue>());
      const auto got = session.run(random.fetches, std::span<const FeedValue>());
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

}  // namespace gpu_step_test
}  // namespace belfry
