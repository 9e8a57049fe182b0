// Shards of the global batch: their number, which alone decides the bits.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/device/device.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/trainers/core/default_shards.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace shards_test {

using testing::HasSubstr;

TEST(DefaultShards, LeaveEachShardEnoughWorkForItsWeights) {
  const ModelWork resnet{.multiply_adds = 41e6, .weights = 0.27e6};
  EXPECT_EQ(default_shards(resnet, 128), 8);
  EXPECT_EQ(default_shards(resnet, 1024), 64);
  EXPECT_EQ(default_shards(resnet, 8), 8);
  EXPECT_EQ(default_shards(resnet, 5), 4);
  EXPECT_EQ(default_shards(resnet, 1), 1);
  EXPECT_EQ(default_shards(resnet, 12), 4) << "eight would not be of one size";
  EXPECT_EQ(default_shards(resnet, 10), 8) << "two would leave cores idle";
  const ModelWork mlp{.multiply_adds = 668e3, .weights = 669e3};
  EXPECT_EQ(default_shards(mlp, 17), 2) << "a second core pays for its gradient";
  EXPECT_EQ(default_shards(mlp, 15), 1);
  EXPECT_EQ(default_shards(mlp, 4096), 32);
  const ModelWork between{.multiply_adds = 1e6, .weights = 0.2e6};
  for (const std::int64_t batch : {5, 31, 33, 47})
    EXPECT_EQ(default_shards(between, batch), 2)
        << "no batch of a model falls back to 1: " << batch;
  EXPECT_EQ(default_shards(between, 3), 1);
  EXPECT_EQ(default_shards({}, 64), 8);
  EXPECT_EQ(default_shards(resnet, std::int64_t{1} << 40), 256);
}

TEST(DefaultShards, AreEnoughForAsManyAsFourDevicesThatShareTheBatchAlike) {
  const ModelWork mlp{.multiply_adds = 668e3, .weights = 669e3};
  for (const std::int64_t batch : {4, 8, 12, 16, 32, 256, 300})
    EXPECT_EQ(default_shards(mlp, batch), 4) << batch;
  for (const std::int64_t batch : {2, 6, 10, 34}) EXPECT_EQ(default_shards(mlp, batch), 2) << batch;
  for (const std::int64_t batch : {1, 3, 5}) EXPECT_EQ(default_shards(mlp, batch), 1) << batch;
}

// A recurrence reads its weights at each time, so a shard of few rows waits for the cache.
TEST(DefaultShards, LeaveARecurrenceRowsForTheWeightsThatItReadsAgain) {
  const double hidden = 4 * 512 * 512, weights = 2 * hidden;  // of a layer of an LSTM
  const ModelWork lstm{
      .multiply_adds = 64 * 2 * weights, .rereads = 63 * 2 * hidden, .weights = 2 * weights};
  EXPECT_EQ(default_shards(lstm, 15), 2) << "a second core pays";
  EXPECT_EQ(default_shards(lstm, 32), 4);
  EXPECT_EQ(default_shards(lstm, 64), 8);
}

// Six rows of 18 numbers per sample, times a product of weights, and then attention over the rows.
Output tokens(Tower& tower, Output images, Output labels) {
  const VariableOptions normal{.initializer = init::he_normal()};
  const Variable a = variable(tower.graph(), "a", {18, 5}, normal);
  const Variable b = variable(tower.graph(), "b", {5, 4}, normal);
  const Output x = matmul(reshape(images, {kUnknownSize, 18}), matmul(a, b));
  const Output y = reshape(x, {kUnknownSize, 6, 4});
  return reduce_mean(sparse_softmax_cross_entropy(
      dense(tower, "fc", flatten(causal_attention(y, y, y)), {.units = 5}), labels));
}

TEST(DefaultShards, CountAllRowsOfASample) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}}, 5, 63, 1);
  for (const int devices : {1, 2, 4})
    for (const Uneven uneven : {Uneven::kDrop, Uneven::kWeight}) {
      TrainerOptions options{.model = tokens,
                             .optimizer = momentum(0.1),
                             .devices = cpus(devices),
                             .batch_size = 16 / devices,
                             .batches = {.uneven = uneven}};
      if (devices > 1) options.aggregation.allreduce = "collective";
      options.session.dry_run = true;
      const Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"),
                            std::move(options), *data);
      const ModelWork work = work_of(trainer.built().nodes().towers[0], 16 / devices);
      EXPECT_EQ(work.multiply_adds, 6 * 18 * 4 + 2 * 6 * 6 * 4 + 24 * 5) << devices;
      EXPECT_EQ(work.weights, 18 * 5 + 5 * 4 + 24 * 5 + 5);
    }
}

