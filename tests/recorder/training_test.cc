// Data-parallel training by the GPU module itself: its calls break no rule of CUDA.
#include <algorithm>
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/ops/dropout.h"
#include "belfry/tests/recorder/recorder_support.h"

namespace belfry::recorder {
namespace training_test {

using ::testing::IsSubsetOf;

constexpr Layout kLayouts[] = {{1, 1}, {2, 1}, {8, 1}, {1, 8}, {2, 4}};

using RecorderTraining = RecorderTest;

int captured_segments(const Plan& plan) {
  const auto segments = cut_segments(plan);
  return static_cast<int>(std::ranges::count_if(segments, &Segment::is_graph));
}

int launches_of(const std::vector<Call>& calls, const char* kernel) {
  return static_cast<int>(std::ranges::count_if(calls, [&](const Call& call) {
    return call.detail.find(kernel) != std::string::npos && !call.captured;
  }));
}

// The work of streams in a run, as the module does it and as other tests' backend counts it.
struct Done {
  int copies = 0, gathered = 0, records = 0, waits = 0, stamps = 0, captures = 0, replays = 0;
  bool operator==(const Done&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Done& done) {
    return out << done.copies << " copies, " << done.gathered << " gathered, " << done.records
               << " records, " << done.waits << " waits, " << done.stamps << " stamps, "
               << done.captures << " captures, " << done.replays << " replays";
  }
};

Done done_by_module(const std::vector<Call>& calls) {
  const auto count = [&](const char* name) {
    return static_cast<int>(std::ranges::count(calls, name, &Call::name));
  };
  const auto copies = std::ranges::count_if(
      calls, [](const Call& call) { return call.name == "cudaMemcpyAsync" && !call.of_thread; });
  const auto gathered = std::ranges::count_if(
      calls, [](const Call& call) { return call.detail.find("Copies") != std::string::npos; });
  return {.copies = static_cast<int>(copies),
          .gathered = static_cast<int>(gathered),
          .records = recorder().count("cudaEventRecord"),
          .waits = recorder().count("cudaStreamWaitEvent"),
          .stamps = launches_of(calls, "store_behind"),
          .captures = recorder().count("cudaStreamBeginCapture"),
          .replays = count("cudaGraphLaunch")};
}

// The work after some runs.
Done done_by_stand_in(Layout layout, int runs) {
  const test::StandInGpus stand_in(layout.physical);
  const test::UseGpus use(stand_in);
  const Towers model("GPU", layout.devices());
  Session session(model.graph, on_gpus(layout));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  for (int i = 0; i < runs; ++i) step.run(model.feeds(i));
  const auto calls = stand_in.calls();
  return {.copies = calls.copied,
          .gathered = calls.gathered,
          .records = calls.records,
          .waits = calls.waits,
          .stamps = calls.stamps,
          .captures = calls.captures,
          .replays = calls.replays};
}

TEST_F(RecorderTraining, HasStreamsDoWhatTheBackendOfOtherTestsDoes) {
  for (const Layout layout : kLayouts)
    for (const int runs : {1, 2, 5}) {
      SCOPED_TRACE(cat(layout.physical, " x ", layout.logical, ", ", runs, " runs"));
      recorder().reset();
      const Towers model("GPU", layout.devices());
      Session session(model.graph, on_gpus(layout));
      CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
      for (int i = 0; i < runs; ++i) step.run(model.feeds(i));
      EXPECT_EQ(done_by_module(recorder().calls()), done_by_stand_in(layout, runs));
      EXPECT_THAT(recorder().violations(), ::testing::IsEmpty());
      const int segments = captured_segments(*step.plan());
      EXPECT_EQ(recorder().count("cudaGraphInstantiate"),
                std::min(runs - 1, FeedSlots::kCount) * segments);
      EXPECT_EQ(recorder().count("cudaGraphUpload"), recorder().count("cudaGraphInstantiate"));
      EXPECT_EQ(recorder().count("cudaGraphLaunch"), (runs - 1) * segments);
    }
}

TEST_F(RecorderTraining, GoesByLaunchesWhereAGraphIsRefused) {
  for (const char* call : {"cudaGraphInstantiate", "cudaGraphUpload"})
    for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
      SCOPED_TRACE(cat(call, ", ", layout.physical, " x ", layout.logical));
      recorder().reset();
      const Towers model("GPU", layout.devices());
      Session session(model.graph, on_gpus(layout));
      CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
      recorder().fail(call, 0, cudaErrorMemoryAllocation);
      testing::internal::CaptureStderr();
      for (int i = 0; i < 5; ++i) step.run(model.feeds(i));
      EXPECT_THAT(testing::internal::GetCapturedStderr(),
                  ::testing::ContainsRegex("failed: .* for the segment from .* kernel by kernel"));
      EXPECT_TRUE(recorder().failed());
      EXPECT_EQ(recorder().count("cudaGraphLaunch"), 0);
      EXPECT_EQ(recorder().alive()["graphs"], 0);
    }
}

// As under torchrun, where each process sees all GPUs of the host and uses its own.
TEST_F(RecorderTraining, MakesContextsOnVisibleGpusAlone) {
  std::thread([] {
    SessionOptions options = on_gpus({1, 1});
    options.visible_devices = "5";
    const Towers model("GPU", 1);
    Session session(model.graph, options);
    const SavedVariables saved(session, model.variables());
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    for (int i = 0; i < 3; ++i) step.run(model.feeds(i));
    std::thread([&] { session.read(model.average); }).join();
    saved.restore();
  }).join();
  EXPECT_THAT(recorder().contexts, ::testing::ElementsAre(5));
}

TEST_F(RecorderTraining, AsksForNothingButWorkOnceItIsWarm) {
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
    const Towers model("GPU", layout.devices());
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    for (int i = 0; i < 3; ++i) step.run(model.feeds(i));
    const auto before = recorder().counts();
    {
      const Recorder::Steady steady;
      for (int i = 3; i < 7; ++i) step.run(model.feeds(i));
    }
    std::vector<std::string> called;
    for (const auto& [function, count] : recorder().counts())
      if (!before.contains(function) || before.at(function) < count) called.push_back(function);
    EXPECT_THAT(called, IsSubsetOf({"cudaGetDevice", "cudaSetDevice", "cudaMemcpyAsync",
                                    "cudaGraphLaunch", "cudaLaunchKernel", "cudaEventRecord",
                                    "cudaStreamWaitEvent", "cudaStreamQuery"}));
  }
}

