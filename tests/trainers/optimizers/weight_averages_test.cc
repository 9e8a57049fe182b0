// Moving averages of weights: their values, their bits, and their readers.
#include "belfry/trainers/optimizers/weight_averages.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace weight_averages_test {

using testing::ElementsAre;

// The average after each step. The variable starts at 8 and becomes 7, 6, ..., with the gradient 1
// and the rate 1.
std::vector<double> averages(const WeightAverages& options, int steps) {
  Graph graph;
  const Variable w =
      variable(graph, "w", {}, {.dtype = DType::kF64, .initializer = init::constant(8)});
  const Gradient g{init::constant(1)(graph, {}, DType::kF64), w};
  Node& step = sgd(1).with_averages(options).apply({&g, 1});
  Session session(graph);
  std::vector<double> values;
  for (int i = 0; i < steps; ++i) {
    session.run({step});
    values.push_back(session.read(average_of(w)).item<double>());
  }
  return values;
}

TEST(WeightAverages, FollowTheUpdatedVariableFromItsFirstValue) {
  EXPECT_THAT(averages({.decay = 0.5}, 3), ElementsAre(7.5, 6.75, 5.875));
  EXPECT_THAT(averages({.decay = 0}, 2), ElementsAre(7, 6));
}

TEST(WeightAverages, ForgetFirstValuesSoonerIfTheyCountUpdates) {
  // The decays are 2 / 11 and 3 / 12.
  const std::vector<double> early = averages({.decay = 0.999, .counts_updates = true}, 2);
  EXPECT_NEAR(early[0], 8 - 9.0 / 11, 1e-12);
  EXPECT_NEAR(early[1], early[0] - (early[0] - 6) * 0.75, 1e-12);
  EXPECT_EQ(averages({.decay = 0.125, .counts_updates = true}, 5), averages({.decay = 0.125}, 5));
}

TEST(WeightAverages, RefuseDecaysThatAreNone) {
  for (const double decay : {-0.1, 1.0, 2.0})
    EXPECT_THROW(sgd(1).with_averages({.decay = decay}), InvalidArgument);
}

TEST(WeightAverages, StayWhereAnUpdateIsSkipped) {
  Graph graph;
  const Variable w =
      variable(graph, "w", {}, {.dtype = DType::kF64, .initializer = init::constant(8)});
  const Gradient g{init::constant(1)(graph, {}, DType::kF64), w};
  const Unscaling skips{.factor = constant(graph, 0, DType::kF32),
                        .applied = constant(graph, 0, DType::kI64)};
  const Optimizer optimizer = sgd(1).with_averages({.decay = 0.5, .counts_updates = true});
  Node& step = optimizer.apply({&g, 1}, {}, OptimizerSlots::kMake, skips);
  Session session(graph);
  session.write(w, Tensor(4.0));
  session.run({step});
  EXPECT_EQ(session.read(average_of(w)).item<double>(), 8);
  const Variable count = graph.stored_variable("ExponentialMovingAverage/num_updates");
  EXPECT_EQ(session.read(count).item<std::int64_t>(), 0);
}

struct Way {
  std::string trainer = "replicated", allreduce = "collective";
  int towers = 2;
  bool fuse = true, share = true;
  std::string str() const {
    return cat(trainer, " ", allreduce, " on ", towers, " fuse ", fuse, " share ", share);
  }
};

TrainerOptions options_of(const Way& way) {
  TrainerOptions options{
      .model = smooth_model,
      .optimizer = momentum(0.1).with_averages({.decay = 0.9, .counts_updates = true}),
      .devices = cpus(way.towers),
      .batch_size = 16 / way.towers,
      .shards = 4,
      .epochs = 3};
  options.aggregation.allreduce = way.allreduce;
  options.session.fuse = way.fuse;
  options.session.share_replicas = way.share;
  return options;
}