// A model has one number of shards, whatever groups freeze.
TEST(DefaultShards, CountWeightsThatGroupsFreezeAndNoAverages) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}}, 5, 16, 1);
  for (const char* const group : {"*:rate=1", "bn:freeze"}) {
    TrainerOptions options{.model =
                               [](Tower& tower, Output images, Output labels) {
                                 const Output x = batch_norm(tower, "bn", images);
                                 return reduce_mean(sparse_softmax_cross_entropy(
                                     dense(tower, "fc", flatten(x), {.units = 5}), labels));
                               },
                           .optimizer = momentum(0.1).with_groups(parse_groups(group)),
                           .devices = cpus(1),
                           .batch_size = 16};
    options.session.dry_run = true;
    const Trainer trainer(find_trainer("simple"), std::move(options), *data);
    const auto& nodes = trainer.built().nodes();
    EXPECT_EQ(work_of(nodes.towers[0], 16, nodes.frozen).weights, 2 * 3 + 108 * 5 + 5) << group;
  }
}

// A transposed convolution has the work of the smaller image, and a group reads its own channels.
TEST(DefaultShards, CountConvolutionsOfGroupsInBothDirections) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 4}}, {"label", DType::kI32, {}}}, 5, 16, 1);
  TrainerOptions options{
      .model =
          [](Tower& tower, Output images, Output labels) {
            Output x = conv2d(tower, "down", images, {.filters = 8, .stride = 2, .groups = 4});
            x = conv2d_transpose(tower, "up", x, {.filters = 2, .stride = 2, .groups = 2});
            return reduce_mean(
                sparse_softmax_cross_entropy(dense(tower, "fc", flatten(x), {.units = 5}), labels));
          },
      .optimizer = momentum(0.1),
      .devices = cpus(1),
      .batch_size = 16};
  options.session.dry_run = true;
  const Trainer trainer(find_trainer("simple"), std::move(options), *data);
  EXPECT_EQ(work_of(trainer.built().nodes().towers[0], 16).multiply_adds,
            3 * 3 * 8 * (3 * 3 * 1) + 3 * 3 * 8 * (3 * 3 * 1) + 6 * 6 * 2 * 5);
}

// Products of a stack of matrices, and attention of all rows to all.
TEST(DefaultShards, CountProductsOfBatchesAndAttentionThatIsNotCausal) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 4}}, {"label", DType::kI32, {}}}, 5, 16, 1);
  TrainerOptions options{.model =
                             [](Tower& tower, Output images, Output labels) {
                               const Variable w = variable(tower.graph(), "w", {2, 8, 5});
                               Output x = matmul(reshape(images, {kUnknownSize, 2, 9, 8}), w);
                               x = reshape(x, {kUnknownSize, 18, 5});
                               x = attention(x, x, x);
                               return reduce_mean(sparse_softmax_cross_entropy(
                                   dense(tower, "fc", flatten(x), {.units = 5}), labels));
                             },
                         .optimizer = sgd(0.1),
                         .devices = cpus(1),
                         .batch_size = 16};
  options.session.dry_run = true;
  const Trainer trainer(find_trainer("simple"), std::move(options), *data);
  EXPECT_EQ(work_of(trainer.built().nodes().towers[0], 16).multiply_adds,
            2 * 9 * 8 * 5 + 2 * 18 * 18 * 5 + 90 * 5);
}

TEST(DefaultShards, CountRecurrences) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}}, 5, 16, 1);
  for (const int devices : {1, 2}) {
    TrainerOptions options{.model =
                               [](Tower& tower, Output images, Output labels) {
                                 const Output x = reshape(images, {kUnknownSize, 6, 18});
                                 const Output ends = lstm(tower, "lstm", x, {.hidden = 4}).h[0];
                                 return reduce_mean(sparse_softmax_cross_entropy(
                                     dense(tower, "fc", ends, {.units = 5}), labels));
                               },
                           .optimizer = sgd(0.1),
                           .devices = cpus(devices),
                           .batch_size = 16 / devices};
    if (devices > 1) options.aggregation.allreduce = "collective";
    options.session.dry_run = true;
    const Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"), std::move(options),
                          *data);
    const ModelWork work = work_of(trainer.built().nodes().towers[0], 16 / devices);
    EXPECT_EQ(work.multiply_adds, 6 * 18 * 16 + 6 * 4 * 16 + 4 * 5) << devices;
    EXPECT_EQ(work.rereads, 5 * 4 * 16) << devices;
  }
}

// A convolution, perhaps a mask, and a product, so that most rules are used.
ModelFunction convnet(double dropped) {
  return [dropped](Tower& tower, Output images, Output labels) {
    Output x = relu(conv2d(tower, "conv0", images, {.filters = 4, .kernel = 3}));
    x = flatten(x);
    if (dropped > 0) x = dropout(tower, x, dropped);
    return reduce_mean(sparse_softmax_cross_entropy(dense(tower, "fc", x, {.units = 5}), labels));
  };
}

