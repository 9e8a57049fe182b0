// Towers, trainers and strategies change where a step is computed, but not its results.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace equal_results_test {

double relative_difference(std::span<const double> a, std::span<const double> b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

// The values of trained variables, by logical name.
using Values = std::map<std::string, Tensor>;

Values values_of(Trainer& trainer) {
  Values values;
  for (const Variable v : trainer.graph().variables(kTrainableVariables))
    if (!v.node().variable().local) values[std::string(v.name())] = trainer.session().read(v);
  return values;
}

struct NamedOptimizer {
  const char* name;
  Optimizer (*make)();
};

class EqualToOneTower : public testing::TestWithParam<std::tuple<int, NamedOptimizer>> {
 protected:
  void SetUp() override { BELFRY_NEED_DEVICES(std::get<0>(GetParam())); }

  static constexpr int kGlobalBatch = 24;  // divided by 1, 2, 3, 4, 6 and 8

  static Values run(const char* kind, int towers, const char* strategy,
                    const Optimizer& optimizer) {
    const auto data = smooth_data(5 * kGlobalBatch);
    TrainerOptions options{
        .model = smooth_model,
        .optimizer = optimizer,
        .devices = test::devices(towers),
        .aggregation = {.allreduce = strategy},
        .batch_size = kGlobalBatch / towers,
        .epochs = 4,
        .session = {.logical_gpus = test::logical_gpus(), .deterministic = true}};
    const auto trainer = std::make_unique<Trainer>(find_trainer(kind), std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->steps(), 20);
    EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
    return values_of(*trainer);
  }
};

TEST_P(EqualToOneTower, After20StepsWithTheWholeBatch) {
  const auto [towers, optimizer] = GetParam();
  const Values one = run("simple", 1, "", optimizer.make());
  ASSERT_EQ(one.size(), 4u);
  std::vector<std::pair<const char*, const char*>> modes{{"replicated", "collective"},
                                                         {"replicated", "naive"},
                                                         {"replicated", "naive_cpu"},
                                                         {"replicated", "shuffle"},
                                                         {"replicated", "ring"},
                                                         {"replicated", "ring#2"},
                                                         {"replicated", "halving_doubling"},
                                                         {"replicated", "collective:64:ring"},
                                                         {"parameter_server", "colocate"}};
  if (towers % 2 == 0) modes.emplace_back("replicated", "hierarchical");
  for (const auto& [kind, strategy] : modes)
    for (const auto& [name, value] : run(kind, towers, strategy, optimizer.make()))
      EXPECT_LE(relative_difference(value.data<double>(), one.at(name).data<double>()), 1e-10)
          << kind << " " << strategy << " " << name;
}

INSTANTIATE_TEST_SUITE_P(
    Modes, EqualToOneTower,
    testing::Combine(testing::Values(1, 2, 3, 4, 6, 8),
                     testing::Values(NamedOptimizer{"sgd", [] { return sgd(0.1); }},
                                     NamedOptimizer{"momentum", [] { return momentum(0.05); }},
                                     NamedOptimizer{"adam", [] { return adam(0.01); }})),
    [](const auto& test) {
      return std::string(std::get<1>(test.param).name) + "_" +
             std::to_string(std::get<0>(test.param));
    });

Output small_convnet(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 4, .kernel = 3, .stride = 2}));
  x = batch_norm(tower, "bn0", x);
  x = max_pool(x, {.window = 2});
  x = dropout(tower, relu(dense(tower, "fc0", flatten(x), {.units = 16})), 0.25);
  return cross_entropy(dense(tower, "fc1", x, {.units = 10}), label);
}

struct Mode {
  const char* kind;
  const char* strategy;
  int repacking = 0;
  int threads = 0;
  double bucket_mb = 0;
  int small_tensors_kb = 0;
  bool fuse = true, share = true;
};

struct Hashes {
  std::string params, state;
  bool operator==(const Hashes&) const = default;
};

