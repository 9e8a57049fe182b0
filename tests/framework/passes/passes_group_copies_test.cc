// Work of hosts on small tensors of GPUs, such as batch norm's averages. It comes last in a step,
// behind one copy per memory space.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/passes/segments.h"
#include "belfry/framework/trace/timeline.h"
#include "belfry/tests/framework/run/averages_support.h"

namespace belfry {
namespace averages_test {

// The launches that copy several tensors.
std::vector<int> groups(const Plan& plan) {
  std::vector<int> found;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const PlanNode& node = plan.node(plan.launches[l].node);
    if (node.op == &kCopy && node.inputs.size() > 1) found.push_back(static_cast<int>(l));
  }
  return found;
}

std::size_t grouped(const Plan& plan) {
  std::size_t tensors = 0;
  for (const int l : groups(plan)) tensors += plan.node(plan.launches[at(l)].node).inputs.size();
  return tensors;
}

std::ptrdiff_t captured(const Plan& plan) {
  return std::ranges::count_if(cut_segments(plan), &Segment::is_graph);
}

// Copies of several tensors in steps of `Averaging`.
class GroupCopies : public Averages {
 protected:
  std::size_t grouped_by(const std::vector<Fetch>& fetches) const {
    Session on(model.graph, on_gpus(layout_));
    return grouped(*on.prepare(fetches, model.feed_types()).plan());
  }
};

TEST(GroupedCopies, StandBehindAllElseOfGpusAndWhatNeedsThemIsLast) {
  for (const Layout layout : kLayouts) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Averaging model("GPU", layout.devices());
    Session session(model.graph, on_gpus(layout));
    const Plan& plan = *model.step(session).plan();
    const std::vector<int> copies = groups(plan);
    EXPECT_EQ(copies.size(), at(layout.physical));
    EXPECT_EQ(grouped(plan), at(2 * layout.devices()));
    std::vector<std::string> last;
    for (std::size_t l = at(copies.back()) + 1; l < plan.launches.size(); ++l) {
      EXPECT_LT(plan.strands[plan.launches[l].strand].gpu, 0);
      last.emplace_back(plan.node(plan.launches[l].node).op->name);
    }
    EXPECT_EQ(std::ranges::count(last, "AssignSub"), 2);
    EXPECT_EQ(std::ranges::count(last, "AssignAdd"), 0);  // the counter needs no GPU
    // The bytes of each tensor count as if it went alone.
    EXPECT_EQ(std::ranges::count(plan.transfers, 12, &TransferRecord::bytes), 2 * layout.devices());
  }
}

TEST_F(GroupCopies, LeaveAGpuOneSegment) {
  Session& on = session();
  const Plan& plan = *model.step(on).plan();
  EXPECT_EQ(captured(plan), 1);
  EXPECT_EQ(cut_segments(plan).size(), 1u);
  model.train(on, 0, 3);  // captured for both slots of feeds
  EXPECT_EQ(gpus_.calls().gathered, 1 + FeedSlots::kCount);
  const test::StandInGpus::Calls before = gpus_.calls();
  model.train(on, 3, 4);
  const test::StandInGpus::Calls after = gpus_.calls();
  EXPECT_EQ(after.replays - before.replays, 1);
  EXPECT_EQ(after.gathered, before.gathered);
  EXPECT_EQ(after.copied - before.copied, layout_.devices()) << "the feeds alone";
}

// The copies wait for a launch in the middle of the segment, on another strand.
TEST(GroupedCopies, OfTowersThatDoNotMeetLeaveAGpuOneSegment) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  std::vector<Output> sources, results;
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, gpu(t));
    sources.push_back(fill(graph, {4}, t + 1));
    results.push_back(tanh(tanh(sources.back())));
  }
  DeviceScope on(graph, cpu(0));
  const Variable v = variable(graph, "v", {4}, {.initializer = init::zeros(), .trainable = false});
  Node& update = assign_add(v, add_n(sources));
  Session session(graph, on_gpus({1, 2}));
  CompiledStep& step = session.prepare({results[0], results[1], update});
  EXPECT_EQ(captured(*step.plan()), 1);
  EXPECT_EQ(cut_segments(*step.plan()).size(), 1u);
  for (int i = 0; i < 4; ++i) step.run();
  EXPECT_EQ(session.read(v), floats({12, 12, 12, 12}));
}

