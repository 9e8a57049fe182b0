// Replicas in one storage.
#include <atomic>
#include <chrono>
#include <thread>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/tests/framework/run/replicas_test_support.h"

namespace belfry {
namespace session_sharing_test {

constexpr int kTowers = 3;

std::vector<Tensor> gradients_of(float first) {
  std::vector<Tensor> all;
  for (int t = 0; t < kTowers; ++t)
    all.push_back(floats({first + static_cast<float>(t), 1, static_cast<float>(-t)}));
  return all;
}

class SharingTest : public ::testing::Test {
 protected:
  CompiledStep& prepared(Session& session) {
    return session.prepare(std::vector<Fetch>{*made.step}, made.feed_types());
  }
  // The values of "w" after `steps` steps, without sharing and fusions.
  std::vector<float> expected(int steps) {
    Session session(made.graph, made.options(false, false));
    CompiledStep& step = prepared(session);
    for (int i = 0; i < steps; ++i) step.run(gradients_of(1));
    EXPECT_FALSE(session.shares_storage(made.w[1]));
    return values(session, made.w[0]);
  }
  static std::vector<float> values(Session& session, Variable variable) {
    const Tensor value = session.read(variable);
    const auto data = value.data<float>();
    return {data.begin(), data.end()};
  }
  static int shared(Session& session, const std::vector<Variable>& variables) {
    return static_cast<int>(
        std::ranges::count_if(variables, [&](Variable v) { return session.shares_storage(v); }));
  }

  Replicas made{kTowers};
};

TEST_F(SharingTest, ReplicasWithEqualWritesLieInOneStorage) {
  for (const bool fuse : {false, true}) {
    Session session(made.graph, made.options(fuse, true));
    CompiledStep& step = prepared(session);
    EXPECT_EQ(shared(session, made.w), kTowers - 1);
    EXPECT_EQ(shared(session, made.m), kTowers - 1);
    EXPECT_FALSE(session.shares_storage(made.w[0]));
    for (int i = 0; i < 3; ++i) step.run(gradients_of(1));
    for (const Variable w : made.w) EXPECT_EQ(values(session, w), expected(3));
  }
}

TEST_F(SharingTest, BytesCountOnceOnTheOwner) {
  Session session(made.graph, made.options(true, true));
  prepared(session);
  const std::vector<DeviceUse> use = session.device_use();
  EXPECT_EQ(use[0].variable_bytes, 2 * 12);
  EXPECT_EQ(use[1].variable_bytes, 0);
  EXPECT_EQ(use[1].variables, 2);
  EXPECT_EQ(session.placement(made.w[1]),
            DeviceSpec("/job:localhost/replica:0/task:0/device:CPU:1"));
}

TEST_F(SharingTest, ReadsOfSharersAreNoTransfers) {
  Output y;
  {
    DeviceScope on(made.graph, cpu(2));
    y = made.w[2] * 2;
  }
  Session session(made.graph, made.options(true, true));
  CompiledStep& step = session.prepare(std::vector<Fetch>{*made.step, y}, made.feed_types());
  for (const TransferRecord& record : step.plan()->transfers)
    EXPECT_THAT(record.name, ::testing::AnyOf(::testing::HasSubstr("gradient"),
                                              ::testing::HasSubstr("AllReduce")));
  step.run(gradients_of(1));
  EXPECT_EQ(step.fetched(1).data<float>()[0], 2);
}

TEST_F(SharingTest, AWriteFromOutsideTakesThemApartFirst) {
  Session session(made.graph, made.options(true, true));
  CompiledStep& step = prepared(session);
  step.run(gradients_of(1));
  const std::vector<float> before = values(session, made.w[0]);
  session.write(made.w[1], floats({10, 10, 10}));
  EXPECT_EQ(shared(session, made.w), 0);
  EXPECT_EQ(shared(session, made.m), 0) << "their writes differ now, as they belong to w";
  EXPECT_EQ(values(session, made.w[0]), before);
  EXPECT_EQ(values(session, made.w[2]), before);
  EXPECT_EQ(values(session, made.w[1]), (std::vector<float>{10, 10, 10}));
  EXPECT_EQ(session.device_use()[1].variable_bytes, 2 * 12);
  step.run(gradients_of(1));
  EXPECT_EQ(values(session, made.w[0]), expected(2));
  EXPECT_EQ(values(session, made.w[2]), expected(2));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_FLOAT_EQ(values(session, made.w[1])[i], 10 + expected(2)[i] - before[i]);
}

TEST_F(SharingTest, AWriteTakesThemApartBesideRunsOfAnotherThread) {
  const std::vector<Fetch> reads{made.w[0], made.w[1]};
  for (int round = 0; round < 10; ++round) {
    Session session(made.graph, made.options(true, true));
    prepared(session);
    session.run(reads);
    ASSERT_EQ(shared(session, made.w), kTowers - 1);
    std::atomic<int> runs{0};
    std::jthread reader([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::vector<Tensor> read = session.run(reads);
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(read[0].data<float>()[i], 1);
          EXPECT_EQ(read[1].data<float>()[i], read[1].data<float>()[0]);
        }
        ++runs;
      }
    });
    while (runs < 3) std::this_thread::yield();
    session.write(made.w[1], floats({10, 10, 10}));
    for (const int before = runs; runs < before + 3;) std::this_thread::yield();
    reader.request_stop();
    reader.join();
    EXPECT_EQ(values(session, made.w[1]), (std::vector<float>{10, 10, 10}));
  }
}