std::string trained(const Way& way) {
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer(way.trainer), options_of(way), *data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty()) << way.str();
  return state_hash(trainer.session(), trainer.graph());
}

TEST(WeightAverages, HaveTheSameBitsHoweverTheyAreMade) {
  const std::string reference = trained({});
  const std::vector<Way> ways{{.trainer = "simple", .allreduce = "", .towers = 1},
                              {.towers = 4},
                              {.allreduce = "naive"},
                              {.allreduce = "hierarchical", .towers = 4},
                              {.fuse = false},
                              {.share = false},
                              {.towers = 4, .fuse = false, .share = false},
                              {.trainer = "parameter_server", .allreduce = "colocate"}};
  for (const Way& way : ways) EXPECT_EQ(trained(way), reference) << way.str();
}

TEST(WeightAverages, LeaveReplicasInOneStorage) {
  const auto data = smooth_data(64);
  const auto shared = [&](const Optimizer& optimizer) {
    TrainerOptions options = options_of({.towers = 4});
    options.optimizer = optimizer;
    Trainer trainer(find_trainer("replicated"), options, *data);
    trainer.train();
    return count_shared(trainer.session(), trainer.graph());
  };
  EXPECT_EQ(shared(momentum(0.1).with_averages({})), shared(momentum(0.1)));
}

TEST(WeightAverages, StartAtRandomFirstValues) {
  const auto data = smooth_data(64);
  TrainerOptions options = options_of({});
  options.optimizer = sgd(0).with_averages({.decay = 0.5});
  Trainer trainer(find_trainer("replicated"), options, *data);
  trainer.train();
  for (const Variable v : trainer.built().nodes().towers[0].trainables)
    EXPECT_EQ(trainer.session().read(average_of(v)), trainer.session().read(v)) << v.name();
}

TEST(WeightAverages, AreEvaluated) {
  const auto data = smooth_data(16);
  FakeConsole console;
  // The loss is w, which starts at 8.
  const auto model = [](Tower& tower, Output, Output) {
    return reduce_sum(
        variable(tower.graph(), "w", {}, {.dtype = DType::kF64, .initializer = init::constant(8)}));
  };
  TrainerOptions options{.model = model,
                         .optimizer = sgd(1).with_averages({.decay = 0.5}),
                         .devices = cpus(2),
                         .batch_size = 8,
                         .epochs = 3};
  options.callbacks = {std::make_shared<Evaluation>(console.console)};
  Trainer trainer(find_trainer("replicated"), options, *data, data.get());
  trainer.train();
  EXPECT_EQ(trainer.metric("validation_loss"), 5.875);
  EXPECT_EQ(trainer.metric("loss"), 6);
}

TEST(WeightAverages, GoOnFromACheckpoint) {
  const auto data = smooth_data(64);
  const std::string path = path_of_test("");
  TrainerOptions options = options_of({});
  options.max_steps = 5;
  Trainer first(find_trainer("replicated"), options, *data);
  first.train();
  save_training(first, path);
  Trainer second(find_trainer("replicated"), options_of({.towers = 4}), *data);
  restore_training(second, path);
  second.train();
  EXPECT_EQ(state_hash(second.session(), second.graph()), trained({}));
  std::filesystem::remove_all(path);
}

TEST(WeightAverages, AreKeptByTowersThatDoNotWait) {
  for (const char* async : {"ordered", "free"}) {
    const auto data = smooth_data(64);
    TrainerOptions options = options_of({});
    options.async = async;
    options.shards = 0;
    options.optimizer = sgd(0.1).with_averages({.decay = 0.9, .counts_updates = true});
    Trainer trainer(find_trainer("async"), options, *data);
    trainer.train();
    const Variable count = trainer.graph().stored_variable("ExponentialMovingAverage/num_updates");
    EXPECT_EQ(trainer.session().read(count).item<std::int64_t>(), 2 * 12) << async;
  }
}

}  // namespace weight_averages_test
}  // namespace belfry
