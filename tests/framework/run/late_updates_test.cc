// Averages on /cpu:0 that moments of GPUs move are updated beside the next step, and nobody sees
// that.
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/run/segments.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/run/late_updates_support.h"

namespace belfry {
namespace late_updates_test {

using ::testing::IsEmpty;

TEST(LateUpdatesOf, EachLayoutGiveTheBitsOfCpus) {
  for (const Layout layout : kLayouts) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Averaging model("GPU", layout.devices());
    Session each(model.graph, on_gpus(layout)), last(model.graph, on_gpus(layout));
    for (int i = 0; i < 5; ++i) {
      model.train(each, i, i + 1);
      EXPECT_EQ(model.values(each), on_cpus(layout.devices(), i + 1)) << "after step " << i;
    }
    model.train(last, 0, 5);
    EXPECT_EQ(model.values(last), on_cpus(layout.devices(), 5)) << layout.devices();
    EXPECT_EQ(gpus.calls().drains, 0);
  }
}

// What a plan makes late of `Averaging`, and how it stands in the order.
TEST_F(LateUpdates, StandBeforeWhatWaitsForGpusAndTheirCopiesBehindAllElse) {
  for (const Layout layout : kLayouts) {
    const test::StandInGpus gpus(layout.physical);
    const test::UseGpus use(gpus);
    const Averaging towers("GPU", layout.devices());
    Session session(towers.graph, on_gpus(layout));
    const Plan& plan = towers.step(session).plan();
    const std::vector<std::string> late = late_ops(plan);
    EXPECT_EQ(std::ranges::count(late, "AssignSub"), 2);
    EXPECT_EQ(std::ranges::count(late, "AssignAdd"), 0);  // of no GPU
    std::size_t copies = 0, inputs = 0;
    bool waited = false;
    for (std::size_t l = 0; l < plan.launches.size(); ++l) {
      const Launch& launch = plan.launches[l];
      const PlanNode& node = plan.node(launch.node);
      const bool on_host = plan.lanes[at(launch.lane)].gpu < 0;
      for (const Wait& wait : launch.waits) waited |= on_host && plan.lanes[at(wait.lane)].gpu >= 0;
      EXPECT_FALSE(node.late && waited);
      if (node.op != &kCopyToHost) continue;
      ++copies;
      inputs += node.inputs.size() / 2;
      EXPECT_GE(l + at(layout.physical), plan.launches.size());
    }
    EXPECT_EQ(copies, at(layout.physical));
    EXPECT_EQ(inputs, at(2 * layout.devices()));
    // The bytes of each tensor count as before.
    EXPECT_EQ(std::ranges::count_if(plan.transfers,
                                    [](const TransferRecord& t) { return t.bytes == 12; }),
              2 * layout.devices());
  }
}

TEST_F(LateUpdates, KeepWhatTheyReadBesideAllThatRunsUse) {
  const Plan& plan = model.step(session()).plan();
  std::map<std::int64_t, std::int64_t> kept;  // ends by offset
  std::int64_t arena = 0;
  for (const BufferRecord& record : plan.buffers) {
    if (record.place == Place::kArena && record.device == 0)
      arena = std::max(arena, record.offset + record.bytes);
    if (record.place != Place::kLasting) continue;
    EXPECT_TRUE(kept.emplace(record.offset, record.offset + record.bytes).second);
  }
  EXPECT_EQ(kept.size(), 4u);
  for (const auto& [begin, end] : kept) {
    EXPECT_GE(begin, arena);
    EXPECT_LE(end, plan.arena_bytes[0]);
    arena = end;
  }
}

TEST_F(LateUpdates, LeaveAGpuOneSegment) {
  Session& on = session();
  const Plan& plan = model.step(on).plan();
  const auto segments = cut_segments(plan, deal_lanes(plan, 1));
  EXPECT_EQ(std::ranges::count_if(segments, &Segment::captured), 1);
  EXPECT_EQ(segments.size(), 2u);  // and the copies
  model.train(on, 0, 3);           // captured for both slots of feeds
  const test::StandInGpus::Calls before = gpus_.calls();
  model.train(on, 3, 4);
  const test::StandInGpus::Calls after = gpus_.calls();
  EXPECT_EQ(after.replays - before.replays, 1);
  EXPECT_EQ(after.gathered - before.gathered, 1);
  EXPECT_EQ(after.copied - before.copied, layout_.devices()) << "the feeds alone";
}

// Though they wait for what is in the middle of it, on another lane.
TEST(LateUpdatesOf, TowersThatDoNotMeetLeaveAGpuOneSegment) {
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
  Step& step = session.prepare({results[0], results[1], update});
  const auto segments = cut_segments(step.plan(), deal_lanes(step.plan(), 1));
  EXPECT_EQ(std::ranges::count_if(segments, &Segment::captured), 1);
  EXPECT_EQ(segments.size(), 2u);
  for (int i = 0; i < 4; ++i) step.run();
  EXPECT_EQ(session.read(v), floats({12, 12, 12, 12}));
}

TEST_F(LateUpdates, AreNoneWhereSomethingElseLooks) {
  const auto late_writes = [&](std::vector<Fetch> fetches) {
    fetches.emplace_back(*model.forms[0]);
    Session on(model.graph, on_gpus(layout_));
    return std::ranges::count(late_ops(on.prepare(fetches, model.feed_types()).plan()),
                              "AssignSub");
  };
  EXPECT_EQ(late_writes({}), 2);
  EXPECT_EQ(late_writes({model.spread}), 1);
  EXPECT_EQ(late_writes({model.spread.read()}), 1);
  EXPECT_EQ(late_writes({model.seen}), 1);
  EXPECT_EQ(late_writes({model.seen, model.spread}), 0);
}

TEST_F(LateUpdates, AreNoneOfTheStepsNumberOrOfLargeTensorsOrVariables) {
  const auto late = [&](const std::function<Output()>& moved) {
    DeviceScope on(model.graph, cpu(0));
    const Output value = moved();
    const Variable v = variable(model.graph, cat("v", model.graph.size()), value.shape(),
                                {.initializer = init::zeros(), .trainable = false});
    Session session(model.graph, on_gpus(layout_));
    return late_ops(
        session.prepare(std::vector<Fetch>{assign_add(v, value)}, model.feed_types()).plan());
  };
  const auto on_gpu = [&](const auto& f) {
    DeviceScope on(model.graph, gpu(0));
    return f();
  };
  const Output y = on_gpu([&] { return tanh(model.x[0]); });
  const Output large = on_gpu([&] { return fill(model.graph, {1 << 20}, 1); });
  EXPECT_EQ(late([&] { return y + y; }).size(), 2u);
  EXPECT_THAT(late([&] { return large + large; }), IsEmpty());
  EXPECT_THAT(late([&] { return y + random_uniform(model.graph, {5, 4}, 0, 1); }), IsEmpty());
  EXPECT_THAT(late([&] { return y + model.x[1]; }), IsEmpty());  // fed
  EXPECT_THAT(late([&] { return model.w[0] * 2; }), IsEmpty());
  EXPECT_THAT(late([&] { return constant(model.graph, {1, 2}, {2}) * 2; }), IsEmpty());
}

// Replicas on CPUs that are shared, and are read for another variable, too.
TEST(LateUpdatesOf, SharedReplicasOfHostsGiveTheBitsOfCpus) {
  std::vector<std::vector<Tensor>> results;
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const DeviceSpec& source : {cpu(0), gpu(0)}) {
    Graph graph;
    std::vector<Variable> replicas;
    std::vector<Node*> updates;
    Output x, y;
    {
      DeviceScope on(graph, source);
      x = placeholder(graph, "x", DType::kF32, {3});
      y = tanh(x);
    }
    for (int i = 0; i < 2; ++i) {
      DeviceScope on(graph, cpu(i));
      VariableOptions options{.initializer = init::ones(), .trainable = false};
      if (i > 0) options.copy_of = &replicas[0].node();
      replicas.push_back(variable(graph, cat("m", i), {3}, options));
    }
    DeviceScope on(graph, cpu(1));
    const Variable v = variable(graph, "v", {3}, {.initializer = init::ones(), .trainable = false});
    updates.push_back(&assign_add(v, replicas[1] * y));
    for (int i = 0; i < 2; ++i) {
      DeviceScope own(graph, cpu(i));
      updates.push_back(&assign_sub(replicas[at(i)], y * 0.5));
    }
    Session session(graph, on_gpus({1, 1}, 2));
    Step& step = session.prepare({group(graph, updates)}, {{x, {3}}});
    for (int i = 0; i < 5; ++i) {
      if (i == 3) session.write(replicas[1], floats({3, 2, 1}));
      const auto writes = std::ranges::count_if(
          step.plan().nodes, [](const PlanNode& n) { return n.late && n.writes() > 0; });
      EXPECT_EQ(session.shared(replicas[1]), i < 3);
      EXPECT_EQ(writes, source.is_gpu() ? (i < 3 ? 2 : 3) : 0);
      const Tensor feed[] = {floats({0.5f * static_cast<float>(i), 1, -1})};
      step.run(feed);
    }
    results.push_back({session.read(v), session.read(replicas[0]), session.read(replicas[1])});
  }
  EXPECT_EQ(results[0], results[1]);
}

