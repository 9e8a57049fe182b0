// Runs whose bits do not depend on the number of devices, and causes of such a dependence.
#include "belfry/trainers/core/independence.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/convolution/max_pool.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/ops/transpose.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/attention_layers.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/weighted_mean.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace independence_test {

using testing::AllOf;
using testing::HasSubstr;

Output loss_of(Tower& tower, Output features, Output labels) {
  return reduce_mean(
      sparse_softmax_cross_entropy(dense(tower, "fc", features, {.units = 5}), labels));
}

Output convnet(Tower& tower, Output images, Output labels) {
  const Output x = relu(conv2d(tower, "conv0", images, {.filters = 4, .kernel = 3}));
  return loss_of(tower, dropout(tower, flatten(x), 0.5), labels);
}

// Noise of a latent code, as in a variational autoencoder, and of images.
Output noisy(Tower& tower, Output images, Output labels) {
  const Output x = flatten(images + 0.1 * random_uniform(tower, labels, {6, 6, 3}));
  const Output mean = dense(tower, "mean", x, {.units = 4});
  const Output deviation = dense(tower, "deviation", x, {.units = 4});
  return loss_of(tower, mean + deviation * random_normal(tower, images, {4}), labels);
}

// Images shrink and grow again. Convolutions take each channel by itself, and channels in groups.
Output groups_of_channels(Tower& tower, Output images, Output labels) {
  Output x = conv2d(tower, "each", images, {.filters = 6, .dilation = 2, .groups = 3});
  x = relu(conv2d(tower, "halves", x, {.filters = 8, .stride = 2, .groups = 2}));
  x = relu(conv2d_transpose(tower, "up", x, {.filters = 4, .stride = 2, .groups = 2}));
  return loss_of(tower, flatten(x), labels);
}

// Windows with padding of their own, and norms of each sample; rows of pixels become a sequence.
Output norms_of_samples(Tower& tower, Output images, Output labels) {
  Output x = conv2d(tower, "padded", images,
                    {.filters = 4, .kernel = {3, 1}, .stride = 2, .padding = {1, 0}});
  x = relu(group_norm(tower, "gn", x, {.groups = 2}));
  x = max_pool(x, {.window = 2, .stride = 2, .padding = 1});
  x = instance_norm(tower, "in", x, {.affine = true});
  x = conv1d(tower, "times", reshape(x, {kUnknownSize, 4, 4}), {.filters = 4, .padding = {2, 0}});
  return loss_of(tower, flatten(x), labels);
}

// One block, with batch norm over all towers together, or over each one.
template <bool synchronised>
Output resnet(Tower& tower, Output images, Output labels) {
  const BatchNormLayer norm{.synchronised = synchronised};
  Output x = conv2d(tower, "conv0", images, {.filters = 4, .kernel = 3});
  const Output y = relu(batch_norm(tower, "bn0", x, norm));
  x = batch_norm(tower, "bn1", conv2d(tower, "conv1", y, {.filters = 4, .kernel = 3}), norm);
  return loss_of(tower, reduce_mean(relu(x + y), {1, 2}), labels);
}

// Applies one layer twice.
Output two_uses(Tower& tower, Output images, Output labels) {
  Output x = flatten(images);
  const Variable w = variable(tower.graph(), "w", {x.shape().back(), x.shape().back()},
                              {.initializer = init::he_normal()});
  return loss_of(tower, relu(matmul(relu(matmul(x, w)), w)), labels);
}

Output two_uses_of_a_synchronised_layer(Tower& tower, Output images, Output labels) {
  Output x = batch_norm(tower, "bn", flatten(images), {.synchronised = true});
  const Variable w = variable(tower.graph(), "w", {x.shape().back(), x.shape().back()},
                              {.initializer = init::he_normal()});
  return loss_of(tower, relu(matmul(relu(matmul(x, w)), w)), labels);
}

