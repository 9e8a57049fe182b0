#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/moving_average.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace batch_norm_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr VariablePolicy kPolicies[] = {VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice,
                                        VariablePolicy::kSpread};

// Two channels: tower t's batch of two rows is {t, 10}, {t + 2, 30}; means t + 1 and 20.
Output rows_of(Tower& tower) {
  const float t = static_cast<float>(tower.index());
  return constant(tower.graph(), {t, 10, t + 2, 30}, {2, 2});
}

TEST(BatchNormLayer, NormalisesByTheTowersOwnBatch) {
  Graph graph;
  std::vector<Output> normal;
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    normal.push_back(batch_norm(tower, "bn", rows_of(tower), {.epsilon = 1e-12}));
  });
  for (const Output& y : normal) {
    const Tensor value = evaluate(y);
    const float want[] = {-1, -1, 1, 1};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(value.data<float>()[i], want[i], 1e-5);
  }
}

TEST(BatchNormLayer, KeepsOneCopyOfItsAveragesOnTheHostForEveryPolicy) {
  for (const VariablePolicy policy : kPolicies) {
    Graph graph;
    const std::vector<DeviceSpec> gpus{"/gpu:0", "/gpu:1", "/gpu:2"};
    const auto towers = replicate(graph, gpus, policy,
                                  [&](Tower& tower) { batch_norm(tower, "bn", rows_of(tower)); });
    std::vector<std::string> averages;
    for (const Variable v : graph.variables(kGlobalVariables)) {
      if (v.trainable()) continue;
      averages.emplace_back(v.name());
      EXPECT_EQ(v.device(), cpu(0)) << v.name();
      EXPECT_FALSE(v.node().variable().local);
    }
    EXPECT_THAT(averages, ElementsAre("bn/mean/EMA", "bn/variance/EMA"));
    EXPECT_EQ(graph.variables(kLocalVariables).size(),
              policy == VariablePolicy::kReplicated ? 4U : 0U);
    for (const TowerRecord& tower : towers) {
      EXPECT_EQ(tower.variables.size(), 4U);
      EXPECT_EQ(tower.variables[2].name(), "bn/mean/EMA");
      EXPECT_EQ(tower.trainables.size(), 2U);
    }
  }
}

TEST(BatchNormLayer, BuildsItsUpdatesOnTheHostInUpdateOps) {
  for (const VariablePolicy policy : kPolicies) {
    Graph graph;
    const std::vector<DeviceSpec> gpus{"/gpu:0", "/gpu:1", "/gpu:2"};
    replicate(graph, gpus, policy, [&](Tower& tower) {
      batch_norm(tower, "bn1", batch_norm(tower, "bn0", rows_of(tower)));
    });
    const std::vector<Node*> updates = graph.nodes(kUpdateOps);
    ASSERT_EQ(updates.size(), 4U);
    for (const Node* update : updates) {
      EXPECT_EQ(&update->op(), &kAssignSub);
      EXPECT_EQ(update->device(), cpu(0));
    }
    int combined = 0;
    for (std::size_t id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (!node.name().starts_with("moving_averages/")) continue;
      EXPECT_EQ(node.device(), cpu(0)) << node.describe();
      if (&node.op() != &kCombineMoments) continue;
      ++combined;
      EXPECT_EQ(node.inputs().size(), 9U);
      EXPECT_EQ(node.input(3).device(), DeviceSpec("/gpu:1"));  // mean, variance, 1, mean, ...
    }
    EXPECT_EQ(combined, 2);
  }
}

TEST(BatchNormLayer, MovesAveragesByEachTowerAloneWhereThatIsAskedFor) {
  Graph graph;
  const auto towers = replicate(
      graph, cpus(3), VariablePolicy::kSpread,
      [&](Tower& tower) {
        for (int call = 0; call < 2; ++call) {
          VariableScope scope(graph, "disc", VariableReuse::kCreateOrGet);
          batch_norm(tower, "bn", rows_of(tower), {.momentum = 0.5});
        }
      },
      MovingAverages::kOfEachTower);
  EXPECT_TRUE(graph.nodes(kUpdateOps).empty());
  for (const TowerRecord& tower : towers) {
    ASSERT_EQ(tower.updates.size(), 4U);
    Interpreter interpreter;
    interpreter.run({*tower.updates[0], *tower.updates[1], *tower.updates[2], *tower.updates[3]});
    const Tensor mean = interpreter.read(Variable(tower.updates[0]->input(0).node()));
    const auto own = static_cast<float>(tower.index + 1);  // the mean of the first channel
    EXPECT_FLOAT_EQ(mean.data<float>()[0], 0.75F * own);   // 0 -> own / 2 -> 3 * own / 4
  }
}

