// The segments of a plan's work for GPUs.
#include "belfry/framework/passes/segments.h"

#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/plan_kernels/rank_launch.h"
#include "belfry/tests/framework/passes/random_graph.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace segments_test {

using ::testing::ElementsAre;

class SegmentsTest : public ::testing::Test {
 protected:
  // The nodes of each segment of a GPU. A copy has the name of the node whose output it carries.
  std::vector<std::string> cut(Layout layout, const std::vector<Fetch>& fetches, int gpu = 0,
                               const std::vector<FeedType>& feeds = {}) {
    SessionOptions options = on_gpus(layout);
    options.plan_hook = [&](Plan& plan) {
      for (Launch& launch : plan.launches)
        if (plan.node(launch.node).name() == "alone")
          launch.capturable = false;
        else if (last_part_waits_ && launch.rank && launch.rank->rank().number == 1)
          launch.waits.push_back({plan.launches[0].strand, 0});
    };
    Session session(graph, options);
    const Plan& plan = *session.prepare(fetches, feeds).plan();
    std::vector<std::string> all;
    for (const Segment& segment : cut_segments(plan)) {
      if (segment.gpu != gpu) continue;
      all.emplace_back();
      for (const LaunchIndex launch : segment.launches)
        all.back() +=
            cat(all.back().empty() ? "" : " ", plan.node(plan.launches[launch].node).name());
    }
    return all;
  }
  template <class F>
  Output on(const DeviceSpec& device, const F& f) {
    DeviceScope scope(graph, device);
    return f();
  }
  Output start(const DeviceSpec& device, const char* name) {
    return on(device, [&] { return fill(graph, {4}, 1, DType::kF32, name); });
  }

  bool last_part_waits_ = false;  // for the first launch, which is of another GPU
  test::StandInGpus gpus_{2};
  test::UseGpus use_{gpus_};
  Graph graph;
};

TEST_F(SegmentsTest, WorkOfOneGpuIsOneWithTheCopiesOfFetches) {
  const Output a = start(gpu(0), "a"), b = start(gpu(1), "b");
  const Output c = on(gpu(0), [&] { return tanh(a, "c"); });
  const Output d = on(gpu(1), [&] { return tanh(b, "d"); });
  EXPECT_THAT(cut({1, 2}, {c, d, a}), ElementsAre("a b c d c/copy d/copy a/copy"));
}

TEST_F(SegmentsTest, WaitForFeedsAndOtherWorkOfTheHostAtTheirBeginning) {
  const Output a = start(gpu(0), "a");
  const Output x = on(cpu(0), [&] { return placeholder(graph, "x", DType::kF32, {4}); });
  const Output half = on(cpu(0), [&] { return tanh(start(cpu(0), "host"), "half"); });
  const Output sum = on(gpu(0), [&] { return add_n({a, x, half}, "sum"); });
  EXPECT_THAT(cut({1, 1}, {sum}, 0, {{x, {4}}}), ElementsAre("a x/copy half/copy sum sum/copy"));
}

TEST_F(SegmentsTest, EndWhereAHostWaits) {
  const Output a = start(gpu(0), "a"), b = start(gpu(0), "b");
  const Output seen = on(cpu(0), [&] { return tanh(a, "seen"); });
  const Output c = on(gpu(0), [&] { return tanh(b, "c"); });
  EXPECT_THAT(cut({1, 1}, {seen, c}), ElementsAre("a b a/copy", "c c/copy"));
}

TEST_F(SegmentsTest, BeginBehindAHostThatHasWaited) {
  const Output a = start(gpu(0), "a");
  const Output seen = on(cpu(0), [&] { return tanh(a, "seen"); });
  const Output c = on(gpu(0), [&] { return tanh(seen, "c"); });
  EXPECT_THAT(cut({1, 1}, {c}), ElementsAre("a a/copy", "seen/copy c c/copy"));
}

TEST_F(SegmentsTest, CopiesForTheHostAreNotWorthOthers) {
  const Output a = start(gpu(0), "a"), b = start(gpu(1), "b");
  const Output seen = on(cpu(0), [&] { return tanh(a, "seen"); });
  const Output both = on(cpu(0), [&] { return add_n({seen, b}, "both"); });
  EXPECT_THAT(cut({1, 2}, {both}), ElementsAre("a b a/copy b/copy"));
}

TEST_F(SegmentsTest, EndAtEdgesToOtherGpus) {
  const Output a = start(gpu(0), "a"), b = on(gpu(0), [&] { return tanh(a, "b"); });
  const Output c = on(gpu(0), [&] { return tanh(b, "c"); });
  const Output there = on(gpu(1), [&] { return tanh(b, "there"); });
  const Output d = on(gpu(0), [&] { return tanh(c, "d"); });
  const Output back = on(gpu(0), [&] { return add_n({there, d}, "back"); });
  EXPECT_THAT(cut({2, 1}, {back}), ElementsAre("a b", "c d", "there/copy back back/copy"));
  EXPECT_THAT(cut({2, 1}, {back}, 1), ElementsAre("b/copy there"));
}