// Statistics are over the batches of all towers.
Output resnet(Tower& tower, Output images, Output labels) {
  return models::resnet20(tower, images, labels, {.batch_norm = BatchNormOver::kSynchronised});
}

struct Run {
  int devices = 1, shards = 8, threads = 0;
  std::string allreduce = "collective";
  double bucket_mb = 0;
  bool fuse = true;
  ModelFunction model = convnet(0.5);
  std::int64_t steps = 4;
  bool keeps_gradients = false;
};

// A result of the trainer after training.
template <class Result>
Result trained(const Run& run, const std::function<Result(Trainer&)>& result) {
  const auto data =
      synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}}, 5, 64, 1);
  TrainerOptions options{.model = run.model,
                         .optimizer = adam(0.01),
                         .devices = cpus(run.devices),
                         .aggregation = {.allreduce = run.allreduce, .bucket_mb = run.bucket_mb},
                         .batch_size = 16 / run.devices,
                         .shards = run.shards,
                         .max_steps = run.steps,
                         .keeps_gradients = run.keeps_gradients};
  options.session.threads = run.threads;
  options.session.all_workers = true;
  options.session.fuse = run.fuse;
  Trainer trainer(find_trainer(run.devices == 1 ? "simple" : "replicated"), std::move(options),
                  *data);
  trainer.train();
  return result(trainer);
}

std::string hash_of(const Run& run) {
  return trained<std::string>(
      run, [](Trainer& trainer) { return state_hash(trainer.session(), trainer.graph()); });
}

TEST(Shards, GiveTheSameBitsOnEveryNumberOfDevices) {
  const std::string one = hash_of({.devices = 1});
  for (const int devices : {2, 4, 8})
    for (const int threads : {1, 2, 4})
      EXPECT_EQ(hash_of({.devices = devices, .threads = threads}), one) << devices;
  EXPECT_EQ(hash_of({.devices = 4, .allreduce = "naive"}), one);
  EXPECT_EQ(hash_of({.devices = 4, .allreduce = "hierarchical"}), one);
  EXPECT_EQ(hash_of({.devices = 4, .bucket_mb = 1}), one);
  EXPECT_EQ(hash_of({.devices = 4, .fuse = false}), one);
  EXPECT_EQ(hash_of({.devices = 1, .fuse = false}), one);
}

// One device has 4 or 8 shards, and workers take turns on the cores.
TEST(Shards, GiveTheSameBitsToMoreWorkersThanCores) {
  const int workers = 2 * usable_cores();
  for (const int shards : {4, 8}) {
    const std::string one = hash_of({.shards = shards, .threads = 1});
    for (const int devices : {1, 2})
      EXPECT_EQ(hash_of({.devices = devices, .shards = shards, .threads = workers}), one)
          << devices << " devices, " << shards << " shards";
  }
}

// Relative to the largest value of the variable.
double largest_difference(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t v = 0; v < a.size(); ++v) {
    EXPECT_EQ(a[v].name, b[v].name);
    const std::span<const float> x = a[v].value.data<float>(), y = b[v].value.data<float>();
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference = std::max<double>(difference, std::abs(x[i] - y[i]));
      largest = std::max<double>(largest, std::abs(x[i]));
    }
    EXPECT_GT(largest, 0) << a[v].name;
    most = std::max(most, difference / largest);
  }
  return most;
}

// Masks do not depend on the number of shards, either.
TEST(Shards, OfAllNumbersGiveNearlyTheSameGradients) {
  for (const ModelFunction& model : {convnet(0), convnet(0.5), ModelFunction(resnet)}) {
    const auto gradients = [&](int shards) {
      return trained<std::vector<NamedTensor>>(
          {.shards = shards, .model = model, .steps = 1, .keeps_gradients = true},
          [](Trainer& trainer) { return trainer.record().gradients(); });
    };
    const std::vector<NamedTensor> of_two = gradients(2);
    for (const int shards : {4, 16}) EXPECT_LT(largest_difference(of_two, gradients(shards)), 1e-5);
  }
}

TEST(Shards, OfEachNumberHaveBitsOfTheirOwn) {
  std::vector<std::string> found;
  for (const int shards : {2, 4, 16}) {
    found.push_back(hash_of({.devices = 1, .shards = shards}));
    EXPECT_EQ(hash_of({.devices = 2, .shards = shards}), found.back());
  }
  EXPECT_NE(found[0], found[1]);
  EXPECT_NE(found[1], found[2]);
}

TEST(Shards, ThatDevicesCannotShareAlikeAreRefused) {
  try {
    hash_of({.devices = 2, .shards = 3});
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("shards=3"));
    EXPECT_THAT(error.what(), HasSubstr("use a multiple of 2"));
  }
}

}  // namespace shards_test
}  // namespace belfry
