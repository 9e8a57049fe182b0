// Mixed precision in training: f32 variables, loss scales for f16, and skipped updates.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/square.h"
#include "belfry/ops/updates/sgd_update.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/core/uneven_support.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/modes/equivalence.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace precision_test {

using testing::HasSubstr;
using Kind = std::string;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Samples "x" [4], "y" [1], and "spice", a factor of the loss, which is 1 except for some samples.
std::unique_ptr<Dataset> spiced_data(std::int64_t samples,
                                     const std::map<std::int64_t, float>& spices = {}) {
  std::vector<float> x, y, spice;
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto n = static_cast<float>(i);
    for (int j = 0; j < 4; ++j) x.push_back(std::sin(7 * n + 3 * static_cast<float>(j) + 1));
    y.push_back(std::cos(n));
    const auto found = spices.find(i);
    spice.push_back(found == spices.end() ? 1 : found->second);
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({samples, 4}, x), DType::kF32, {4}},
                                         {"y", Tensor({samples, 1}, y), DType::kF32, {1}},
                                         {"spice", Tensor({samples}, spice), DType::kF32, {}}},
      "a function with spices");
}

// A batch norm is among the layers, so that a wrong step could spoil averages, too.
Output spiced_model(Tower& tower, Output x, Output y, Output spice) {
  const Output spices = reduce_mean(spice);
  tower.metric("spice", spices);
  Output hidden = dense(tower, "fc0", x * spices, {.units = 64});
  hidden = relu(batch_norm(tower, "bn", hidden));
  hidden = relu(dense(tower, "fc1", hidden, {.units = 40}));
  return reduce_mean(square(dense(tower, "fc2", hidden, {.units = 1}) - y)) * spices;
}

// NaN and infinity go through the model. With 10,000 the loss is finite, but its gradients
// overflow.
const std::map<std::int64_t, float> kSpices{
    {3, kInfinity}, {17, kNaN}, {30, 1e4f}, {41, -kInfinity}};

TrainerOptions spiced_options(int towers, Precision precision = Precision::kF16) {
  return {.model = spiced_model,
          .optimizer = adam(0.01),
          .devices = cpus(towers),
          .batch_size = 4,
          .epochs = 3,
          .precision = precision,
          .loss_scale = {.growth_steps = 3},
          .on_nonfinite = OnNonfinite::kContinue,
          .warn_of_loss = false,
          .session = {.threads = 2}};
}

std::map<std::string, Tensor> state_of(Trainer& trainer) {
  std::map<std::string, Tensor> state;
  for (auto& [name, value] : read_state(trainer.session(), trainer.graph()))
    if (!name.starts_with("loss_scale")) state.emplace(name, std::move(value));
  return state;
}

// Follows the rule of loss scales during the training.
class Rule final : public Callback {
 public:
  void before_step(Trainer& trainer, const StepInfo&) override { before_ = state_of(trainer); }

  void after_step(Trainer& trainer, const StepInfo& info) override {
    const std::int64_t skipped = trainer.record().watch().skipped_steps();
    // f16 also overflows by itself while the scale is large.
    const bool bad = skipped > skipped_;
    EXPECT_TRUE(bad || std::isfinite(trainer.metric("spice"))) << "after step " << info.step;
    if (bad) {
      ++skipped_;
      scale_ /= 2;
      good_ = 0;
    } else if (++good_ == 3) {
      scale_ *= 2;
      good_ = 0;
    }
    EXPECT_EQ(trainer.built().loss_scale(), scale_) << "after step " << info.step;
    EXPECT_EQ(skipped, skipped_) << "after step " << info.step;
    const auto after = state_of(trainer);
    for (const auto& [name, value] : after) {
      if (bad) {
        EXPECT_EQ(value, before_.at(name)) << name << " in step " << info.step;
      }
    }
    if (!bad) {
      EXPECT_NE(after.at("fc2/W"), before_.at("fc2/W")) << info.step;
    }
  }

  std::int64_t skipped() const { return skipped_; }

 private:
  std::map<std::string, Tensor> before_;
  double scale_ = 32768;
  int good_ = 0;
  std::int64_t skipped_ = 0;
};

