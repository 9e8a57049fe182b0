// Slices, arrows and levels of plans whose recordings are made by hand.
#include "belfry/framework/trace/timeline.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/passes/random_graph.h"

namespace belfry {
namespace timeline_test {

using ::testing::ElementsAre;

class TimelineTest : public ::testing::Test {
 protected:
  template <class F>
  auto on(int device, const F& f) {
    DeviceScope scope(graph, cpu(device));
    return f();
  }
  Output source(int device) {
    return on(device, [&] { return fill(graph, {2, 3}, 1); });
  }
  Output sum(int device, const std::vector<Output>& parts) {
    return on(device, [&] { return add_n(parts); });
  }
  // A launch takes the time of its pair in `times`, whatever its dependencies.
  Timeline timeline(const std::vector<Fetch>& fetches,
                    const Indexed<Launch, Recording::Interval>& times = {},
                    const std::vector<FeedType>& feeds = {}) {
    plan = compiled(devices, fetches, feeds);
    Recording recording;
    recording.launches = times;
    recording.launches.resize(plan.launches.size());
    return make_timeline(plan, recording);
  }
  // "Fill 0: 0-2".
  std::string text(const Timeline& line, int s) {
    const Timeline::Slice& slice = line.slices[at(s)];
    return cat(plan.node(slice.node).op->name, " ", line.tracks[at(slice.track)].device, ": ",
               slice.start, "-", slice.end);
  }
  std::vector<std::string> slices(const Timeline& line) {
    std::vector<std::string> texts;
    for (std::size_t s = 0; s < line.slices.size(); ++s)
      texts.push_back(text(line, static_cast<int>(s)));
    return texts;
  }
  std::vector<std::string> arrows(const Timeline& line) {
    std::vector<std::string> texts;
    for (const Timeline::Arrow& arrow : line.arrows)
      texts.push_back(
          cat(plan.name(arrow.value), ": ", text(line, arrow.from), " -> ", text(line, arrow.to)));
    return texts;
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(4);
  Plan plan;
};

TEST_F(TimelineTest, KeepsTimesThatLeaveRoom) {
  const Output x = source(0), y = sum(1, {x, x});
  const Timeline line = timeline({y}, {{100, 250}, {300, 302}, {310, 500}});
  EXPECT_THAT(slices(line), ElementsAre("Fill 0: 100-250", "AddN 1: 300-302", "Copy 1: 310-500"));
  EXPECT_THAT(arrows(line), ElementsAre("Fill: Fill 0: 100-250 -> AddN 1: 300-302"));
}

TEST_F(TimelineTest, WidensEmptySlicesInOrder) {
  const Output x = source(0), y = sum(1, {x, x}), z = sum(0, {y, y});
  const Timeline line = timeline({z});
  EXPECT_THAT(slices(line),
              ElementsAre("Fill 0: 0-2", "AddN 1: 3-5", "AddN 0: 6-8", "Copy 0: 9-11"));
  EXPECT_THAT(arrows(line),
              ElementsAre("Fill: Fill 0: 0-2 -> AddN 1: 3-5", "AddN: AddN 1: 3-5 -> AddN 0: 6-8"));
}

TEST_F(TimelineTest, DelaysOnlyWhatAWidenedSliceIsInTheWayOf) {
  const Output x = source(0), y = source(0), far = source(1);
  const Timeline line = timeline({x.node(), y.node(), far.node()}, {{10, 10}, {11, 40}, {10, 20}});
  EXPECT_THAT(slices(line), ElementsAre("Fill 0: 10-12", "Fill 0: 13-40", "Fill 1: 10-20"));
}

TEST_F(TimelineTest, DrawsOneArrowPerTensorAndDeviceToItsFirstUse) {
  const Output x = source(0);
  const Output early = sum(1, {x, x}), late = sum(1, {x, x, x}), other = sum(2, {x, x});
  const Timeline line = timeline({early.node(), late.node(), other.node()});
  EXPECT_EQ(plan.transfers.size(), 2u);
  EXPECT_THAT(arrows(line),
              ElementsAre("Fill: Fill 0: 0-2 -> AddN 1: 3-5", "Fill: Fill 0: 0-2 -> AddN 2: 3-5"));
  EXPECT_EQ(line.arrows[0].to, launch_of(plan, planned(plan, early.node())));
}

TEST_F(TimelineTest, LeadsThroughDevicesThatOnlyPassATensorOn) {
  const Output x = source(0), passed = on(1, [&] { return identity(x); });
  const Timeline line = timeline({sum(2, {passed, passed}).node()});
  EXPECT_EQ(plan.transfers.size(), 2u);
  EXPECT_THAT(arrows(line), ElementsAre("Identity: Fill 0: 0-2 -> AddN 2: 3-5"));
}

TEST_F(TimelineTest, ATensorIsCopiedIntoAnotherMemorySpaceOnItsDevice) {
  devices[1]->memory_space = 1;
  const Output x = source(0);
  const Timeline line = timeline({sum(1, {x, x}).node()});
  EXPECT_THAT(slices(line), ElementsAre("Fill 0: 0-2", "Copy 1: 3-5", "AddN 1: 6-8"));
  EXPECT_THAT(arrows(line), ElementsAre("Fill: Fill 0: 0-2 -> Copy 1: 3-5"));
}

TEST_F(TimelineTest, ShowsWhatWasThereBeforeTheRunAsSlicesAtItsStart) {
  const Variable v = on(0, [&] { return variable(graph, "v", {6}); });
  const Output x = on(3, [&] { return placeholder(graph, "x", DType::kF32, {6}); });
  const Output first = on(0, [&] { return fill(graph, {6}, 1); });
  const Timeline line = timeline({sum(1, {v, x}).node(), first.node()}, {}, {{x, {6}}});
  const std::vector<std::string> found = arrows(line);
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("v/read: Read 0: 0-2 -> AddN 1: 3-5",
                                                     "x: Placeholder 3: 0-2 -> AddN 1: 3-5"));
  EXPECT_EQ(slices(line)[at(launch_of(plan, planned(plan, first.node())))], "Fill 0: 3-5");
  EXPECT_EQ(plan.strands.size(), 2u);  // device 3 runs nothing
  ASSERT_EQ(line.tracks.size(), 3u);
  EXPECT_EQ(line.tracks[2].device, 3);
}

TEST_F(TimelineTest, AReadComesFromTheLastWriteBeforeIt) {
  const Variable v = on(0, [&] { return variable(graph, "v", {2, 3}); });
  const Output before = v;
  Node& write = assign(v, source(0));
  Output after;
  {
    ControlDependencies wait(graph, {&write});
    after = v.read("after");
  }
  const Output early = sum(1, {before, before}), late = sum(1, {after, after});
  const Timeline line = timeline({early.node(), late.node()});
  const auto end = [&](const Output& use) { return launch_of(plan, planned(plan, use.node())); };
  ASSERT_EQ(line.arrows.size(), 2u);
  for (const Timeline::Arrow& arrow : line.arrows) {
    const PlanNode& from = plan.node(line.slices[at(arrow.from)].node);
    EXPECT_EQ(std::string_view(from.op->name), arrow.to == end(late) ? "Assign" : "Read");
  }
  EXPECT_TRUE(line.arrows[0].to == end(early) || line.arrows[1].to == end(early));
}

TEST_F(TimelineTest, ACollectiveIsOneSliceWithArrowsFromAndToOtherDevices) {
  const Output parts[] = {source(0), source(1), source(2)};
  const auto sums = all_reduce(parts);
  std::vector<Fetch> uses;
  for (int d = 0; d < 3; ++d) uses.emplace_back(sum(d, {sums[at(d)], sums[at(d)]}).node());
  const Timeline line = timeline(uses);
  EXPECT_THAT(arrows(line), ElementsAre("Fill_1: Fill 1: 0-2 -> AllReduce 0: 3-5",
                                        "Fill_2: Fill 2: 0-2 -> AllReduce 0: 3-5",
                                        "AllReduce:1: AllReduce 0: 3-5 -> AddN 1: 6-8",
                                        "AllReduce:2: AllReduce 0: 3-5 -> AddN 2: 6-8"));
  EXPECT_EQ(plan.transfers.size(), 4u);
}

TEST_F(TimelineTest, AFusedUpdateHasTheArrowsOfItsCollectiveAndOneForEachResult) {
  const Output parts[] = {source(0), source(1)};
  const auto sums = all_reduce(parts);
  std::vector<Node*> updates;
  for (const int d : {0, 1})
    updates.push_back(on(d, [&] {
      const Variable w = variable(graph, cat("w", d), {2, 3});
      const Variable m = variable(graph, cat("m", d), {2, 3});
      return &momentum_update(w, m, sums[at(d)], constant(graph, 0.5), {.momentum = 0.5});
    }));
  std::vector<Fetch> fetches{*updates[0]};
  for (const std::size_t i : {0, 1}) {
    const Output result = updates[1]->output(i);
    fetches.emplace_back(sum(1, {result, result}).node());
  }
  const Timeline line = timeline(fetches);
  EXPECT_THAT(arrows(line), ElementsAre("Fill_1: Fill 1: 0-2 -> FusedUpdate 0: 3-5",
                                        "MomentumUpdate_1: FusedUpdate 0: 3-5 -> AddN 1: 6-8",
                                        "MomentumUpdate_1:1: FusedUpdate 0: 3-5 -> AddN 1: 9-11"));
  EXPECT_EQ(plan.transfers.size(), 2u);
}

TEST_F(TimelineTest, PartsAreOnTracksOfWorkers) {
  const Output x = source(0);
  plan = compiled(devices, {x.node()});
  Recording recording;
  recording.launches = {{10, 50}};
  recording.parts = {{}, {{LaunchIndex(0), {1, 2}, {20, 20}}, {LaunchIndex(0), {2, 3}, {21, 30}}}};
  const Timeline line = make_timeline(plan, recording);
  ASSERT_EQ(line.tracks.size(), 3u);
  for (const int worker : {0, 1}) {
    EXPECT_EQ(line.tracks[at(worker + 1)].device, Timeline::kWorkers);
    EXPECT_EQ(line.tracks[at(worker + 1)].index, worker);
  }
  EXPECT_THAT(slices(line), ElementsAre("Fill 0: 10-50", "Fill -1: 20-22", "Fill -1: 23-30"));
  EXPECT_EQ(line.slices[2].track, 2);
  EXPECT_EQ(line.slices[2].range.begin, 2);
  recording.parts.pop_back();  // alone
  EXPECT_EQ(make_timeline(plan, recording).tracks.size(), 1u);
}

TEST_F(TimelineTest, LevelsAreTheBytesOfLiveBuffers) {
  const Output x = source(0), y = sum(1, {x, x});  // 24 bytes each; the fetch is outside
  const Timeline line = timeline({y}, {{100, 200}, {300, 400}, {500, 600}});
  std::vector<std::string> levels;
  for (const Timeline::Level& level : line.levels)
    levels.push_back(cat(level.device, "@", level.time, ": ", level.bytes));
  EXPECT_THAT(levels, ElementsAre("0@0: 0", "0@100: 24", "0@400: 0", "1@0: 0", "1@300: 24",
                                  "1@600: 0", "2@0: 0", "3@0: 0"));
}

// Times that a machine might record, and some that none would. The timeline keeps order and room
// for all.
TEST_F(TimelineTest, HoldsItsPromisesForRandomPlansAndTimes) {
  std::mt19937 random(1);
  std::size_t arrows = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomGraph net(seed, 1 + static_cast<int>(seed % 4), 80);
    const Plan random_plan = compiled(devices, net.fetches);
    Recording recording;
    for (std::size_t l = 0; l < random_plan.launches.size(); ++l) {
      const std::int64_t start = seed % 3 == 0 ? 0 : draw(random, 1000);
      recording.launches.push_back({start, start + draw(random, seed % 3 == 1 ? 2 : 50)});
    }
    const Timeline line = make_timeline(random_plan, recording);
    std::vector<std::int64_t> end_of(line.tracks.size(), -1);
    const auto follow = [&](const Timeline::Slice& slice) {
      ASSERT_GT(slice.start, end_of[at(slice.track)]);
      ASSERT_GE(slice.end, slice.start + 2);
      end_of[at(slice.track)] = slice.end;
    };
    const std::size_t launches = random_plan.launches.size();
    for (std::size_t s = launches; s < line.slices.size(); ++s) follow(line.slices[s]);
    for (std::size_t s = 0; s < launches; ++s) follow(line.slices[s]);
    const auto before = happens_before(random_plan);
    for (std::size_t a = 0; a < launches; ++a)
      for (std::size_t b = 0; b < launches; ++b)
        if (before[b][a]) {
          ASSERT_LT(line.slices[a].end, line.slices[b].start) << seed;
        }
    for (const Timeline::Arrow& arrow : line.arrows) {
      const Timeline::Slice &from = line.slices[at(arrow.from)], &to = line.slices[at(arrow.to)];
      ASSERT_LT(from.end, to.start);
      ASSERT_NE(line.tracks[at(from.track)].device, line.tracks[at(to.track)].device);
    }
    arrows += line.arrows.size();
    for (const Timeline::Level& level : line.levels) {
      ASSERT_GE(level.bytes, 0);
      ASSERT_LE(level.bytes, random_plan.arena_bytes[at(level.device)]) << seed;
    }
  }
  EXPECT_GT(arrows, 60u * 10);
}

}  // namespace timeline_test
}  // namespace belfry