TEST_F(SegmentsTest, HoldThePartsOfRanks) {
  const Output a = start(gpu(0), "a"), b = start(gpu(1), "b");
  const std::vector<std::vector<Output>> tensors{{a, b}};
  const auto sums = nccl_all_reduce_bucket(tensors)[0];
  const Output c = on(gpu(0), [&] { return tanh(sums[0], "c"); });
  const Output d = on(gpu(1), [&] { return tanh(sums[1], "d"); });
  EXPECT_THAT(cut({2, 1}, {c, d}), ElementsAre("a NcclAllReduce/rank0 c c/copy"));
  EXPECT_THAT(cut({2, 1}, {c, d}, 1), ElementsAre("b NcclAllReduce/rank1 d d/copy"));
  last_part_waits_ = true;  // so that the first part begins before it could
  EXPECT_THAT(cut({2, 1}, {c, d}), ElementsAre("a", "NcclAllReduce/rank0", "c c/copy"));
  EXPECT_THAT(cut({2, 1}, {c, d}, 1), ElementsAre("b", "NcclAllReduce/rank1", "d d/copy"));
}

TEST_F(SegmentsTest, EndAroundWhatIsNotCaptured) {
  const Output a = start(gpu(0), "a"), b = on(gpu(0), [&] { return tanh(a, "b"); });
  const Output alone = on(gpu(1), [&] { return tanh(a, "alone"); });
  const Output c = on(gpu(0), [&] { return tanh(b, "c"); });
  const Output sum = on(gpu(0), [&] { return add_n({c, alone}, "sum"); });
  EXPECT_THAT(cut({1, 2}, {sum}), ElementsAre("a", "b", "alone", "c", "sum sum/copy"));
}

// This holds for any plan, and any division of its hosts' strands among workers.
TEST(Segments, HoldEachLaunchOnceAndWaitForNothingInTheMiddle) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Layout layout{1 + static_cast<int>(seed % 3), 1 + static_cast<int>(seed / 3 % 3)};
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    std::vector<DeviceSpec> devices{cpu(0), cpu(1)}, combined;
    for (int d = 0; d < layout.devices(); ++d) combined.push_back(gpu(d));
    devices.insert(devices.end(), combined.begin(), combined.end());
    RandomGraph random(seed, devices, combined, 60);
    Session session(random.graph, on_gpus(layout, 2));
    const Plan& plan = *session.prepare(random.fetches).plan();
    const std::vector<Segment> segments = cut_segments(plan);
    for (const int workers : {1, 2}) {
      const Indexed<Strand, int> worker_of = deal_strands(plan, workers);
      std::vector<int> of(plan.launches.size(), -1);
      LaunchIndex last;
      for (std::size_t s = 0; s < segments.size(); ++s) {
        EXPECT_GT(segments[s].launches[0], last);
        last = segments[s].launches[0];
        EXPECT_EQ(plan.strands[segments[s].strand].gpu, segments[s].gpu);
        for (const LaunchIndex l : segments[s].launches) {
          EXPECT_EQ(std::exchange(of[at(l.value())], static_cast<int>(s)), -1);
          EXPECT_EQ(plan.strands[plan.launches[l].strand].gpu, segments[s].gpu);
        }
      }
      // Marks launches of hosts that wait for a GPU, and later launches of their workers.
      std::vector<char> waits(plan.launches.size()), worker_waits(at(workers));
      for (std::size_t l = 0; l < plan.launches.size(); ++l) {
        const Launch& launch = plan.launches[l];
        const bool on_gpu = plan.strands[launch.strand].gpu >= 0;
        EXPECT_EQ(of[l] >= 0, on_gpu);
        if (!on_gpu) waits[l] = worker_waits[at(worker_of[launch.strand])];
        for (const Wait& wait : launch.waits) {
          const auto before = at(plan.awaited(wait).value());
          if (!on_gpu) {
            waits[l] |= static_cast<char>(of[before] >= 0 || waits[before]);
            continue;
          }
          const Segment& segment = segments[at(of[l])];
          const bool early =
              of[before] < 0 ? !waits[before] : segments[at(of[before])].gpu == segment.gpu;
          EXPECT_TRUE(early || segment.launches[0] == LaunchIndex(l))
              << "seed " << seed << ", launch " << l;
        }
        if (!on_gpu) worker_waits[at(worker_of[launch.strand])] = waits[l];
      }
    }
  }
}

}  // namespace segments_test
}  // namespace belfry
