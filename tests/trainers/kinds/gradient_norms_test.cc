// The norms of gradients: those of the combined gradients, in each way to train, and no bit of the
// training changes.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace gradient_norms_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

double norm_of(const Tensor& tensor) {
  double squares = 0;
  for (const float value : tensor.data<float>())
    squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

// Keeps the norms of all steps, and those of their gradients, which the next step overwrites.
struct Watch final : Callback {
  std::vector<std::vector<NamedValue>> norms, of_gradients;
  void after_step(Trainer& trainer, const StepInfo&) override {
    norms.push_back(trainer.record().gradient_norms());
    std::vector<NamedValue>& expected = of_gradients.emplace_back();
    for (const NamedTensor& gradient : trainer.record().gradients())
      expected.push_back({gradient.name, norm_of(gradient.value)});
  }
};

struct Way {
  const char* kind = "replicated";
  const char* strategy = "collective";
  int towers = 4, batches = 1;
  AggregationOptions packing = {};
  double clip_norm = 0, clip_value = 0;
  Precision precision = Precision::kF32;
  bool logs = true, keeps = false;
};

struct Result {
  std::string hash;
  std::vector<std::vector<NamedValue>> norms, of_gradients;
};

// Three steps of the MLP.
Result result(const Way& way) {
  const ModelSpec spec = find_model("mlp", 6);
  const auto data = synthetic_data(spec.fields, spec.classes, 64, 5);
  const auto watch = std::make_shared<Watch>();
  TrainerOptions options{.model = spec.model,
                         .optimizer = momentum(0.1),
                         .devices = test::devices(way.towers),
                         .aggregation = way.packing,
                         .batch_size = 32 / way.towers / way.batches,
                         .shards = test::test_gpus() > 0 ? 0 : 8,
                         .batches = {.gradient_accumulation_steps = way.batches},
                         .epochs = 6,
                         .max_steps = 3,
                         .precision = way.precision,
                         .clip_norm = way.clip_norm,
                         .clip_value = way.clip_value,
                         .log_gradient_norms = way.logs,
                         .keeps_gradients = way.keeps,
                         .callbacks = {watch},
                         .session = {.logical_gpus = test::logical_gpus(), .deterministic = true}};
  options.aggregation.allreduce = way.strategy;
  Trainer trainer(find_trainer(way.kind), std::move(options), *data);
  trainer.train();
  return {params_hash(trainer.session(), trainer.graph()), watch->norms, watch->of_gradients};
}

// Logs norms, which are to be those of the gradients divided by the batches of a step.
void expect_norms(Way way) {
  SCOPED_TRACE(cat(way.kind, " ", way.strategy, ", ", way.towers, " towers, ", way.batches,
                   " batches, ", way.packing.gradient_repacking));
  way.logs = false;
  const std::string hash = result(way).hash;
  way.logs = true;
  EXPECT_EQ(result(way).hash, hash);
  way.keeps = true;
  const Result all = result(way);
  EXPECT_EQ(all.hash, hash);
  ASSERT_THAT(all.norms, SizeIs(3));
  for (std::size_t step = 0; step < all.norms.size(); ++step) {
    const std::vector<NamedValue>& norms = all.norms[step];
    const std::vector<NamedValue>& gradients = all.of_gradients[step];
    ASSERT_EQ(norms.size(), gradients.size() + 1);
    double squares = 0;
    for (std::size_t v = 0; v < gradients.size(); ++v) {
      const double expected = gradients[v].value / way.batches;
      EXPECT_EQ(norms[v + 1].name, cat("gradient_norm/", gradients[v].name));
      EXPECT_NEAR(norms[v + 1].value, expected, 1e-6 * expected);
      squares += expected * expected;
    }
    EXPECT_EQ(norms[0].name, "gradient_norm");
    EXPECT_NEAR(norms[0].value, std::sqrt(squares), 1e-6 * norms[0].value);
    EXPECT_GT(norms[0].value, 0);
  }
}

TEST(GradientNorms, AreThoseOfCombinedGradientsAndChangeNoBit) {
  BELFRY_NEED_DEVICES(4);
  expect_norms({.kind = "simple", .strategy = "", .towers = 1});
  for (const char* strategy : {"collective", "naive", "ring", "hierarchical"})
    expect_norms({.strategy = strategy});
  expect_norms({.kind = "parameter_server", .strategy = "colocate"});
  expect_norms({.packing = {.gradient_repacking = 3}});
  expect_norms({.towers = 2, .batches = 2});
  expect_norms({.towers = 2, .batches = 4});
}

// Clipping changes variables, so gradients after the first step.
TEST(GradientNorms, AreThoseBeforeGradientsAreClipped) {
  BELFRY_NEED_DEVICES(4);
  const double free = result({}).norms[0][0].value;
  for (const Way& way : {Way{.clip_norm = 0.01}, Way{.clip_value = 0.001},
                         Way{.clip_norm = 0.01, .clip_value = 0.001}}) {
    EXPECT_EQ(result(way).norms[0][0].value, free);
    Way without = way;
    without.logs = false;
    EXPECT_EQ(result(way).hash, result(without).hash);
    EXPECT_THAT(result(without).norms[0], IsEmpty());
  }
}

TEST(GradientNorms, AreEqualOnOneTwoAndFourDevices) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const Result one = result({.kind = "simple", .strategy = "", .towers = 1});
  for (const int towers : {2, 4}) {
    const Result several = result({.towers = towers});
    for (std::size_t step = 0; step < 3; ++step)
      for (std::size_t i = 0; i < one.norms[step].size(); ++i)
        EXPECT_EQ(several.norms[step][i].value, one.norms[step][i].value)
            << towers << " " << one.norms[step][i].name;
  }
}

// The loss is scaled by 32768, and the first steps overflow nothing.
TEST(GradientNorms, OfF16AreNotScaled) {
  const double f32 = result({.towers = 2}).norms[0][0].value;
  const Result f16 = result({.towers = 2, .precision = Precision::kF16});
  EXPECT_NEAR(f16.norms[0][0].value, f32, 0.02 * f32);
  EXPECT_EQ(f16.hash, result({.towers = 2, .precision = Precision::kF16, .logs = false}).hash);
}

TEST(GradientNorms, AreRefusedWhereNothingIsCombined) {
  const auto data = smooth_data(16);
  try {
    Trainer trainer(find_trainer("async"),
                    {.model = smooth_model,
                     .optimizer = sgd(0.1),
                     .devices = cpus(2),
                     .batch_size = 4,
                     .log_gradient_norms = true},
                    *data);
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("log_gradient_norms"), HasSubstr("is about combined gradients"),
                      HasSubstr("the trainer async combines none")));
  }
}

}  // namespace gradient_norms_test
}  // namespace belfry