Hashes train_digits(const Mode& mode, int towers, std::uint64_t seed = 1) {
  const auto data = data::generated_digits(160, 3);
  TrainerOptions options{.model = small_convnet,
                         .optimizer = adam(1e-2),
                         .devices = test::devices(towers),
                         .aggregation = {.allreduce = mode.strategy,
                                         .gradient_repacking = mode.repacking,
                                         .small_tensors_kb = mode.small_tensors_kb,
                                         .bucket_mb = mode.bucket_mb},
                         .batch_size = 8,
                         .epochs = 2,
                         .seed = seed,
                         .session = {.logical_gpus = test::logical_gpus(),
                                     .fuse = mode.fuse,
                                     .share_replicas = mode.share,
                                     .deterministic = true,
                                     .threads = mode.threads}};
  const auto trainer =
      std::make_unique<Trainer>(find_trainer(mode.kind), std::move(options), *data);
  trainer->train();
  EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
  const bool replicated = mode.kind == std::string_view("replicated");
  EXPECT_EQ(count_shared(trainer->session(), trainer->graph()) > 0,
            mode.share && replicated && towers > 1);
  return {params_hash(trainer->session(), trainer->graph()),
          state_hash(trainer->session(), trainer->graph())};
}

TEST(Hashes, AreEqualForAllModesPackingsAndThreads) {
  BELFRY_NEED_DEVICES(4);
  const Hashes reference = train_digits({"replicated", "collective"}, 4);
  EXPECT_NE(reference.params, reference.state);
  EXPECT_EQ(reference, train_digits({"replicated", "collective"}, 4)) << "second run";
  for (const Mode& mode :
       {Mode{"replicated", "naive"}, Mode{"replicated", "hierarchical"},
        Mode{"replicated", "naive_cpu"}, Mode{"replicated", "shuffle"},
        Mode{"replicated", "halving_doubling"}, Mode{"replicated", "shuffle:64:collective#2"},
        Mode{"parameter_server", "colocate"}})
    EXPECT_EQ(reference, train_digits(mode, 4)) << mode.strategy;
  for (const char* strategy : {"collective", "naive", "hierarchical", "shuffle"}) {
    EXPECT_EQ(reference, train_digits({"replicated", strategy, 2}, 4)) << strategy << " packed";
    EXPECT_EQ(reference, train_digits({"replicated", strategy, 0, 0, 0, 1}, 4))
        << strategy << " with small tensors packed";
  }
  for (const int threads : {1, 2, 4})
    EXPECT_EQ(reference, train_digits({"replicated", "collective", 0, threads}, 4))
        << threads << " threads";
  EXPECT_EQ(reference, train_digits({"parameter_server", "colocate", 0, 1}, 4));
  for (const char* strategy : {"collective", "naive", "hierarchical"})
    for (const double bucket_mb : {0.001, 4.0})
      EXPECT_EQ(reference, train_digits({"replicated", strategy, 0, 0, bucket_mb}, 4))
          << strategy << " in buckets of " << bucket_mb << " MiB";
  EXPECT_EQ(reference, train_digits({"parameter_server", "colocate", 0, 0, 0.001}, 4));
  EXPECT_NE(reference, train_digits({"replicated", "collective"}, 4, 2)) << "another seed";
}

TEST(Hashes, AreEqualFusedOrNotAndSharedOrNot) {
  BELFRY_NEED_DEVICES(4);
  const Hashes reference = train_digits({"replicated", "collective", 0, 0, 0, 0, false, false}, 4);
  for (const char* strategy : {"collective", "naive", "hierarchical"})
    for (const int repacking : {0, 2})
      for (const auto& [fuse, share] : {std::pair{true, false}, {false, true}, {true, true}})
        EXPECT_EQ(reference,
                  train_digits({"replicated", strategy, repacking, 2, 0, 0, fuse, share}, 4))
            << strategy << " packed " << repacking << " fused " << fuse << " shared " << share;
}

