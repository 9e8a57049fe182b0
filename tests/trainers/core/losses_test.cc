// Each loss has one value, and its model one hash, for any number of devices.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/losses/class_weights.h"
#include "belfry/ops/losses/classification.h"
#include "belfry/ops/losses/ctc_loss.h"
#include "belfry/ops/losses/overlap.h"
#include "belfry/ops/losses/regression.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/softmax.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/weighted_mean.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/optimizers/optimizer.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace losses_test {

constexpr int kClasses = 5;

Output logits_of(Tower& tower, Output images, int units = kClasses) {
  return dense(tower, "fc", flatten(images), {.units = units});
}

// Numbers from 0 to 1 that depend on labels, of the shape of logits_of().
Output targets_of(Output logits, Output labels) {
  const Output column = reshape(cast(labels, DType::kF32), {kUnknownSize, 1});
  return sigmoid(logits * 0.0 + column - 2.0);
}

using Loss = Output (*)(Output predictions, Output targets);

ModelFunction compares(Loss loss) {
  return [loss](Tower& tower, Output images, Output labels) {
    const Output logits = logits_of(tower, images);
    return loss(logits, targets_of(logits, labels));
  };
}

// Two labels in four steps of time; the class after those of the data is the blank.
Output ctc_model(Tower& tower, Output images, Output labels) {
  const Output logits =
      reshape(logits_of(tower, images, 4 * (kClasses + 1)), {kUnknownSize, 4, kClasses + 1});
  const Output column = reshape(labels, {kUnknownSize, 1});
  const Output both = concat({column, (kClasses - 1.0) - column}, 1);
  const Output two = labels * 0.0 + 2.0;
  return ctc_loss(logits, both, two + 2.0, two, {.blank = kClasses});
}

// Labels of one class have thrice the weight, those of another none, and one is ignored.
Output weighted_model(Tower& tower, Output images, Output labels) {
  return cross_entropy(tower, logits_of(tower, images), labels,
                       {.class_weights = {1, 3, 0, 0.5, 1}, .smoothing = 0.1, .ignored = 4});
}

// The weighted mean of one tower.
Output mean_of_one_tower(Tower& tower, Output images, Output labels) {
  const Output logits = logits_of(tower, images);
  const WeightedCrossEntropyOptions options{.class_weights = {1, 3, 0, 0.5, 1}};
  return reduce_sum(weighted_cross_entropy(logits, labels, options)) /
         reduce_sum(label_weights(logits, labels, options));
}

std::unique_ptr<Trainer> trainer_of(const ModelFunction& model, int devices) {
  static std::vector<std::unique_ptr<Dataset>> kept;
  kept.push_back(synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}},
                                kClasses, 64, 1));
  TrainerOptions options{.model = model,
                         .optimizer = adam(0.01),
                         .devices = cpus(devices),
                         .batch_size = 32 / devices,
                         .shards = 8,
                         .max_steps = 4};
  if (devices > 1) options.aggregation.allreduce = "collective";
  return std::make_unique<Trainer>(find_trainer(devices == 1 ? "simple" : "replicated"),
                                   std::move(options), *kept.back());
}

struct LossCase {
  const char* name;
  ModelFunction model;
};

const LossCase kCases[] = {
    {"mse_loss", compares([](Output p, Output t) { return mse_loss(p, t); })},
    {"l1_loss", compares([](Output p, Output t) { return l1_loss(p, t); })},
    {"huber_loss", compares([](Output p, Output t) { return huber_loss(p, t, {.delta = 0.3}); })},
    {"smooth_l1_loss", compares([](Output p, Output t) { return smooth_l1_loss(p, t); })},
    {"hinge_loss", compares([](Output p, Output t) { return hinge_loss(p, t * 2.0 - 1.0); })},
    {"softmax_cross_entropy",
     compares([](Output p, Output t) { return softmax_cross_entropy(p, t); })},
    {"binary_cross_entropy_with_logits", compares([](Output p, Output t) {
       return binary_cross_entropy_with_logits(p, t, {.pos_weight = {1, 2, 3, 4, 5}});
     })},
    {"sigmoid_focal_loss", compares([](Output p, Output t) { return sigmoid_focal_loss(p, t); })},
    {"kl_div", compares([](Output p, Output t) {
       return kl_div(log_softmax(p), softmax(t), {.reduction = LossReduction::kBatchMean});
     })},
    {"dice_loss", compares([](Output p, Output t) { return dice_loss(sigmoid(p), t); })},
    {"cosine_similarity",
     compares([](Output p, Output t) { return -reduce_mean(cosine_similarity(p, t)); })},
    {"ctc_loss", ctc_model},
    {"cross_entropy", weighted_model},
};

void PrintTo(const LossCase& c, std::ostream* out) { *out << c.name; }

class LossesOfModels : public testing::TestWithParam<LossCase> {};

TEST_P(LossesOfModels, HaveTheSameBitsOnAnyNumberOfDevices) {
  std::string one;
  double first = 0;
  for (const int devices : {1, 2, 4}) {
    const std::unique_ptr<Trainer> trainer = trainer_of(GetParam().model, devices);
    EXPECT_EQ(k_dependence(trainer->built()), "") << devices;
    trainer->train();
    const double loss = trainer->metric("loss");
    EXPECT_TRUE(std::isfinite(loss));
    const std::string hash = params_hash(trainer->session(), trainer->graph());
    if (devices == 1) one = hash, first = loss;
    EXPECT_EQ(hash, one) << devices;
    EXPECT_EQ(loss, first) << devices;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LossesOfModels, testing::ValuesIn(kCases),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(WeightedMean, OfATowerAloneDependsOnTheDevices) {
  for (const int devices : {1, 2})
    EXPECT_THAT(k_dependence(trainer_of(mean_of_one_tower, devices)->built()),
                testing::HasSubstr("the loss is no mean over samples"))
        << devices;
}

}  // namespace losses_test
}  // namespace belfry
