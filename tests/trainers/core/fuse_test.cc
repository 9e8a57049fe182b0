// --fuse changes where a step is computed, but no bit of it.
#include <gtest/gtest.h>

#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace fuse_test {

struct Way {
  int devices = 1, threads = 1, shards = 4;
  bool fuse = true;
  const char* type = "CPU";
  Precision precision = Precision::kF32;
};

std::string hash_of(const ModelSpec& spec, const Way& run, int steps) {
  const auto data = synthetic_data(spec.fields, spec.classes, 16, 1);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .batch_size = 8 / run.devices,
                         .shards = run.shards,
                         .max_steps = steps,
                         .precision = run.precision};
  options.devices.clear();
  for (int d = 0; d < run.devices; ++d) options.devices.push_back(DeviceSpec::local(run.type, d));
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

TEST(Fused, ResNetTrainsToTheSameBits) { expect_one_hash(find_model("resnet20", 4), 2, 1); }

TEST(Fused, ResNetWithSynchronisedBatchNormTrainsToTheSameBitsLong) {
  expect_one_hash(find_model("resnet20", 8, {.batch_norm = BatchNormOver::kSynchronised}), 4);
}

TEST(Fused, ResNetOfBottlenecksTrainsToTheSameBitsLong) {
  expect_one_hash(find_model("resnet50", 32), 2, 1);
}

// Two blocks of a transformer over five tokens.
ModelSpec small_gpt(const char* gelu) {
  ModelSpec spec = find_model("gpt", 0, {.gpt = models::GptSize{.sequence_length = 5}});
  spec.model = [gelu](Tower& tower, Output tokens, Output label) {
    return models::gpt(tower, tokens, label, {.layers = 2, .heads = 2, .width = 12, .gelu = gelu});
  };
  return spec;
}

TEST(Fused, TransformersTrainToTheSameBits) {
  for (const char* const gelu : {"exact", "tanh"}) expect_one_hash(small_gpt(gelu), 2);
}

TEST(Fused, DenseAndConvolutionLayersWithBiasTrainToTheSameBits) {
  expect_one_hash(find_model("mnist", 8), 2, 1);
}

TEST(Fused, ModelsOnGpusTrainToTheSameBits) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  for (const ModelSpec& spec : {find_model("resnet20", 4), small_gpt("tanh")})
    for (const Precision precision : {Precision::kF32, Precision::kBf16}) {
      const Way way{.devices = 2, .shards = 0, .type = "GPU", .precision = precision};
      Way apart = way;
      apart.fuse = false;
      EXPECT_EQ(hash_of(spec, way, 2), hash_of(spec, apart, 2)) << spec.name << name_of(precision);
    }
}

}  // namespace fuse_test
}  // namespace belfry