std::unique_ptr<Trainer> make(const Kind& kind, TrainerOptions options, const Dataset& data) {
  return std::make_unique<Trainer>(find_trainer(kind), std::move(options), data);
}

TEST(LossScale, FollowsItsRuleAndSkipsWhatIsNotFinite) {
  const auto data = spiced_data(96, kSpices);
  const std::pair<Kind, int> kinds[] = {
      {"simple", 1}, {"replicated", 2}, {"parameter_server", 2}, {"async", 2}, {"replicated", 4}};
  for (const auto& [kind, towers] : kinds)
    for (const Optimizer& optimizer : {sgd(0.05), momentum(0.05), adam(0.01)}) {
      SCOPED_TRACE(cat(kind, " ", optimizer.name(), " on ", towers));
      TrainerOptions options = spiced_options(towers);
      options.optimizer = optimizer;
      const auto rule = std::make_shared<Rule>();
      options.callbacks = {rule};
      if (kind == "parameter_server") options.aggregation.allreduce = "colocate";
      const auto trainer = make(kind, std::move(options), *data);
      trainer->train();
      EXPECT_GE(rule->skipped(), 3);
      EXPECT_LT(rule->skipped(), trainer->steps());
      EXPECT_TRUE(differing_replicas(trainer->session(), trainer->graph()).empty());
    }
}

// Adam counts from 1, and has not counted yet.
TEST(LossScale, MaySkipTheVeryFirstUpdates) {
  const auto data = spiced_data(2, {{0, kNaN}, {1, kNaN}});
  TrainerOptions options = spiced_options(2);
  options.batch_size = 1;
  const auto trainer = make("replicated", std::move(options), *data);
  trainer->train();
  EXPECT_EQ(trainer->record().watch().skipped_steps(), 3);
  EXPECT_EQ(trainer->built().loss_scale(), 4096);
  EXPECT_EQ(state_of(*trainer).at("Adam/step"), Tensor(std::int64_t{0}));
}

struct Setting {
  const char* name;
  void (*apply)(Kind&, TrainerOptions&);
};

const std::vector<std::vector<Setting>> kAxes{
    {{"collective", [](Kind&, TrainerOptions& o) { o.aggregation.allreduce = "collective"; }},
     {"naive", [](Kind&, TrainerOptions& o) { o.aggregation.allreduce = "naive"; }},
     {"naive_cpu", [](Kind&, TrainerOptions& o) { o.aggregation.allreduce = "naive_cpu"; }},
     {"shuffle", [](Kind&, TrainerOptions& o) { o.aggregation.allreduce = "shuffle"; }},
     {"hierarchical", [](Kind&, TrainerOptions& o) { o.aggregation.allreduce = "hierarchical"; }},
     {"parameter_server",
      [](Kind& kind, TrainerOptions& o) {
        kind = "parameter_server";
        o.aggregation.allreduce = "colocate";
      }}},
    {{"plain", [](Kind&, TrainerOptions&) {}},
     {"packed",
      [](Kind& kind, TrainerOptions& o) {
        o.aggregation.gradient_repacking = find_trainer(kind).packs_gradients ? 2 : 0;
      }},
     {"small packed",
      [](Kind& kind, TrainerOptions& o) {
        o.aggregation.small_tensors_kb = find_trainer(kind).packs_gradients ? 1 : 0;
      }},
     {"bucketed", [](Kind&, TrainerOptions& o) { o.aggregation.bucket_mb = 1e-4; }}},
    {{"fused", [](Kind&, TrainerOptions& o) { o.session.fuse = true; }},
     {"apart", [](Kind&, TrainerOptions& o) { o.session.fuse = false; }}},
    {{"shared", [](Kind&, TrainerOptions& o) { o.session.share_replicas = true; }},
     {"private", [](Kind&, TrainerOptions& o) { o.session.share_replicas = false; }}},
};