TEST_F(SharingTest, APlanThatWritesOneAloneTakesThemApart) {
  Node& alone = assign_add(made.w[1], made.w[1]);
  Session session(made.graph, made.options(true, true));
  CompiledStep& step = prepared(session);
  const Tensor& fetched = session.prepare({made.w[0]}).fetched(0);
  session.prepare({made.w[0]}).run();
  EXPECT_EQ(shared(session, made.w), kTowers - 1);
  session.run({alone});
  EXPECT_EQ(shared(session, made.w), 0);
  EXPECT_EQ(fetched.data<float>()[0], 1) << "what was fetched stays";
  EXPECT_EQ(values(session, made.w[0])[0], 1);
  EXPECT_EQ(values(session, made.w[1])[0], 2);
  step.run(gradients_of(1));
  EXPECT_EQ(values(session, made.w[0]), expected(1));
  EXPECT_EQ(values(session, made.w[1])[0], 1 + expected(1)[0]);
}

TEST_F(SharingTest, OneUpdateOfSeveralTakesThemApart) {
  Session session(made.graph, made.options(true, true));
  prepared(session);
  session.prepare(std::vector<Fetch>{*made.updates[0]}, made.feed_types()).run(gradients_of(1));
  EXPECT_EQ(shared(session, made.w), 0);
  EXPECT_EQ(values(session, made.w[0]), expected(1));
  EXPECT_EQ(values(session, made.w[1]), (std::vector<float>{1, 1, 1}));
}

TEST_F(SharingTest, UpdatesByDifferentGradientsKeepReplicasApart) {
  Graph& graph = made.graph;
  std::vector<Node*> updates;
  for (std::size_t t = 0; t < kTowers; ++t)
    updates.push_back(&assign_add(made.w[t], made.gradients[t]));
  Session session(graph, made.options(true, true));
  CompiledStep& step =
      session.prepare(std::vector<Fetch>{group(graph, updates)}, made.feed_types());
  EXPECT_EQ(shared(session, made.w), 0);
  step.run(gradients_of(1));
  for (std::size_t t = 0; t < kTowers; ++t)
    EXPECT_EQ(values(session, made.w[t])[0], 2 + static_cast<float>(t));
}

TEST_F(SharingTest, EqualConstantsAreEqualWritesAndOthersAreNot) {
  Graph& graph = made.graph;
  const auto session_after = [&](std::vector<float> deltas) {
    std::vector<Node*> updates;
    for (std::size_t t = 0; t < kTowers; ++t)
      updates.push_back(&assign_add(made.w[t], constant(graph, floats({deltas[t], 0, 0}))));
    Session session(graph, made.options(true, true));
    session.run({group(graph, updates)});
    EXPECT_EQ(values(session, made.w[1])[0], 1 + deltas[1]);
    return shared(session, made.w);
  };
  EXPECT_EQ(session_after({2, 2, 2}), kTowers - 1);
  EXPECT_EQ(session_after({2, 3, 2}), 0);
}

TEST_F(SharingTest, RandomWritesAreNeverEqual) {
  Graph& graph = made.graph;
  std::vector<Node*> updates;
  for (std::size_t t = 0; t < kTowers; ++t)
    updates.push_back(&assign(made.w[t], random_uniform(graph, {3})));
  Session session(graph, made.options(true, true));
  session.run({group(graph, updates)});
  EXPECT_EQ(shared(session, made.w), 0);
}