// GPUs do not wait for the host at the end. A group, or a group of groups, need not wait either.
TEST_F(GroupCopies, LetGroupsOnGpusGo) {
  {
    DeviceScope on(model.graph, gpu(1));
    Node& all = group(model.graph, {*model.forms[0]});
    DeviceScope on_other(model.graph, gpu(0));
    model.forms[0] = &group(model.graph, {all, model.losses[1].node()});
  }
  Session& on = session();
  const Plan& plan = *model.step(on).plan();
  EXPECT_EQ(plan.node(plan.find(*model.forms[0])).device(), 1);
  EXPECT_EQ(cut_segments(plan).size(), 1u);
  EXPECT_EQ(grouped(plan), 4u);
  model.train(on, 0, 4);
  EXPECT_EQ(model.values(on), expected(4));
}

TEST_F(GroupCopies, AreOfWhatNobodyWaitsFor) {
  Node& train = *model.forms[0];
  EXPECT_EQ(grouped_by({train}), 4u);
  EXPECT_EQ(grouped_by({train, model.spread}), 2u);
  EXPECT_EQ(grouped_by({train, model.spread.read()}), 2u);
  EXPECT_EQ(grouped_by({train, model.seen}), 2u);  // on a GPU
  EXPECT_EQ(grouped_by({train, model.seen, model.spread}), 0u);
}

// Only control edges put the work of the GPU behind the copies.
TEST_F(GroupCopies, AreNoneBeforeWhatAGpuDoesAfterThem) {
  DeviceScope on_gpu(model.graph, gpu(0));
  Output behind;
  {
    ControlDependencies after(model.graph, {*model.forms[0]});
    behind = identity(fill(model.graph, {3}, 1));
  }
  EXPECT_EQ(grouped_by({behind}), 0u);
}

// GPUs read these variables of the host in the next run.
TEST_F(GroupCopies, AreNoneOfGradients) {
  std::vector<Fetch> updates;
  for (int i = 0; i < 2; ++i) {
    DeviceScope on(model.graph, cpu(0));
    const Variable v = variable(model.graph, cat("v", i), {4, 3}, {.initializer = init::zeros()});
    Output gradient;
    {
      DeviceScope on_gpu(model.graph, gpu(i));
      gradient = gradients(reduce_mean(tanh(matmul(model.x[at(i)], v))), {v})[0];
    }
    updates.emplace_back(assign_sub(v, gradient * 0.1));
  }
  EXPECT_EQ(grouped_by(updates), 0u);
}

TEST_F(GroupCopies, AreOfSmallTensors) {
  const auto assigned = [&](std::int64_t elements) {
    std::vector<Fetch> updates;
    for (int i = 0; i < 2; ++i) {
      Output filled;
      {
        DeviceScope on(model.graph, gpu(i));
        filled = fill(model.graph, {elements}, 1);
      }
      DeviceScope on(model.graph, cpu(0));
      const std::string name = cat("v", elements, "_", i);
      const Variable v = variable(model.graph, name, {elements}, {.initializer = init::zeros()});
      updates.emplace_back(assign_add(v, filled));
    }
    return grouped_by(updates);
  };
  EXPECT_EQ(assigned(1 << 18), 2u);
  EXPECT_EQ(assigned((1 << 18) + 1), 0u);
}

// A trace has one arrow per tensor, from the copy to the first use on the host.
TEST_F(GroupCopies, AreTraced) {
  Session& on = session();
  Trace trace;
  model.step(on).run(model.feeds(0), {.trace = &trace});
  expect_sound(trace);
  const Plan& plan = *model.step(on).plan();
  Recording nothing;
  nothing.launches.resize(plan.launches.size());
  const Timeline line = make_timeline(plan, nothing);
  std::set<std::string> names;
  for (const Timeline::Arrow& arrow : line.arrows)
    if (arrow.from == groups(plan).back()) names.insert(plan.name(arrow.value));
  EXPECT_THAT(names,
              ::testing::ElementsAre("ReduceMean", "ReduceMean_1", "ReduceMean_3", "ReduceMean_4"));
}

TEST(GroupedCopies, OfDryRunsAreThoseOfRealOnes) {
  const Averaging model("GPU", 4);
  SessionOptions options = on_gpus({2, 2});
  options.dry_run = true;
  Session session(model.graph, options);
  const Plan& plan = *model.step(session).plan();
  EXPECT_EQ(groups(plan).size(), 2u);
  EXPECT_EQ(grouped(plan), 8u);
}

}  // namespace averages_test
}  // namespace belfry