// Alone, and fused with the updates by its results.
TEST(LateUpdatesOf, CollectivesOfHostsGiveTheBitsOfCpus) {
  for (const bool fuse : {false, true}) {
    std::vector<std::vector<Tensor>> results;
    const test::StandInGpus gpus(2);
    const test::UseGpus use(gpus);
    for (const char* type : {"CPU", "GPU"}) {
      Graph graph;
      std::vector<Output> x, y;
      std::vector<Variable> variables;
      std::vector<Node*> updates;
      for (int i = 0; i < 2; ++i) {
        {
          DeviceScope on(graph, DeviceSpec::local(type, i));
          x.push_back(placeholder(graph, cat("x", i), DType::kF32, {3}));
          y.push_back(tanh(x.back()));
        }
        DeviceScope on(graph, cpu(i));
        y.back() = y.back() * 0.5;
      }
      const std::vector<Output> sums = all_reduce(y);
      for (int i = 0; i < 2; ++i) {
        DeviceScope on(graph, cpu(i));
        const auto make = [&](const char* name) {
          variables.push_back(variable(graph, cat(name, i), {3}, {.trainable = false}));
          return variables.back();
        };
        const Variable w = make("w"), slot = make("slot");
        updates.push_back(&momentum_update(w, slot, sums[at(i)], constant(graph, 0.1)));
      }
      SessionOptions options = on_gpus({2, 1}, 2);
      options.fuse_updates = fuse;
      Session session(graph, options);
      Step& step = session.prepare({group(graph, updates)}, {{x[0], {3}}, {x[1], {3}}});
      const auto collectives = std::ranges::count_if(
          step.plan().nodes, [](const PlanNode& n) { return n.late && n.participants() > 0; });
      EXPECT_EQ(collectives, type[0] == 'G' ? 1 : 0);
      for (int i = 0; i < 4; ++i) {
        const auto number = static_cast<float>(i);
        const Tensor feeds[] = {floats({number, 1, -1}), floats({2, -number, 0.5f})};
        step.run(feeds);
      }
      std::vector<Tensor> values;
      for (const Variable v : variables) values.push_back(session.read(v));
      results.push_back(values);
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(LateUpdatesOf, PlansWithoutGpusAreNone) {
  const Averaging model("CPU", 2);
  Session session(model.graph, cpus(2));
  const Plan& plan = model.step(session).plan();
  EXPECT_THAT(late_ops(plan), IsEmpty());
  EXPECT_EQ(planned(plan, kCopyToHost), -1);
  EXPECT_EQ(planned(plan, kHeld), -1);
}

TEST_F(LateUpdates, AreDoneBeforeOtherStepsReadThem) {
  Session& on = session();
  const Averaging reference("CPU", 2);
  Session other(reference.graph, cpus(2));
  for (int i = 0; i < 4; ++i) {
    model.train(on, i, i + 1);
    reference.train(other, i, i + 1);
    const std::vector<Tensor> feeds = model.feeds(7);
    const auto seen = [&](Session& session, const Averaging& of) {
      return session.run({of.seen}, {{of.x[0], feeds[0]}});
    };
    EXPECT_EQ(seen(on, model), seen(other, reference)) << i;
  }
}

TEST_F(LateUpdates, AreDoneBeforeStepsThatShareTheSessionReadThem) {
  Session& on = session();
  Step& twice = on.prepare({model.twice}, {}, {.locks = Locks::kEachVariable});
  for (int i = 0; i < 4; ++i) {
    model.train(on, i, i + 1);
    twice.run();
    const Tensor mean = expected(i + 1)[0];
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_EQ(twice.fetched(0).data<float>()[k], 2 * mean.data<float>()[k]) << i;
  }
}

TEST_F(LateUpdates, AreDoneBeforeACheckpointIsSaved) {
  MemoryFileSystem files("/disk");
  Session& on = session();
  model.train(on, 0, 3);
  save_checkpoint(on, "/disk/run", Json::object(), files);
  model.train(on, 3, 5);
  restore_checkpoint(on, "/disk/run", files);
  EXPECT_EQ(model.values(on), expected(3));
  model.train(on, 3, 5);
  EXPECT_EQ(model.values(on), expected(5));
}

TEST_F(LateUpdates, AreNotDoneOnTopOfWhatIsRestored) {
  Session& on = session();
  model.train(on, 0, 2);
  const std::vector<Tensor> early = model.values(on);
  model.train(on, 2, 4);
  on.restore(as_bytes(early), 2);
  EXPECT_EQ(model.values(on), early);
  model.train(on, 2, 4);
  EXPECT_EQ(model.values(on), expected(4));
}

// What is not restored is as after the last step.
TEST_F(LateUpdates, AreDoneBeforeOthersAreRestored) {
  Session& on = session();
  const std::vector<Tensor> first = model.values(on);
  model.train(on, 0, 3);
  const std::vector<VariableBytes> alone{as_bytes(first)[0]};
  on.restore(alone, 3);
  std::vector<Tensor> wanted = expected(3);
  wanted[0] = first[0];
  EXPECT_EQ(model.values(on), wanted);
}

TEST_F(LateUpdates, AreNotDoneOnTopOfWhatIsWritten) {
  Session& on = session();
  model.train(on, 0, 3);
  on.write(model.mean, floats({7, 8, 9}));
  EXPECT_EQ(on.read(model.mean), floats({7, 8, 9}));
  EXPECT_EQ(on.read(model.spread), expected(3)[1]);
}

TEST_F(LateUpdates, AreDoneBeforeCopiesOfTheirVariablesAreMade) {
  Session& on = session();
  model.train(on, 0, 3);
  DeviceScope scope(model.graph, cpu(0));
  const Variable copy =
      variable(model.graph, "copy", {3},
               {.initializer = init::ones(), .trainable = false, .copy_of = &model.mean.node()});
  EXPECT_EQ(on.read(copy), expected(3)[0]);
}

TEST_F(LateUpdates, AreDoneBeforeAnotherPlanReplacesTheirs) {
  Session& on = session();
  const Averaging reference("CPU", 2);
  Session other(reference.graph, cpus(2));
  const Tensor value({4, 3}, std::vector<float>(12, 0.25f));
  model.train(on, 0, 3);
  reference.train(other, 0, 3);
  EXPECT_TRUE(on.shared(model.w[1]));
  on.write(model.w[1], value);
  EXPECT_FALSE(on.shared(model.w[1]));
  other.write(reference.w[1], value);
  EXPECT_EQ(model.values(on), reference.values(other));
  model.train(on, 3, 6);
  reference.train(other, 3, 6);
  EXPECT_EQ(model.values(on), reference.values(other));
}

// Both forms move the same averages.
TEST_F(LateUpdates, OfTwoFormsAreDoneInTheOrderOfTheirSteps) {
  Session& on = session();
  const Averaging reference("CPU", 2);
  Session other(reference.graph, cpus(2));
  for (const std::size_t form : {0, 0, 1, 0, 1, 1, 1, 0, 0}) {
    model.step(on, form).run(model.feeds(static_cast<int>(form)));
    reference.step(other, form).run(reference.feeds(static_cast<int>(form)));
  }
  EXPECT_EQ(model.values(on), reference.values(other));
}

// Steps [0, 6) of the two forms in turn, which run() compiles.
void run_in_turn(const Averaging& model, Session& session) {
  for (int i = 0; i < 6; ++i) {
    std::vector<Fetch> fetches(model.losses.begin(), model.losses.end());
    fetches.emplace_back(*model.forms[at(i % 2)]);
    const std::vector<Tensor> values = model.feeds(i);
    std::vector<Feed> feeds;
    for (std::size_t t = 0; t < values.size(); ++t) feeds.push_back({model.x[t], values[t]});
    session.run(fetches, feeds);
  }
}

TEST_F(LateUpdates, OfAStepThatIsDroppedAreDoneBefore) {
  const Averaging on_hosts("CPU", layout_.devices());
  Session hosts(on_hosts.graph, cpus(layout_.devices()));
  run_in_turn(on_hosts, hosts);
  SessionOptions options = on_gpus(layout_);
  int compiled = 0;
  options.plan_hook = [&](Plan& plan) { compiled += plan.writes ? 1 : 0; };
  options.kept_steps = 1;
  Session gpus(model.graph, options);
  run_in_turn(model, gpus);
  EXPECT_EQ(compiled, 6) << "each took the other's place";
  EXPECT_EQ(model.values(gpus), on_hosts.values(hosts));
}

}  // namespace late_updates_test
}  // namespace belfry
