// Averages on /cpu:0 that moments from GPUs update, as in batch norm: their values after steps, and
// who sees them.
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/run/averages_support.h"

namespace belfry {
namespace averages_test {

TEST(AveragesOf, EachLayoutHaveTheBitsOfCpus) {
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

// Replicas on CPUs that share a storage, and are also read for another variable.
TEST(AveragesOf, SharedReplicasOfHostsHaveTheBitsOfCpus) {
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
    CompiledStep& step = session.prepare({group(graph, updates)}, {{x, {3}}});
    for (int i = 0; i < 5; ++i) {
      if (i == 3) session.write(replicas[1], floats({3, 2, 1}));
      EXPECT_EQ(session.shares_storage(replicas[1]), i < 3);
      const Tensor feed[] = {floats({0.5f * static_cast<float>(i), 1, -1})};
      step.run(feed);
    }
    results.push_back({session.read(v), session.read(replicas[0]), session.read(replicas[1])});
  }
  EXPECT_EQ(results[0], results[1]);
}

// The collective stands alone, or is fused with the updates that apply its results.
TEST(AveragesOf, CollectivesOfHostsHaveTheBitsOfCpus) {
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
      options.fuse = fuse;
      Session session(graph, options);
      CompiledStep& step = session.prepare({group(graph, updates)}, {{x[0], {3}}, {x[1], {3}}});
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

TEST_F(Averages, AreReadByOtherSteps) {
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

TEST_F(Averages, AreReadByStepsThatShareTheSession) {
  Session& on = session();
  CompiledStep& twice = on.prepare({model.twice}, {}, {.locks = LockDuration::kEachVariable});
  for (int i = 0; i < 4; ++i) {
    model.train(on, i, i + 1);
    twice.run();
    const Tensor mean = expected(i + 1)[0];
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_EQ(twice.fetched(0).data<float>()[k], 2 * mean.data<float>()[k]) << i;
  }
}

TEST_F(Averages, AreKeptByCheckpoints) {
  MemoryFileSystem files("/disk");
  Session& on = session();
  model.train(on, 0, 3);
  save_checkpoint(on, "/disk/run", JsonValue::object(), files);
  model.train(on, 3, 5);
  restore_checkpoint(on, "/disk/run", files);
  EXPECT_EQ(model.values(on), expected(3));
  model.train(on, 3, 5);
  EXPECT_EQ(model.values(on), expected(5));
}

// Both forms update the same averages.
TEST_F(Averages, OfTwoFormsHaveTheBitsOfCpus) {
  Session& on = session();
  const Averaging reference("CPU", 2);
  Session other(reference.graph, cpus(2));
  for (const std::size_t form : {0, 0, 1, 0, 1, 1, 1, 0, 0}) {
    model.step(on, form).run(model.feeds(static_cast<int>(form)));
    reference.step(other, form).run(reference.feeds(static_cast<int>(form)));
  }
  EXPECT_EQ(model.values(on), reference.values(other));
}

// A launch fails on a GPU, in the first run, in the one that captures, or in a replay.
TEST_F(Averages, AreNotMovedByAStepThatFails) {
  StreamFault fault;
  Session& on = session([&](Plan& plan) { fault.put_into(plan); });
  const std::vector<Tensor> first = model.values(on);
  const auto restore = [&](const std::vector<Tensor>& values) {
    std::vector<VariableBytes> all;
    for (std::size_t i = 0; i < values.size(); ++i)
      all.push_back({model.variables()[i], {values[i].raw(), values[i].bytes()}});
    on.restore(all, 0);
  };
  std::vector<std::vector<Tensor>> after;
  for (int steps = 0; steps < 4; ++steps) after.push_back(expected(steps));
  const Plan& plan = *model.step(on).plan();
  for (int l = 0; l < std::ssize(plan.launches); ++l) {
    if (!plan.launches[at(l)].enqueue) continue;
    for (const int healthy : {1, 2, 3}) {
      restore(first);
      model.train(on, 0, healthy);
      fault.broken = l;
      EXPECT_THROW(model.train(on, healthy, healthy + 1), DeviceError);
      fault.broken = -1;
      gpus_.mend();
      // The averages keep the changes of earlier steps, and get none of the failed one.
      const std::vector<Tensor>& wanted = after[at(healthy)];
      EXPECT_EQ(on.read(model.mean), wanted[0]) << "launch " << l << " after " << healthy;
      EXPECT_EQ(on.read(model.spread), wanted[1]) << "launch " << l << " after " << healthy;
      restore(first);
      EXPECT_EQ(model.values(on), first);
      model.train(on, 0, 3);
      ASSERT_EQ(model.values(on), after[3]) << "launch " << l << " after " << healthy;
    }
  }
}

}  // namespace averages_test
}  // namespace belfry