TEST_F(RecorderTraining, IsTracedByEventsThatMeasureTime) {
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
    recorder().reset();
    const Towers model("GPU", layout.devices());
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    step.run(model.feeds(0));
    const int events = recorder().alive()["events"];
    Trace trace;
    step.run(model.feeds(1), {.trace = &trace});
    const auto launches = std::ranges::count_if(step.plan()->launches, [&](const Launch& launch) {
      return step.plan()->strands[launch.strand].gpu >= 0;
    });
    EXPECT_EQ(recorder().count("cudaEventElapsedTime"), 2 * launches);
    EXPECT_EQ(recorder().alive()["events"], events);
    recorder().fail("cudaEventElapsedTime", 1, cudaErrorLaunchFailure);
    EXPECT_THAT(message_of<DeviceError>([&] { step.run(model.feeds(2), {.trace = &trace}); }),
                ::testing::HasSubstr("cudaEventElapsedTime failed"));
    step.run(model.feeds(3), {.trace = &trace});
    step.run(model.feeds(4));
  }
}

// Each strand needs a handle for products, and copies of feeds need none. No stream has a handle
// that it does not need.
TEST_F(RecorderTraining, MakesHandlesForTheStrandsThatNeedThem) {
  const auto handles = [] {
    const auto all = recorder().alive();
    const auto of = [&](const char* library) {
      const auto found = all.find(cat("handles of ", library));
      return found == all.end() ? 0 : found->second;
    };
    return std::pair(of("cuBLASLt"), of("cuDNN"));
  };
  for (const Layout layout : kLayouts) {
    SCOPED_TRACE(cat(layout.physical, " x ", layout.logical));
    const Towers model("GPU", layout.devices());
    { Session(model.graph, on_gpus(layout)).prepare(model.fetches(), model.feed_types()); }
    const auto [products, images] = handles();  // the handles of the sources of algorithms
    Session session(model.graph, on_gpus(layout));
    CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
    EXPECT_EQ(handles(), std::pair(products + layout.devices(), images));
    for (int i = 0; i < 4; ++i) step.run(model.feeds(i));
    EXPECT_EQ(handles(), std::pair(products + layout.devices(), images));
    const int sums = layout.physical > 1 ? 1 : 0;  // they are so small that one GPU makes them
    EXPECT_EQ(recorder().alive()["streams"], layout.devices() + layout.physical + sums);
  }
}