// Row norms, gates, attention over three time steps, and an embedding with labels as ids.
Output block_of_a_transformer(Tower& tower, Output images, Output labels) {
  Output x = dense(tower, "in", flatten(images), {.units = 6});
  x = layer_norm(tower, "ln", x + embedding(tower, "ids", labels, {.rows = 5, .width = 6}));
  const Output times = reshape(x, {kUnknownSize, 3, 2});
  x = x + flatten(causal_self_attention(tower, "attn", times, {.heads = 1, .rotary = true}));
  x = rms_norm(tower, "rms", x + gelu(dense(tower, "up", x, {.units = 6})));
  const Output logits = dense(tower, "fc", silu(x), {.units = 5});
  return reduce_mean(
      sparse_softmax_cross_entropy(logits, labels, {.smoothing = 0.1, .ignored = 3}));
}

// Products of each sample's own matrices, in all forms, and a loss with targets from 0 to 1.
Output products_of_samples(Tower& tower, Output images, Output labels) {
  Output x = reshape(dense(tower, "in", flatten(images), {.units = 12}), {kUnknownSize, 3, 4});
  const Output scores = matmul(x, x, {.transpose_b = true});                      // [n,3,3]
  const Output y = matmul(scores, x) + matmul(scores, x, {.transpose_a = true});  // [n,3,4]
  x = matmul(y, scores, {.transpose_a = true, .transpose_b = true}) * 0.1;        // [n,4,3]
  const Output logits = dense(tower, "fc", flatten(x), {.units = 1});
  const Output targets = reshape(cast(labels, DType::kF32) / 4.0, {kUnknownSize, 1});
  return reduce_mean(sigmoid_cross_entropy(logits, targets));
}

Output with_l2_term(Tower& tower, Output images, Output labels) {
  const Output loss = loss_of(tower, flatten(images), labels);
  return loss + reduce_sum(square(tower.trainables()[0])) * 0.01;
}

// As a loss that balances experts: products of means over all samples.
Output with_batch_means(Tower& tower, Output images, Output labels) {
  const Output x = flatten(images), share = softmax(dense(tower, "gate", x, {.units = 4}));
  const Output all = batch_mean(tower, share), large = batch_mean(tower, square(share));
  return loss_of(tower, x, labels) + reduce_sum(all * large) * 0.5;
}

Output with_noise_on_weights(Tower& tower, Output images, Output labels) {
  const Output x = flatten(images);
  const Variable w =
      variable(tower.graph(), "w", {x.shape().back(), 6}, {.initializer = init::he_normal()});
  const Output noisy = w * random_uniform(tower.graph(), w.shape(), 0.5, 1.5);
  return loss_of(tower, relu(matmul(x, noisy)), labels);
}

// An identity that clips its gradient to length 1. So it needs the whole gradient of its tower.
OutputTypes identity_shape(const ShapeContext& c) { return {c.type(0)}; }
std::vector<Output> clipped(const Node&, std::span<const Output> grads) {
  return {grads[0] / (reduce_sum(square(grads[0])) + 1.0)};
}
KernelRun copy(KernelPlan&) {
  return [](const KernelPointers& p) {
    std::copy_n(p.input<float>(0) + p.begin(), p.end() - p.begin(), p.output<float>() + p.begin());
  };
}
const Op kClipGradient{.name = "ClipGradient",
                       .inputs = 1,
                       .shape = identity_shape,
                       .gradient = clipped,
                       .split = WorkSplit::kElements,
                       .reference = copy,
                       .cpu_only = "a test"};

Output with_clipping(Tower& tower, Output images, Output labels) {
  const Output x = flatten(images);
  const Variable w =
      variable(tower.graph(), "w", {x.shape().back(), 6}, {.initializer = init::he_normal()});
  const Output limited = tower.graph().add(kClipGradient, {w}).output();
  return loss_of(tower, relu(matmul(x, limited)), labels);
}

