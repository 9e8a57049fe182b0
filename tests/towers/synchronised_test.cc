// Batch norm with statistics over all towers' batches.
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace synchronised_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kRows = 24;

// Means are far from 0, so that E[x^2] - E[x]^2 would lose digits.
Tensor samples() {
  Tensor x(Shape{kRows, 3}, DType::kF64);
  double i = 0;
  for (double& value : x.mutable_data<double>()) value = 1000 + std::sin(7 * i) + i / 50, ++i;
  return x;
}

Output model(Tower& tower, Output x) {
  Output h = batch_norm(tower, "bn0", x, {.synchronised = true});
  h = tanh(dense(tower, "fc0", h, {.units = 4}));
  h = batch_norm(tower, "bn1", h, {.momentum = 0.75, .synchronised = true});
  tower.output("normal", h);
  return reduce_mean(square(dense(tower, "fc1", h, {.units = 1}) - 1.0));
}

// The model over batches of `rows[t]` samples each.
struct Built {
  Built(const std::vector<std::int64_t>& rows, VariablePolicy policy) {
    std::int64_t begin = 0;
    towers = replicate(graph, cpus(static_cast<int>(rows.size())), policy, [&](Tower& tower) {
      const std::int64_t count = rows[static_cast<std::size_t>(tower.index())];
      const Output all = constant(tower.graph(), samples());
      tower.loss(model(tower, slice(all, {begin, 0}, {count, 3})));
      begin += count;
    });
    std::vector<Output> shares;
    for (std::size_t t = 0; t < rows.size(); ++t)
      shares.push_back(towers[t].loss * (static_cast<double>(rows[t]) / kRows));
    loss = add_n(shares);
    for (const TowerRecord& tower : towers) {
      const std::vector<Output> row = gradients(loss, tower.trainables);
      for (std::size_t v = 0; v < row.size(); ++v) {
        if (gradient.size() <= v)
          gradient.push_back(row[v]);
        else if (policy == VariablePolicy::kReplicated)
          gradient[v] = gradient[v] + row[v];
      }
    }
    session = std::make_unique<Session>(
        graph, SessionOptions{.device_count = {{"CPU", static_cast<int>(rows.size())}},
                              .threads = 2,
                              .all_workers = true});
  }

  Graph graph;
  std::vector<TowerRecord> towers;
  Output loss;
  std::vector<Output> gradient;  // of each variable, over all towers
  std::unique_ptr<Session> session;
};

std::vector<double> all_values(const std::vector<Tensor>& tensors) {
  std::vector<double> result;
  for (const Tensor& tensor : tensors)
    result.insert(result.end(), tensor.data<double>().begin(), tensor.data<double>().end());
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], bound * (1 + std::abs(want[i]))) << i;
}

void expect_like_one_tower(const std::vector<std::int64_t>& rows, VariablePolicy policy) {
  Built one({kRows}, VariablePolicy::kOnOneDevice), many(rows, policy);
  const auto run = [](Built& built) {
    std::vector<Fetch> fetches;
    for (const TowerRecord& tower : built.towers) fetches.emplace_back(tower.outputs[0].value);
    fetches.emplace_back(built.loss);
    for (const Output& g : built.gradient) fetches.emplace_back(g);
    std::vector<double> result = all_values(built.session->run(fetches));
    std::vector<Fetch> updates;
    for (Node* update : built.graph.nodes(kUpdateOps)) updates.emplace_back(*update);
    built.session->run(updates);
    for (const Variable v : built.graph.variables(kGlobalVariables))
      if (!v.trainable())
        for (const double x : all_values({built.session->read(v)})) result.push_back(x);
    return result;
  };
  expect_near(run(many), run(one), 1e-9);
}

TEST(SynchronisedBatchNorm, MakesTowersEqualToOneWithTheWholeBatch) {
  for (const VariablePolicy policy :
       {VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice, VariablePolicy::kSpread})
    for (const int towers : {2, 3, 4, 8}) {
      SCOPED_TRACE(towers);
      expect_like_one_tower(std::vector(static_cast<std::size_t>(towers), kRows / towers), policy);
    }
}

TEST(SynchronisedBatchNorm, CountsTowersByTheirSamples) {
  for (const VariablePolicy policy : {VariablePolicy::kReplicated, VariablePolicy::kSpread}) {
    expect_like_one_tower({1, 15, 8}, policy);
    expect_like_one_tower({20, 1, 1, 2}, policy);
  }
}

TEST(SynchronisedBatchNorm, HasTheGradientsOfFiniteDifferences) {
  Built built({3, 16, 5}, VariablePolicy::kOnOneDevice);
  Session& session = *built.session;
  const std::vector<Variable>& variables = built.towers[0].trainables;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const Tensor gradient = session.run(built.gradient[v]), start = session.read(variables[v]);
    for (std::size_t i = 0; i < start.data<double>().size(); ++i) {
      const auto loss_at = [&](double shift) {
        Tensor moved = start;
        moved.mutable_data<double>()[i] += shift;
        session.write(variables[v], moved);
        return session.run(built.loss).item<double>();
      };
      constexpr double kStep = 1e-5;
      const double numeric = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      EXPECT_NEAR(gradient.data<double>()[i], numeric, 1e-7) << variables[v].name() << " " << i;
    }
    session.write(variables[v], start);
  }
}

