// --fuse changes where a step is computed, and no bit of it.
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fused.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/bench/models.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace fuse_test {

struct Run {
  int devices = 1, threads = 1, shards = 4;
  bool fuse = true;
};

std::string hash_of(const ModelSpec& spec, const Run& run, int steps) {
  const auto data = synthetic_data(spec.fields, spec.classes, 16, 1);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .devices = cpus(run.devices),
                         .batch_size = 8 / run.devices,
                         .shards = run.shards,
                         .max_steps = steps};
  options.session.threads = run.threads;
  options.session.all_workers = true;
  options.session.fuse = run.fuse;
  Trainer trainer(find_trainer(run.devices == 1 ? "simple" : "replicated"), std::move(options),
                  *data);
  trainer.train();
  return state_hash(trainer.session(), trainer.graph());
}

void expect_one_hash(const ModelSpec& spec, int steps, int most_threads = 2) {
  for (const int devices : {1, 2}) {
    const std::string apart = hash_of(spec, {.devices = devices, .fuse = false}, steps);
    for (int threads = 1; threads <= most_threads; ++threads)
      EXPECT_EQ(hash_of(spec, {.devices = devices, .threads = threads}, steps), apart)
          << spec.name << ", devices " << devices << ", threads " << threads;
  }
}

TEST(Fused, ConvnetTrainsToTheSameBits) { expect_one_hash(find_model("mnist", 8), 3); }

TEST(Fused, MlpTrainsToTheSameBits) { expect_one_hash(find_model("mlp", 4), 3); }

TEST(Fused, ResNetTrainsToTheSameBits) { expect_one_hash(find_model("resnet20", 4), 2, 1); }

TEST(Fused, ResNetWithSynchronisedBatchNormTrainsToTheSameBitsLong) {
  expect_one_hash(find_model("resnet20", 8, {.batch_norm = BatchNormOver::kSynchronised}), 4);
}

TEST(Fused, ResNetOfBottlenecksTrainsToTheSameBitsLong) {
  expect_one_hash(find_model("resnet50", 32), 2, 1);
}

TEST(Fused, TransformerTrainsToTheSameBitsLong) {
  expect_one_hash(find_model("gpt", 0, {.sequence_length = 8}), 3);
}

}  // namespace fuse_test
}  // namespace belfry