// Every combination of settings gives the same bits. Sanitizers run every seventh one, which covers
// each setting.
void expect_equal_bits(const TrainerOptions& common, const Dataset& data, std::int64_t least) {
  std::string reference;
  std::vector<std::size_t> choice(kAxes.size());
  const auto next_choice = [&] {
    for (std::size_t axis = 0; axis < kAxes.size(); ++axis) {
      if (++choice[axis] < kAxes[axis].size()) return true;
      choice[axis] = 0;
    }
    return false;
  };
  int number = 0;
  do {
    if (kSanitized && number++ % 7 > 0) continue;
    Kind kind = "replicated";
    TrainerOptions options = common;
    std::vector<std::string> names;
    for (std::size_t a = 0; a < kAxes.size(); ++a) {
      kAxes[a][choice[a]].apply(kind, options);
      names.emplace_back(kAxes[a][choice[a]].name);
    }
    const auto trainer = make(kind, std::move(options), data);
    trainer->train();
    if (trainer->built().loss_scale()) {
      EXPECT_GE(trainer->record().watch().skipped_steps(), least);
    }
    const std::string hash = state_hash(trainer->session(), trainer->graph());
    if (reference.empty()) reference = hash;
    EXPECT_EQ(hash, reference) << join(names);
  } while (next_choice());
}

TEST(MixedPrecision, GivesTheSameBitsHoweverGradientsAreCombinedAndApplied) {
  const auto data = spiced_data(96, kSpices), mild = spiced_data(96);
  for (const int towers : {2, 4}) {
    SCOPED_TRACE(towers);
    TrainerOptions f16 = spiced_options(towers), bf16 = spiced_options(towers, Precision::kBf16);
    f16.epochs = 2;
    bf16.epochs = 1;
    expect_equal_bits(f16, *data, 3);
    expect_equal_bits(bf16, *mild, 0);
  }
}

TEST(MixedPrecision, GivesTheSameBitsWithUnequalBatches) {
  const auto data = spiced_data(93, kSpices);
  TrainerOptions options = spiced_options(2);
  options.batches.uneven = Uneven::kWeight;
  options.batches.tower_weights = {3, 1};
  options.epochs = 1;
  expect_equal_bits(options, *data, 3);
}

// Towers without samples count neither in gradients nor in the check for finite values.
TEST(LossScale, LeavesTowersWithoutSamplesOut) {
  const auto data = spiced_data(9);
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad}) {
    TrainerOptions options = spiced_options(2);
    options.batches.uneven = uneven;
    options.loss_scale.initial = 64;
    const auto trainer = make("replicated", std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->record().watch().skipped_steps(), 0);
    EXPECT_EQ(trainer->built().loss_scale(), 256);  // for 6 steps
  }
}

// Two gradients of 3e38 are finite, but their sum would not be.
TEST(LossScale, SkipsWhatASumOverTowersMightNotHold) {
  const auto data = spiced_data(8, {{0, 1e20f},
                                    {1, 1e20f},
                                    {2, 1e20f},
                                    {3, 1e20f},
                                    {4, 1e20f},
                                    {5, 1e20f},
                                    {6, 1e20f},
                                    {7, 1e20f}});
  const ModelFunction huge = [](Tower& tower, Output, Output, Output spice) {
    const Variable w = variable(tower.graph(), "w", {}, {.initializer = init::ones()});
    return w * reduce_mean(spice) * 3e18;
  };
  for (const bool fuse : {true, false}) {
    TrainerOptions options = spiced_options(2);
    options.model = huge;
    options.epochs = 1;
    options.session.fuse = fuse;
    options.loss_scale.initial = 1;
    const auto trainer = make("replicated", std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->record().watch().skipped_steps(), 1);
    EXPECT_EQ(state_of(*trainer).at("w"), Tensor(1.0f));
  }
}

int fused_updates(Trainer& trainer) {
  const TrainingGraph& built = trainer.built().nodes();
  const TrainingStep step(trainer.session(), built.losses[0].steps[0], built.losses[0].towers,
                          built.losses[0].learning_rates);
  return static_cast<int>(std::ranges::count(step.plan()->nodes, &kFusedUpdate, &PlanNode::op));
}

TEST(LossScale, LeavesUpdatesFused) {
  const auto data = spiced_data(96);
  const auto f16 = make("replicated", spiced_options(2), *data);
  const auto f32 = make("replicated", spiced_options(2, Precision::kF32), *data);
  EXPECT_GT(fused_updates(*f32), 0);
  EXPECT_EQ(fused_updates(*f16), fused_updates(*f32));
}