TEST_F(SharingTest, RestoringAllAlikeKeepsThemTogether) {
  Session session(made.graph, made.options(true, true));
  CompiledStep& step = prepared(session);
  const Tensor fresh = floats({4, 5, 6}), other = floats({7, 8, 9});
  const auto bytes = [](const Tensor& tensor) { return std::span(tensor.raw(), tensor.bytes()); };
  std::vector<VariableBytes> all;
  for (const Variable w : made.w) all.push_back({w, bytes(fresh)});
  session.restore(all, 3);
  EXPECT_EQ(shared(session, made.w), kTowers - 1);
  EXPECT_EQ(values(session, made.w[2]), (std::vector<float>{4, 5, 6}));
  all[2].bytes = bytes(other);
  session.restore(all, 3);
  EXPECT_EQ(shared(session, made.w), 0);
  EXPECT_EQ(values(session, made.w[1]), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(values(session, made.w[2]), (std::vector<float>{7, 8, 9}));
  step.run(gradients_of(1));
  EXPECT_EQ(values(session, made.w[2])[0] - values(session, made.w[0])[0], 3);
}

TEST_F(SharingTest, AReadAfterTheUpdateOfAnotherTowerKeepsThemApart) {
  Output early;
  {
    ControlDependencies after(made.graph, {made.updates[0]});
    early = made.w[1].read();  // no path leads here from the update of w[1], so it has the value
                               // from before the step
  }
  Session session(made.graph, made.options(true, true));
  CompiledStep& step = session.prepare(std::vector<Fetch>{*made.step, early}, made.feed_types());
  EXPECT_EQ(shared(session, made.w), 0);
  step.run(gradients_of(1));
  EXPECT_EQ(step.fetched(1).data<float>()[0], 1);
}

// The kernel takes a while.
KernelRun slow_kernel(KernelPlan&) {
  return [](const KernelPointers& p) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::int64_t i = p.begin(); i < p.end(); ++i) p.output<float>()[i] = p.input<float>(0)[i];
  };
}
const Op kSlowTest{.name = "SlowTest",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = "it is for tests",
                   .reference = slow_kernel};

TEST_F(SharingTest, TheWriteWaitsForTheReadersOfEveryTower) {
  std::vector<Fetch> fetches{*made.step};
  for (std::size_t t = 0; t < kTowers; ++t) {
    DeviceScope on(made.graph, cpu(static_cast<int>(t)));
    const Output delayed = made.graph.add(kSlowTest, {made.w[t]}).output();
    fetches.emplace_back(delayed * 3);
  }
  for (const bool fuse : {false, true})
    for (const int threads : {1, 2}) {
      Session session(made.graph, made.options(fuse, true, threads));
      CompiledStep& step = session.prepare(fetches, made.feed_types());
      EXPECT_EQ(shared(session, made.w), kTowers - 1);
      for (int i = 0; i < 3; ++i) {
        const float before = values(session, made.w[0])[0];
        step.run(gradients_of(1));
        for (std::size_t t = 0; t < kTowers; ++t)
          EXPECT_EQ(step.fetched(1 + t).data<float>()[0], 3 * before) << t;
      }
    }
}

TEST_F(SharingTest, AMemoryLimitThatPrivateReplicasWouldExceedRefusesTheWrite) {
  SessionOptions options = made.options(true, true);
  options.memory_limit = {{"cpu:1", 20}};
  Session session(made.graph, options);
  CompiledStep& step = prepared(session);
  const Tensor value = floats({10, 10, 10});
  EXPECT_THAT(message_of<OutOfMemory>([&] { session.write(made.w[1], value); }),
              ::testing::HasSubstr("CPU:1"));
  EXPECT_EQ(shared(session, made.w), kTowers - 1);
  step.run(gradients_of(1));
  EXPECT_EQ(values(session, made.w[1]), expected(1));
}

TEST_F(SharingTest, ReplicasThatArriveLaterAreApart) {
  Session session(made.graph, made.options(true, true));
  session.read(made.w[0]);
  prepared(session).run(gradients_of(1));
  EXPECT_FALSE(session.shares_storage(made.w[0]));
  EXPECT_EQ(values(session, made.w[0]), expected(1));
  EXPECT_EQ(values(session, made.w[1]), expected(1));
}

}  // namespace session_sharing_test
}  // namespace belfry