Optimizer with_decay() {
  return Optimizer(
      {.name = "decaying", .rate = 0.05, .update = [](const Optimizer::Update& u) -> Node& {
         const Output pull = Output(u.variable.read()) * 0.01;
         return assign_sub(u.variable, (u.gradient + pull) * u.rate, u.at);
       }});
}

struct Run {
  ModelFunction model = convnet;
  int devices = 1, shards = 8, batch = 32, samples = 64;
  std::string trainer = "replicated", allreduce = "collective";
  Optimizer optimizer = adam(0.01);
  Precision precision = Precision::kF32;
  BatchOptions batches = {};
  double clip_norm = 0;
};

std::unique_ptr<Trainer> trainer_of(const Run& run) {
  static std::vector<std::unique_ptr<Dataset>> kept;
  kept.push_back(synthetic_data({{"image", DType::kF32, {6, 6, 3}}, {"label", DType::kI32, {}}}, 5,
                                run.samples, 1));
  TrainerOptions options{.model = run.model,
                         .optimizer = run.optimizer,
                         .devices = cpus(run.devices),
                         .aggregation = {.allreduce = run.allreduce},
                         .batch_size = run.batch / run.devices,
                         .shards = run.shards,
                         .batches = run.batches,
                         .max_steps = 3,
                         .precision = run.precision,
                         .clip_norm = run.clip_norm};
  options.session.all_workers = true;
  const std::string trainer =
      run.devices == 1 && run.trainer == "replicated" ? "simple" : run.trainer;
  if (trainer != "replicated")
    options.aggregation.allreduce = find_trainer(trainer).default_strategy;
  return std::make_unique<Trainer>(find_trainer(trainer), std::move(options), *kept.back());
}

std::string because(const Run& run) { return k_dependence(trainer_of(run)->built()); }

TEST(MetricsByDevices, AreThoseThatAreNoMeans) {
  const auto metrics = [](Tower& tower, Output images, Output labels) {
    const Output loss = loss_of(tower, flatten(images), labels);
    const Output sum = reduce_sum(images), size = reduce_sum(square(images));
    tower.metric("mean", reduce_mean(images));
    tower.metric("top2",
                 top_k_accuracy(dense(tower, "more", flatten(images), {.units = 5}), labels, 2));
    tower.metric("shifted", reduce_mean(square(images)) * 2.0F + 1.0F);
    tower.metric("ratio", sum / size);
    tower.metric("sum", sum);
    tower.metric("root", square(loss));
    const Output x = reduce_mean(images, {1, 2});
    tower.metric("mean_of_rows", reduce_mean(sqrt(reduce_sum(square(x), {1}))));
    tower.metric("variance", reduce_mean(square(x - reduce_mean(x))));
    tower.metric("first", reduce_mean(slice(x, {0, 0}, {1, 3})));
    tower.metric("products", reduce_mean(square(matmul(transpose(x, {1, 0}), x))));
    tower.metric("columns", 2.0F * reduce_mean(sqrt(reduce_mean(square(x), {0}))));
    return loss;
  };
  for (const int shards : {1, 8})
    EXPECT_THAT(
        metrics_by_devices(trainer_of({.model = metrics, .shards = shards})->built()),
        testing::ElementsAre("ratio", "sum", "root", "variance", "first", "products", "columns"));
  EXPECT_THAT(metrics_by_devices(trainer_of({.model = convnet})->built()), testing::IsEmpty());
}

// On all devices that share the batch alike.
void expect_same_bits(Run run) {
  std::string one;
  for (const int devices : {1, 2, 4, 8}) {
    if (run.batch % devices != 0) continue;
    run.devices = devices;
    const std::unique_ptr<Trainer> trainer = trainer_of(run);
    EXPECT_EQ(k_dependence(trainer->built()), "") << devices;
    trainer->train();
    EXPECT_TRUE(std::isfinite(trainer->metric("loss")));
    const std::string hash = cat(params_hash(trainer->session(), trainer->graph()), " ",
                                 state_hash(trainer->session(), trainer->graph()));
    if (devices == 1) one = hash;
    EXPECT_EQ(hash, one) << devices;
  }
}