// f64 stays as it is, so nothing overflows or vanishes.
TEST(LossScale, ChangesNoBitOfWhatIsLearned) {
  const auto data = smooth_data(64);
  const auto hash_of = [&](Precision precision, double scale) {
    TrainerOptions options = spiced_options(2, precision);
    options.model = smooth_model;
    options.loss_scale = {.initial = scale, .growth_steps = 2};
    const auto trainer = make("replicated", std::move(options), *data);
    trainer->train();
    return params_hash(trainer->session(), trainer->graph());
  };
  const std::string plain = hash_of(Precision::kF32, 1);
  for (const double scale : {0x1p-20, 1.0, 32768.0}) {
    EXPECT_EQ(hash_of(Precision::kF16, scale), plain) << scale;
  }
}

TEST(LossScale, IsKeptByCheckpointsForAnyTrainerAndTowers) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const auto data = spiced_data(96, kSpices);
  const auto trained = make("replicated", spiced_options(2), *data);
  trained->train();
  save_training(*trained, path);
  EXPECT_EQ(inspect_checkpoint(path).extra.at("precision").text(), "f16");
  const std::string state = state_hash(trained->session(), trained->graph());
  TrainerOptions server = spiced_options(4);
  server.aggregation.allreduce = "colocate";
  for (const auto& other : {make("simple", spiced_options(1), *data),
                            make("parameter_server", std::move(server), *data)}) {
    restore_training(*other, path);
    EXPECT_EQ(state_hash(other->session(), other->graph()), state);
    EXPECT_EQ(other->built().loss_scale(), trained->built().loss_scale());
  }
}

TEST(LossScale, StartsAnewBehindACheckpointOfAnotherPrecision) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const auto data = spiced_data(96);
  const auto f32 = make("replicated", spiced_options(2, Precision::kF32), *data);
  f32->train();
  save_training(*f32, path);
  const std::string params = params_hash(f32->session(), f32->graph());
  const auto f16 = make("replicated", spiced_options(2), *data);
  restore_training(*f16, path);
  EXPECT_EQ(params_hash(f16->session(), f16->graph()), params);
  EXPECT_EQ(f16->built().loss_scale(), 32768);
  save_training(*f16, path + "2");
  const auto bf16 = make("replicated", spiced_options(2, Precision::kBf16), *data);
  restore_training(*bf16, path + "2");
  EXPECT_EQ(params_hash(bf16->session(), bf16->graph()), params);
}

// A run that is killed and goes on ends with the bits of an uninterrupted one.
TEST(LossScale, GoesOnToTheSameBits) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const auto data = spiced_data(96, kSpices);
  const auto whole = make("replicated", spiced_options(2), *data);
  whole->train();
  TrainerOptions first = spiced_options(2);
  first.max_steps = 7;
  const auto begun = make("replicated", std::move(first), *data);
  begun->train();
  save_training(*begun, path);
  const auto rest = make("replicated", spiced_options(2), *data);
  restore_training(*rest, path);
  rest->train();
  EXPECT_EQ(state_hash(rest->session(), rest->graph()),
            state_hash(whole->session(), whole->graph()));
}