TEST(SynchronisedBatchNorm, IsOneNodeOverAllTowersAndKeepsTheOrderOfNodes) {
  Built built({6, 6, 6, 6}, VariablePolicy::kReplicated);
  int nodes = 0;
  for (std::size_t id = 0; id < built.graph.size(); ++id) {
    const Node& node = built.graph.node(id);
    EXPECT_EQ(node.id(), static_cast<int>(id));
    EXPECT_EQ(&built.graph.find(node.name()), &node);
    for (const Output& input : node.inputs()) EXPECT_LT(input.node().id(), node.id());
    for (const Node* before : node.control_inputs()) EXPECT_LT(before->id(), node.id());
    if (&node.op() != &kBatchStatistics) continue;
    ++nodes;
    EXPECT_EQ(node.inputs().size(), 8U);
    EXPECT_EQ(node.input(4).device(), cpu(2));
  }
  EXPECT_EQ(nodes, 2);  // the moving averages add none
  EXPECT_EQ(built.towers[1].contributions.size(), 4U);
}

TEST(SynchronisedBatchNorm, OfATowerAloneIsTheOrdinaryOne) {
  std::vector<double> results[2];
  for (const bool synchronised : {false, true}) {
    Graph graph;
    Tower tower(graph);
    const Output x = constant(graph, samples());
    const Output y = batch_norm(tower, "bn", x, {.synchronised = synchronised});
    Session session(graph);
    results[synchronised] = all_values({session.run(y)});
  }
  expect_near(results[1], results[0], 1e-12);
}

Output rows_of(Tower& tower) { return constant(tower.graph(), {1, 10, 3, 30}, {2, 2}); }

// The error of replicating `build` over three towers.
template <class Build>
std::string refusal(const Build& build) {
  Graph graph;
  return message_of([&] { replicate(graph, cpus(3), VariablePolicy::kReplicated, build); });
}

TEST(SynchronisedBatchNorm, RefusesATowerThatDoesNotTakePart) {
  EXPECT_THAT(refusal([](Tower& tower) {
                batch_norm(tower, "bn", rows_of(tower), {.synchronised = tower.index() != 2});
              }),
              AllOf(HasSubstr("synchronised batch norm 'bn' (built at synchronised_test.cc:"),
                    HasSubstr("tower 2, replicated at synchronised_test.cc:"),
                    HasSubstr("does not take part")));
}

TEST(SynchronisedBatchNorm, RefusesATowerThatComesAlone) {
  EXPECT_THAT(refusal([](Tower& tower) {
                batch_norm(tower, "bn0", rows_of(tower), {.synchronised = true});
                batch_norm(tower, "bn1", rows_of(tower), {.synchronised = tower.index() == 1});
              }),
              AllOf(HasSubstr("tower 1 comes to synchronised batch norm 'bn1' (built at "
                              "synchronised_test.cc:"),
                    HasSubstr("tower 0 does not take part"),
                    HasSubstr("its last is synchronised batch norm 'bn0' (built at ")));
}

TEST(SynchronisedBatchNorm, RefusesTowersThatComeInAnotherOrderOrToOtherLayers) {
  EXPECT_THAT(refusal([](Tower& tower) {
                const char* names[] = {"a", "b"};
                for (const int i : {tower.index() == 1 ? 1 : 0, tower.index() == 1 ? 0 : 1})
                  batch_norm(tower, names[i], rows_of(tower), {.synchronised = true});
              }),
              AllOf(HasSubstr("number 0 is synchronised batch norm 'a' (built at "),
                    HasSubstr("but synchronised batch norm 'b' (built at "), HasSubstr("tower 1")));
}

TEST(SynchronisedBatchNorm, RefusesGradientsOfOneTowersLoss) {
  EXPECT_THAT(refusal([](Tower& tower) {
                const Output y = batch_norm(tower, "bn", rows_of(tower), {.synchronised = true});
                tower.loss(reduce_mean(square(y)));
                compute_gradients(tower.loss(), tower.trainables());
              }),
              AllOf(HasSubstr("BatchStatistics 'tower0/bn/BatchStatistics' (built at "),
                    HasSubstr("all towers' losses at once")));
}

TEST(SynchronisedBatchNorm, RefusesOtherChannels) {
  EXPECT_THAT(refusal([](Tower& tower) {
                const Output x = tower.index() == 1 ? constant(tower.graph(), {1, 2, 3}, {1, 3})
                                                    : rows_of(tower);
                batch_norm(tower, "bn", x, {.synchronised = true});
              }),
              HasSubstr("bn"));
}

TEST(SynchronisedBatchNorm, PredictsByItsAverages) {
  Graph graph;
  replicate(graph, cpus(2), VariablePolicy::kReplicated,
            [](Tower& tower) { batch_norm(tower, "bn", rows_of(tower), {.synchronised = true}); });
  Output y;
  predict_tower(graph, {.device = cpu(1)}, [&](Tower& tower) {
    y = batch_norm(tower, "bn", rows_of(tower), {.epsilon = 1e-12, .synchronised = true});
  });
  Session session(graph, {.device_count = {{"CPU", 2}}});
  EXPECT_NEAR(session.run(y).data<float>()[1], 10, 1e-4);  // averages are 0 and 1
}

}  // namespace synchronised_test
}  // namespace belfry