TEST(Replicas, ThatWereChangedFromOutsideAreFound) {
  BELFRY_NEED_DEVICES(2);
  const auto data = data::generated_digits(32, 3);
  Trainer trainer(find_trainer("replicated"),
                  {.model = small_convnet,
                   .optimizer = momentum(0.1),
                   .devices = test::devices(2),
                   .batch_size = 8,
                   .session = {.logical_gpus = test::logical_gpus()}},
                  *data);
  Session& session = trainer.session();
  const int shared = count_shared(session, trainer.graph());
  // Everything that a tower has of its own: trained variables and their slots.
  EXPECT_EQ(shared, 2 * static_cast<int>(trainer.built().nodes().towers[1].trainables.size()));
  const Variable bias = trainer.graph().stored_variable("tower1/fc1/b");
  Tensor value = session.read(bias);
  value.mutable_data<float>()[3] += 1;
  session.write(bias, value);
  EXPECT_LT(count_shared(session, trainer.graph()), shared);
  EXPECT_EQ(differing_replicas(session, trainer.graph()), std::vector<std::string>{"tower1/fc1/b"});
  trainer.train();
  EXPECT_EQ(differing_replicas(session, trainer.graph()), std::vector<std::string>{"tower1/fc1/b"});
}

TEST(Hashes, AreEqualForAllModesOfThreeTowers) {
  BELFRY_NEED_DEVICES(3);
  const Hashes reference = train_digits({"replicated", "collective"}, 3);
  EXPECT_EQ(reference, train_digits({"replicated", "naive"}, 3));
  EXPECT_EQ(reference, train_digits({"parameter_server", "colocate"}, 3));
  EXPECT_EQ(reference, train_digits({"replicated", "collective", 2, 1}, 3));
  EXPECT_EQ(reference, train_digits({"replicated", "collective", 0, 2, 0.002}, 3));
}

// Combined gradients of the MNIST convnet for 24 digits, divided among towers.
std::vector<Tensor> first_gradients(int towers, const char* strategy) {
  constexpr std::int64_t kImages = 24;
  const auto data = data::generated_digits(kImages, 5);
  const std::int64_t batch = kImages / towers;
  Graph graph;
  std::vector<std::vector<Gradient>> rows;
  std::vector<FeedValue> feeds;
  replicate(graph, test::devices(towers), VariablePolicy::kReplicated, [&](Tower& tower) {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < batch; ++i) samples.push_back(tower.index() * batch + i);
    std::vector<Tensor> values = gather_tensors(*data, samples);
    std::vector<Output> inputs;
    for (const Tensor& value : values) {
      inputs.push_back(placeholder(graph, "input", value.dtype(), value.shape()));
      feeds.push_back({inputs.back(), value});
    }
    const Output loss = models::mnist(tower, inputs[0], inputs[1]);
    rows.push_back(compute_gradients(loss, tower.trainables()));
  });
  const GradientTable combined = make_strategy(strategy)->reduce(GradientTable(rows));
  std::vector<Fetch> fetches;
  for (const Gradient& gradient : combined.row(0)) fetches.emplace_back(gradient.value);
  Session session(graph, test::on_devices(towers));
  return session.run(fetches, feeds);
}

TEST(FirstGradients, OfTheMnistConvnetAreThoseOfOneTower) {
  BELFRY_NEED_DEVICES(8);
  const std::vector<Tensor> one = first_gradients(1, "collective");
  ASSERT_EQ(one.size(), 8u);
  for (const int towers : {2, 3, 4, 6, 8}) {
    const std::vector<Tensor> many = first_gradients(towers, "collective");
    for (std::size_t v = 0; v < one.size(); ++v) {
      const auto widen = [](const Tensor& t) {
        return std::vector<double>(t.data<float>().begin(), t.data<float>().end());
      };
      EXPECT_LE(relative_difference(widen(many[v]), widen(one[v])), 1e-5)
          << towers << " towers, variable " << v;
    }
  }
}

}  // namespace equal_results_test
}  // namespace belfry