std::string trainer_refusal(const Kind& kind, TrainerOptions options) {
  try {
    make(kind, std::move(options), *spiced_data(96));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Precision, IsRefusedWhereItMakesNoSense) {
  EXPECT_THAT(trainer_refusal("simple", spiced_options(1, Precision::kTf32)),
              HasSubstr("tf32 is how GPUs multiply f32, and CPU:0 is none"));
  TrainerOptions free = spiced_options(2);
  free.async = "free";
  EXPECT_THAT(trainer_refusal("async", free),
              HasSubstr("precision=f16 scales the loss, and with async=free towers agree on no"));
  free.precision = Precision::kBf16;
  EXPECT_EQ(trainer_refusal("async", free), "(accepted)");
  TrainerOptions own = spiced_options(2);
  own.optimizer =
      Optimizer({.name = "Own", .rate = 0.1, .update = [](const Optimizer::Update& u) -> Node& {
                   return sgd_update(u.variable, u.gradient, u.rate, {}, u.at);
                 }});
  EXPECT_THAT(trainer_refusal("replicated", own), HasSubstr("the optimizer Own"));
  TrainerOptions odd = spiced_options(2);
  odd.loss_scale.initial = 1000;
  EXPECT_THAT(trainer_refusal("replicated", odd), HasSubstr("a power of two"));
}

TEST(Precision, IsAFlagOfEveryProgram) {
  EXPECT_EQ(parse({"--devices=cpu:2"}).trainer.precision, Precision::kF32);
  EXPECT_EQ(parse({"--devices=cpu:2", "--precision=bf16"}).trainer.precision, Precision::kBf16);
  EXPECT_EQ(parse({"--devices=cpu:2", "--precision=f16"}).trainer.precision, Precision::kF16);
  EXPECT_THAT(refusal({"--devices=cpu:2", "--precision=tf32"}),
              HasSubstr("--precision=tf32: tf32 is how GPUs multiply f32, and CPU:0 is none; use "
                        "f32, or GPUs alone"));
  EXPECT_EQ(parse({"--devices=gpu:2", "--precision=tf32", "--dry_run"}).trainer.precision,
            Precision::kTf32);
  EXPECT_THAT(refusal({"--precision=fp16"}),
              HasSubstr("--precision=fp16: unknown precision 'fp16'"));
  EXPECT_THAT(refusal({"--devices=cpu:2", "--trainer=async", "--async=free", "--precision=f16"}),
              HasSubstr("use --precision=bf16, which needs none, or --async=ordered"));
}

TEST(MixedPrecision, PlansEveryModelOfTheBenchmarks) {
  for (const std::string name : {"mnist", "mlp", "resnet20", "resnet50", "vgg16", "gpt"})
    for (const Precision precision : {Precision::kF16, Precision::kBf16}) {
      const bool text = find_model(name).fields[0].name == "tokens";
      const ModelSpec spec =
          text ? find_model(name, 0, {.sequence_length = 8}) : find_model(name, 32);
      const auto data = synthetic_data(spec.fields, spec.classes, 2, 5);
      Trainer trainer(find_trainer("simple"),
                      {.model = spec.model,
                       .optimizer = spec.optimizer,
                       .batch_size = 2,
                       .precision = precision,
                       .session = {.dry_run = true}},
                      *data);
      EXPECT_GT(trainer.session().device_use().size(), 0u) << name;
    }
}

TEST(MixedPrecision, PassesTheCheckOfEquivalence) {
  const auto data = spiced_data(96, kSpices);
  const std::vector<Mode> modes = all_modes(spiced_options(2).devices);
  const Equivalence all = check_equivalence(spiced_options(2), *data, 8, modes);
  int compared = 0;
  for (const Equivalence::Entry& entry : all.entries) {
    if (!entry.refusal.empty() || !entry.canonical) continue;
    ++compared;
    for (const auto& value : entry.values)
      EXPECT_EQ(value.max_ulp, 0u) << entry.mode.name() << " " << value.variable;
  }
  EXPECT_GT(compared, 10);
}

class LearnsDigits : public testing::TestWithParam<Precision> {};

TEST_P(LearnsDigits, AsF32Does) {
  const auto data = data::generated_digits(512, 3);
  const ModelFunction model = [](Tower& tower, Output image, Output label) {
    Output x = relu(conv2d(tower, "conv0", image, {.filters = 8, .kernel = 3, .stride = 2}));
    x = max_pool(x, {.window = 2});
    x = relu(dense(tower, "fc0", flatten(x), {.units = 32}));
    const Output logits = dense(tower, "fc1", x, {.units = 10});
    tower.metric("accuracy", accuracy(logits, label));
    return cross_entropy(logits, label);
  };
  const auto trainer = make("replicated",
                            {.model = model,
                             .optimizer = adam(3e-3),
                             .devices = cpus(2),
                             .batch_size = 32,
                             .epochs = kSanitized ? 1 : 8,
                             .precision = GetParam()},
                            *data);
  trainer->train();
  EXPECT_LT(trainer->metric("loss"), kSanitized ? 2.4 : 1);  // from 2.3
  EXPECT_GT(trainer->metric("accuracy"), kSanitized ? 0.05 : 0.65);
}

INSTANTIATE_TEST_SUITE_P(Types, LearnsDigits,
                         testing::Values(Precision::kF32, Precision::kBf16, Precision::kF16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace precision_test
}  // namespace belfry