// The work that a run computes launch by launch, or captures.
std::multiset<std::string> computed(const std::vector<Call>& calls, bool captured) {
  std::multiset<std::string> all;
  for (const Call& call : calls)
    if (call.captured == captured && call.computes()) all.insert(cat(call.name, " ", call.detail));
  return all;
}

TEST_F(RecorderTraining, CapturesWhatTheFirstRunLaunches) {
  const Towers model("GPU", 8);
  Session session(model.graph, on_gpus({1, 8}));
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  const auto calls_of_run = [&](int run) {
    recorder().forget_calls();
    step.run(model.feeds(run));
    return recorder().calls();
  };
  const auto first = computed(calls_of_run(0), false);
  EXPECT_GT(first.size(), 8u * 5);
  const std::vector<Call> second = calls_of_run(1);
  const auto outside = computed(second, false);
  EXPECT_LT(outside.size(), 10u);
  auto both = computed(second, true);
  both.insert(outside.begin(), outside.end());
  EXPECT_EQ(both, first);
  calls_of_run(2);
  const std::vector<Call> fourth = calls_of_run(3);
  EXPECT_EQ(computed(fourth, false), outside);
  EXPECT_TRUE(computed(fourth, true).empty());
}

// Each GPU sums a share of the elements in the stream in which it communicates. That stream waits
// for the tensors of all GPUs, and the stream that computes waits for all shares.
TEST_F(RecorderTraining, SharesLargeSumsBetweenGpus) {
  constexpr int kGpus = 4;
  Graph graph;
  std::vector<Output> tensors;
  for (int g = 0; g < kGpus; ++g) {
    DeviceScope on(graph, gpu(g));
    tensors.push_back(tanh(fill(graph, {100'003}, g)));
  }
  const std::vector<Output> sums = all_reduce(tensors);
  std::vector<Fetch> fetches;
  for (int g = 0; g < kGpus; ++g) {
    DeviceScope on(graph, gpu(g));
    fetches.emplace_back(tanh(sums[static_cast<std::size_t>(g)]).node());
  }
  Session session(graph, on_gpus({kGpus, 1}));
  CompiledStep& step = session.prepare(fetches);
  recorder().forget_calls();
  const int waits = recorder().count("cudaStreamWaitEvent");
  step.run(std::vector<Tensor>{});
  std::map<int, std::vector<const Stream*>> sum_in, compute_in;  // by GPU
  const std::vector<Call> calls = recorder().calls();
  for (const Call& call : calls) {
    if (!call.computes()) continue;
    const bool sums_up = call.detail.find("SumKernel") != call.detail.npos;
    (sums_up ? sum_in : compute_in)[call.gpu].push_back(call.stream);
  }
  for (int g = 0; g < kGpus; ++g) {
    ASSERT_EQ(sum_in[g].size(), 1u);
    EXPECT_EQ(compute_in[g].size(), 3u);
    for (const Stream* const stream : compute_in[g]) EXPECT_NE(stream, sum_in[g][0]);
  }
  EXPECT_EQ(recorder().count("cudaStreamWaitEvent"), waits + 2 * kGpus * kGpus);
  for (int i = 0; i < 3; ++i) step.run(std::vector<Tensor>{});
}

// The number is set outside of segments, as a replay has the parameters of the capture.
TEST_F(RecorderTraining, KernelsReadTheNumberOfTheStepFromTheirGpu) {
  Graph graph;
  std::vector<Fetch> fetches;
  for (int g = 0; g < 2; ++g) {
    DeviceScope on(graph, gpu(g));
    const Variable kept = variable(graph, cat("kept", g), {8}, {.initializer = init::ones()});
    fetches.emplace_back(assign(kept, dropout(dropout(kept, 0.5), 0.5)));
  }
  for (const Layout layout : {Layout{1, 2}, Layout{2, 1}}) {
    Session session(graph, on_gpus(layout));
    CompiledStep& step = session.prepare(fetches);
    std::vector<std::int64_t> numbers;
    for (int run = 0; run < 4; ++run) {
      recorder().forget_calls();
      step.run(std::vector<Tensor>{});
      std::vector<std::int64_t> told;
      for (const Call& call : recorder().calls())
        if (call.detail.find("store_word") != call.detail.npos) told.push_back(call.value);
      ASSERT_EQ(told.size(), 2u);
      EXPECT_EQ(told[0], told[1]);
      numbers.push_back(told[0]);
    }
    for (std::size_t run = 1; run < 4; ++run)
      EXPECT_EQ(numbers[run], numbers[0] + static_cast<std::int64_t>(run));
  }
}

}  // namespace training_test
}  // namespace belfry::recorder