TEST(BatchNormLayer, KeepsTheJobAndTaskOfItsTower) {
  Graph graph;
  DeviceScope task(graph, "/job:worker/task:3");
  const std::vector<DeviceSpec> devices{"/gpu:0", "/gpu:1"};
  replicate(graph, devices, VariablePolicy::kSpread,
            [&](Tower& tower) { batch_norm(tower, "bn", rows_of(tower)); });
  for (const Node* update : graph.nodes(kUpdateOps))
    EXPECT_EQ(update->device().str(), "/job:worker/task:3/device:CPU:0");
}

TEST(BatchNormLayer, SetsColocationAside) {
  Graph graph;
  Tower tower(graph);
  Output x;
  {
    DeviceScope on(graph, "/gpu:1");
    x = rows_of(tower);
  }
  ColocateWith beside(x);
  batch_norm(tower, "bn", x);
  for (const Node* update : graph.nodes(kUpdateOps)) {
    EXPECT_EQ(update->device(), cpu(0));
    for (const Node* anchor : update->request().colocation)
      EXPECT_THAT(anchor->name(), HasSubstr("EMA"));
  }
}

TEST(BatchNormLayer, MovesItsAveragesByTheMomentsOfAllTowers) {
  for (const VariablePolicy policy : kPolicies) {
    Graph graph;
    replicate(graph, cpus(2), policy,
              [&](Tower& tower) { batch_norm(tower, "bn", rows_of(tower), {.momentum = 0.75}); });
    const std::vector<Node*> updates = graph.nodes(kUpdateOps);
    Interpreter interpreter;
    interpreter.run({*updates[0], *updates[1]});
    // All rows: 0, 2, 1, 3 and 10, 30, 10, 30; variances 1.25 and 100.
    const Tensor mean = interpreter.read(Variable(updates[0]->input(0).node()));
    EXPECT_FLOAT_EQ(mean.data<float>()[0], 0.25F * 1.5F);
    EXPECT_FLOAT_EQ(mean.data<float>()[1], 0.25F * 20);
    const Tensor variance = interpreter.read(Variable(updates[1]->input(0).node()));
    EXPECT_FLOAT_EQ(variance.data<float>()[0], 0.75F + 0.25F * 1.25F);
    EXPECT_FLOAT_EQ(variance.data<float>()[1], 0.75F + 0.25F * 100);
  }
}

// What a step makes of the average of the variance, 1 at first: 0.75 + 0.25 times what is returned.
// Tower t has `images` plus t. With `known`, the graph knows the size of the batch.
double moved_by(int towers, const Tensor& images, bool synchronised, bool known) {
  Graph graph;
  std::vector<FeedValue> feeds;
  replicate(graph, cpus(towers), VariablePolicy::kReplicated, [&](Tower& tower) {
    Tensor own(images.shape(), DType::kF32);
    for (std::size_t i = 0; i < own.data<float>().size(); ++i)
      own.mutable_data<float>()[i] = images.data<float>()[i] + static_cast<float>(tower.index());
    std::vector<std::int64_t> dims = images.shape().dims();
    dims[0] = kUnknownSize;
    const Output x =
        known ? constant(graph, own) : placeholder(graph, "x", DType::kF32, Shape(std::move(dims)));
    if (!known) feeds.push_back({x, own});
    batch_norm(tower, "bn", x, {.momentum = 0.75, .synchronised = synchronised});
  });
  const std::vector<Node*> updates = graph.nodes(kUpdateOps);
  Interpreter interpreter;
  const Fetch fetches[] = {*updates[0], *updates[1]};
  interpreter.run(fetches, feeds);
  const Tensor average = interpreter.read(Variable(updates[1]->input(0).node()));
  return (average.data<float>()[0] - 0.75) / 0.25;
}

// The values 0, 0, 2, 2 have the variance 1, times 4 / 3 as of four. Those of the other tower are
// 1, 1, 3, 3: together the variance is 1.25, times 8 / 7. TensorFlow 1.15 and PyTorch store 4 / 3.
TEST(BatchNormLayer, MovesTheVarianceOfImagesByAnUnbiasedEstimate) {
  const Tensor images({2, 2, 1, 1}, std::vector<float>{0, 0, 2, 2});
  for (const bool known : {true, false})
    for (const bool synchronised : {false, true}) {
      SCOPED_TRACE(cat(known, " ", synchronised));
      EXPECT_NEAR(moved_by(1, images, synchronised, known), 4.0 / 3, 1e-6);
      EXPECT_NEAR(moved_by(2, images, synchronised, known), 1.25 * 8 / 7, 1e-6);
    }
}