TEST(Independence, HoldsForAConvnetWithDropout) {
  expect_same_bits({.model = convnet});
  expect_same_bits({.model = convnet, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForMeansOverAllSamples) { expect_same_bits({.model = with_batch_means}); }

TEST(Independence, HoldsForNoiseOfSamples) {
  expect_same_bits({.model = noisy});
  expect_same_bits({.model = noisy, .shards = 16, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForConvolutionsOfGroups) {
  expect_same_bits({.model = groups_of_channels});
  expect_same_bits({.model = groups_of_channels, .shards = 16, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForNormsOfSamplesAndPaddedWindows) {
  expect_same_bits({.model = norms_of_samples});
  expect_same_bits({.model = norms_of_samples, .shards = 16, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForSynchronisedBatchNorm) {
  expect_same_bits({.model = resnet<true>, .optimizer = momentum(0.05)});
  expect_same_bits({.model = resnet<true>, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForAVariableWithTwoUses) {
  expect_same_bits({.model = two_uses});
  expect_same_bits({.model = two_uses_of_a_synchronised_layer});
}

TEST(Independence, HoldsForRowNormsAndEmbeddings) {
  expect_same_bits({.model = block_of_a_transformer});
  expect_same_bits({.model = block_of_a_transformer, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForProductsOfSamplesAndSigmoidLosses) {
  expect_same_bits({.model = products_of_samples});
  expect_same_bits({.model = products_of_samples, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForEveryOptimizer) {
  const std::pair<const char*, Optimizer> optimizers[] = {
      {"sgd with decay", sgd(0.05, {.weight_decay = 0.1})},
      {"momentum with decay", momentum(0.05, {.weight_decay = 0.1})},
      {"Nesterov", momentum(0.05, {.nesterov = true, .weight_decay = 0.1})},
      {"RMSprop", rms_prop(0.01)},
      {"RMSprop with momentum", rms_prop(0.01, {.momentum = 0.9, .weight_decay = 0.1})},
      {"AdamW", adamw(0.01, {.weight_decay = 0.1})},
      {"LAMB", lamb(0.01)},
      {"LARS", lars(0.1, {.trust_coefficient = 0.1, .weight_decay = 0.1})},
      {"Lion", lion(0.01, {.weight_decay = 0.1})},
      {"Adagrad", adagrad(0.01, {.weight_decay = 0.1})},
      {"AMSGrad", amsgrad(0.01, {.weight_decay = 0.1})},
  };
  for (const auto& [name, optimizer] : optimizers) {
    SCOPED_TRACE(name);
    for (const ModelFunction& model :
         {ModelFunction(products_of_samples), ModelFunction(block_of_a_transformer)})
      expect_same_bits({.model = model, .optimizer = optimizer});
    expect_same_bits({.model = two_uses, .trainer = "parameter_server", .optimizer = optimizer});
  }
  for (const Optimizer& scaled : {lamb(0.01), lars(0.1)})
    expect_same_bits({.model = convnet, .optimizer = scaled, .clip_norm = 0.01});
}

TEST(Independence, HoldsForClippedGradients) {
  expect_same_bits({.model = convnet, .optimizer = adamw(0.01), .clip_norm = 0.01});
  expect_same_bits({.model = convnet, .trainer = "parameter_server", .clip_norm = 0.01});
}

// Of 36 samples, shards have 4 or 5.
TEST(Independence, HoldsForShardsOfUnequalSizes) {
  for (const ModelFunction& model :
       {ModelFunction(convnet), ModelFunction(noisy), ModelFunction(resnet<true>),
        ModelFunction(with_batch_means), ModelFunction(block_of_a_transformer)})
    expect_same_bits({.model = model, .batch = 36, .samples = 72});
  expect_same_bits({.batch = 10, .samples = 20, .trainer = "parameter_server"});
}

TEST(Independence, HoldsForAnUpdateOfOnesOwn) {
  expect_same_bits({.model = convnet, .optimizer = with_decay()});
}

TEST(Independence, IsLostByBatchNormOverATower) {
  for (const int devices : {1, 2, 8})
    EXPECT_THAT(because({.model = resnet<false>, .devices = devices}),
                AllOf(HasSubstr("BatchNormTrain"), HasSubstr("built at independence_test.cc:"),
                      HasSubstr("takes the whole batch of its tower")))
        << devices;
}

TEST(Independence, IsLostByATermOfTheWeights) {
  for (const int devices : {1, 2, 8})
    EXPECT_THAT(because({.model = with_l2_term, .devices = devices}),
                AllOf(HasSubstr("a gradient of "), HasSubstr("AddN"),
                      HasSubstr("built at independence_test.cc:")))
        << devices;
}

TEST(Independence, IsLostByAFunctionThatAsksWhichTowerItBuilds) {
  const auto loss_by = [](auto ask) {
    return [ask](Tower& tower, Output images, Output labels) {
      return loss_of(tower, flatten(images) * (1.0 + ask(tower)), labels);
    };
  };
  const std::vector<std::function<double(Tower&)>> questions = {
      [](Tower& tower) { return tower.index(); }, [](Tower& tower) { return tower.total(); },
      [](Tower& tower) { return tower.is_main() ? 1 : 0; }};
  for (const int devices : {1, 2})
    for (const auto& ask : questions)
      EXPECT_THAT(
          because({.model = loss_by(ask), .devices = devices}),
          AllOf(HasSubstr("built at independence_test.cc:"), HasSubstr("which tower it builds")));
  const auto alike = [](Tower& tower) { return tower.is_training() ? 1.0 : 0.0; };
  EXPECT_EQ(because({.model = loss_by(alike), .devices = 2}), "");
}

TEST(Independence, IsLostByALossThatIsNoMean) {
  const auto sum = [](Tower& tower, Output images, Output labels) {
    const Output logits = dense(tower, "fc", flatten(images), {.units = 5});
    return reduce_sum(sparse_softmax_cross_entropy(logits, labels)) / 32.0;
  };
  const auto scaled = [](Tower& tower, Output images, Output labels) {
    return loss_of(tower, flatten(images), labels) * 0.5 + 1.0;
  };
  for (const int devices : {1, 4}) {
    EXPECT_THAT(because({.model = sum, .devices = devices}), HasSubstr("no mean over samples"));
    EXPECT_EQ(because({.model = scaled, .devices = devices}), "");
  }
}

TEST(Independence, IsLostByClippingEachTowersGradient) {
  for (const int devices : {1, 2, 8})
    EXPECT_THAT(
        because({.model = with_clipping, .devices = devices}),
        AllOf(HasSubstr("a gradient of ClipGradient"), HasSubstr("built at independence_test.cc:"),
              HasSubstr("takes the whole batch of its tower")))
        << devices;
}

TEST(Independence, IsLostByRandomNumbersThatBelongToNoSample) {
  for (const int devices : {1, 8})
    EXPECT_THAT(because({.model = with_noise_on_weights, .devices = devices}),
                AllOf(HasSubstr("RandomUniform"),
                      HasSubstr("draws random numbers that belong to no sample")));
}

TEST(Independence, IsLostByBatchesThatDoNotDivide) {
  EXPECT_EQ(because({.devices = 2, .samples = 63, .batches = {.uneven = Uneven::kPad}}),
            "a batch of 31 samples is not shared alike: 16 + 15");
  EXPECT_EQ(because({.devices = 1, .samples = 63, .batches = {.uneven = Uneven::kPad}}),
            "8 devices cannot share a batch of 31 samples alike");
  EXPECT_THAT(because({.devices = 1, .samples = 48, .batches = {.uneven = Uneven::kPad}}),
              HasSubstr("uneven=pad"))
      << "one tower takes 16 samples, of two the last one none";
  EXPECT_THAT(because({.devices = 1, .samples = 16, .batches = {.uneven = Uneven::kPad}}),
              HasSubstr("uneven=pad"))
      << "the last batch is the only one";
  EXPECT_EQ(because({.devices = 1, .samples = 64, .batches = {.uneven = Uneven::kPad}}), "");
  EXPECT_EQ(because({.devices = 2, .batches = {.tower_weights = {3, 1}}}),
            "a batch of 32 samples is not shared alike: 24 + 8");
}

TEST(Independence, IsLostByAScaledLoss) {
  EXPECT_EQ(because({.devices = 2, .precision = Precision::kF16}), "f16 scales the loss");
  EXPECT_EQ(because({.devices = 2, .precision = Precision::kBf16}), "");
}

TEST(Independence, IsLostByNumbersThatAreNoPowersOfTwo) {
  EXPECT_EQ(because({.devices = 3, .shards = 6, .batch = 48}), "3 devices: not a power of two");
  EXPECT_EQ(because({.devices = 2, .shards = 6, .batch = 48}), "6 shards: not a power of two");
}

TEST(Independence, IsLostByShardsThatWereAddedForDevices) {
  for (const int devices : {1, 2})
    EXPECT_EQ(because({.devices = devices, .shards = 0, .batch = 32}),
              "more than 4 devices raise the default of 4 shards");
  EXPECT_EQ(because({.devices = 2, .shards = 2, .batch = 32}), "") << "more would be refused";
  EXPECT_EQ(because({.devices = 2, .shards = 0, .batch = 34}), "") << "4 cannot share it alike";
  EXPECT_THAT(because({.model = two_uses, .devices = 8, .shards = 0, .batch = 8}),
              HasSubstr("was raised to 8, one per device"));
}

std::string note(const Run& run) { return unlike_one_device(trainer_of(run)->built()); }

TEST(UnlikeOneDevice, IsSaidWithWhatToDo) {
  for (const int devices : {1, 2, 4})
    EXPECT_EQ(note({.devices = devices, .shards = 0, .batch = 16}), "") << devices;
  EXPECT_EQ(
      note({.devices = 8, .shards = 0, .batch = 16}),
      "8 devices may give other results than 1 (the default of 4 shards was raised to 8, one per "
      "device); with shards=8, 1, 2, 4, ... up to 8 devices give equal ones");
  EXPECT_EQ(
      note({.devices = 3, .shards = 0, .batch = 48}),
      "3 devices may give other results than 1 (3 devices: not a power of two); equal ones need "
      "powers of two, of devices and of shards");
  EXPECT_EQ(
      note({.devices = 2, .allreduce = "ring"}),
      "2 devices may give other results than 1 (the strategy ring does not add in the order of "
      "the canonical sum)");
}

TEST(Independence, IsLostByOtherOrdersOfSums) {
  EXPECT_EQ(because({.devices = 8, .allreduce = "naive"}), "");
  for (const int devices : {2, 8})
    EXPECT_THAT(because({.devices = devices, .allreduce = "ring"}), HasSubstr("the strategy ring"));
  EXPECT_THAT(because({.devices = 2, .trainer = "async"}), HasSubstr("the trainer async"));
}

TEST(KDependence, OfATrainerThatPromisesNothingSaysSo) {
  TrainerKind own = find_trainer("replicated");
  own.name = "own";
  own.canonical = false;
  TrainerOptions options{.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4};
  options.shards = 2;
  options.devices = {DeviceSpec::local("CPU", 0), DeviceSpec::local("CPU", 1)};
  const auto data = smooth_data(8);
  Trainer trainer(own, options, *data);
  EXPECT_THAT(k_dependence(trainer.built()),
              HasSubstr("the trainer own does not promise the bits of one tower"));
}

}  // namespace independence_test
}  // namespace belfry
