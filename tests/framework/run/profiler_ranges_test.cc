// Ranges of steps on stand-in GPUs, as a profiler sees them: nvtx_counter.cc, which NVTX loads into
// another process of this program.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "belfry/framework/base/profiler_range.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace profiler_ranges_test {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

const std::string kCounter = BELFRY_BIN_DIR "/../lib/libnvtx_counter.so";
constexpr const char* kInjection = "NVTX_INJECTION64_PATH";
constexpr int kRuns = 5, kTowers = 2;

// Runs a step that trains two towers on one GPU. Returns its plan.
std::shared_ptr<const Plan> train(bool capture) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Towers model("GPU", kTowers);
  SessionOptions options = on_gpus({1, kTowers});
  options.capture = capture;
  Session session(model.graph, options);
  CompiledStep& step = session.prepare(model.fetches(), model.feed_types());
  for (int i = 0; i < kRuns; ++i) step.run(model.feeds(i));
  return step.plan();
}

// These two also run in the process with the profiler.
TEST(ProfilerRanges, HaveNoNameWithoutAProfiler) {
  EXPECT_EQ(bool(RangeName("a")), std::getenv(kInjection) != nullptr);
  train(false);
}

TEST(ProfilerRanges, OfCapturedStepsHaveNoNameWithoutAProfiler) {
  EXPECT_EQ(bool(RangeName("a")), std::getenv(kInjection) != nullptr);
  train(true);
}

// The ranges that one of the tests above begins under the profiler, and how often.
std::map<std::string, int> ranges_of(const std::string& test) {
  const std::string path = temporary_path(".ranges");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // Another shard may have that test.
  const Finished done = run_program(
      "env", {"-u", "GTEST_TOTAL_SHARDS", "-u", "GTEST_SHARD_INDEX", cat(kInjection, "=", kCounter),
              "NVTX_COUNTS=" + path, self, "--gtest_filter=ProfilerRanges." + test});
  EXPECT_EQ(done.status, 0) << done.output << done.errors;
  std::istringstream lines(text_of_file(path));
  std::map<std::string, int> counts;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.rfind(' ');
    counts[line.substr(0, space)] = std::stoi(line.substr(space));
  }
  local_file_system().remove(path);
  return counts;
}

std::string name_of(const Plan& plan, LaunchIndex launch) {
  return plan.node(plan.launches[launch].node).name();
}

// How many launches of GPUs each name has.
std::map<std::string, int> launches_on_gpus(const Plan& plan) {
  std::map<std::string, int> counts;
  for (const LaunchIndex l : plan.launches.indices())
    if (plan.strands[plan.launches[l].strand].gpu >= 0) ++counts[name_of(plan, l)];
  return counts;
}

TEST(ProfilerRanges, BearTheNamesOfNodesOnGpus) {
  if (!std::filesystem::exists(kCounter)) GTEST_SKIP() << "built without the header of NVTX";
  const auto counts = ranges_of("HaveNoNameWithoutAProfiler");
  const auto launches = launches_on_gpus(*train(false));
  EXPECT_GT(launches.size(), 10u);
  for (const auto& [name, number] : launches)
    EXPECT_THAT(counts, Contains(Pair(name, number * kRuns)));
  EXPECT_THAT(counts, Contains(Pair("step", Ge(kRuns))));  // variables get values in one, too
  EXPECT_THAT(counts, Contains(Pair("copy feeds", kRuns)));
  EXPECT_THAT(counts, Not(Contains(Key(AnyOf("open", "capture", StartsWith("segment"))))));
}

TEST(ProfilerRanges, OfCapturedStepsAreSegments) {
  if (!std::filesystem::exists(kCounter)) GTEST_SKIP() << "built without the header of NVTX";
  const auto counts = ranges_of("OfCapturedStepsHaveNoNameWithoutAProfiler");
  const auto plan = train(true);
  int graphs = 0;
  for (const Segment& segment : plan->commands.segments) {
    if (!segment.is_graph()) continue;
    ++graphs;
    EXPECT_THAT(counts, Contains(Pair(cat("segment: ", name_of(*plan, segment.launches.front()),
                                          " to ", name_of(*plan, segment.launches.back())),
                                      kRuns - 1)));
    for (const LaunchIndex l : segment.launches)
      EXPECT_THAT(counts, Contains(Key("capture > " + name_of(*plan, l))));
  }
  EXPECT_GT(graphs, 0);
  EXPECT_THAT(counts, Contains(Pair("capture", FeedSlots::kCount)));
  EXPECT_THAT(counts, Not(Contains(Key("open"))));
}

}  // namespace profiler_ranges_test
}  // namespace belfry