// Tower 0 has a sample of the values 0 and 2, tower 1 two samples of 4, 4, 6 and 6. The variance of
// all is 41 / 9, times 6 / 5; without tower 0 it is 1, times 4 / 3.
TEST(BatchNormLayer, CountsTheValuesOfTowersThatHaveSamples) {
  for (const bool known : {true, false})
    for (const bool first_counts : {true, false}) {
      Graph graph;
      std::vector<FeedValue> feeds;
      const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
        const Tensor own = tower.is_main() ? Tensor({1, 2, 1, 1}, std::vector<float>{0, 2})
                                           : Tensor({2, 2, 1, 1}, std::vector<float>{4, 4, 6, 6});
        const Output x = known ? constant(graph, own)
                               : placeholder(graph, "x", DType::kF32, {kUnknownSize, 2, 1, 1});
        if (!known) feeds.push_back({x, own});
        batch_norm(tower, "bn", x, {.momentum = 0});
      });
      const std::vector<std::vector<BatchMoments>> moments{towers[0].moments, towers[1].moments};
      const std::int64_t samples[] = {first_counts ? 1 : 0, 2};
      update_moving_averages(graph, moments, {.collection = "own", .samples = samples});
      const std::vector<Node*> updates = graph.nodes("own");
      Interpreter interpreter;
      const Fetch fetches[] = {*updates[0], *updates[1]};
      interpreter.run(fetches, feeds);
      EXPECT_NEAR(interpreter.read(moments[0][0].variance_average).data<float>()[0],
                  first_counts ? 41.0 / 9 * 6 / 5 : 4.0 / 3, 1e-5);
    }
}

// As TensorFlow does.
TEST(BatchNormLayer, MovesTheVarianceOfRowsAsItIs) {
  for (const bool known : {true, false})
    EXPECT_NEAR(moved_by(1, Tensor({4, 1}, std::vector<float>{0, 0, 2, 2}), false, known), 1, 1e-6);
}

TEST(BatchNormLayer, MovesTheVarianceOfOneValueAsItIs) {
  for (const bool known : {true, false})
    EXPECT_NEAR(moved_by(1, Tensor({1, 1, 1, 1}, std::vector<float>{4}), false, known), 0, 1e-6);
}

TEST(BatchNormLayer, MovesAveragesOnceMoreForEachTimeItIsApplied) {
  Graph graph;
  Tower tower(graph);
  for (int call = 0; call < 2; ++call) {
    VariableScope scope(graph, "disc", VariableReuse::kCreateOrGet);
    batch_norm(tower, "bn", constant(graph, {4, 4}, {2, 1}), {.momentum = 0.5});
  }
  const std::vector<Node*> updates = graph.nodes(kUpdateOps);
  ASSERT_EQ(updates.size(), 4U);
  Interpreter interpreter;
  interpreter.run({*updates[0], *updates[1], *updates[2], *updates[3]});
  const Tensor mean = interpreter.read(Variable(updates[0]->input(0).node()));
  EXPECT_FLOAT_EQ(mean.item<float>(), 3);  // 0 -> 2 -> 3
}

TEST(BatchNormLayer, UsesTheAveragesInPredictionTowers) {
  Graph graph;
  std::vector<Variable> averages;
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    batch_norm(tower, "bn", rows_of(tower));
    if (tower.is_main()) averages = tower.variables("bn");
  });
  const std::size_t updates = graph.nodes(kUpdateOps).size();
  Output y;
  predict_tower(graph, {.device = cpu(1)}, [&](Tower& tower) {
    y = batch_norm(tower, "bn", constant(graph, {5, 50}, {1, 2}), {.epsilon = 1e-12});
  });
  EXPECT_EQ(graph.nodes(kUpdateOps).size(), updates);
  EXPECT_EQ(y.device(), cpu(1));
  Interpreter interpreter;
  interpreter.write(averages[2], Tensor({2}, std::vector<float>{1, 20}));
  interpreter.write(averages[3], Tensor({2}, std::vector<float>{4, 100}));
  const Tensor value = interpreter.run(y);
  EXPECT_FLOAT_EQ(value.data<float>()[0], 2);
  EXPECT_FLOAT_EQ(value.data<float>()[1], 3);
}

TEST(BatchNormLayer, RefusesTowersThatNormaliseDifferently) {
  for (const VariablePolicy policy : kPolicies) {
    Graph graph;
    EXPECT_THAT(message_of([&] {
                  replicate(graph, cpus(2), policy, [&](Tower& tower) {
                    batch_norm(tower, "bn", rows_of(tower),
                               {.momentum = tower.is_main() ? 0.9 : 0.8});
                  });
                }),
                AllOf(HasSubstr("bn/mean/EMA"), HasSubstr("momentum 0.9"), HasSubstr("0.8")));
  }
}

TEST(BatchNormLayer, RefusesWrongOptions) {
  Graph graph;
  Tower tower(graph);
  const Output x = rows_of(tower);
  EXPECT_THAT(message_of([&] { batch_norm(tower, "bn", x, {.momentum = 1.5}); }),
              HasSubstr("momentum must be from 0 to 1, not 1.5"));
  EXPECT_THAT(message_of([&] { batch_norm(tower, "bn", x, {.epsilon = 0}); }),
              HasSubstr("epsilon must be positive"));
}

}  // namespace batch_norm_test
}  // namespace belfry
