#include "belfry/trainers/models/models.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/images.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/vit.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/hash.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace models_test {

std::int64_t trained_elements(const char* name) {
  std::int64_t elements = 0;
  for (const TensorType& type : trainable_types(find_model(name))) {
    EXPECT_EQ(type.dtype, DType::kF32);
    elements += type.shape.elements();
  }
  return elements;
}

// 161 = 53 convolutions, gamma and beta of each, and two of the last layer.
TEST(Models, Resnet50HasThePublishedNumberOfParameters) {
  EXPECT_EQ(trained_elements("resnet50"), 25'557'032);
  EXPECT_EQ(4 * trained_elements("resnet50"), 102'228'128) << "bytes of its gradients";
  EXPECT_EQ(trainable_types(find_model("resnet50")).size(), 161u);
}

// These are the numbers of torchvision's models.
TEST(Models, ResnetsOfEveryDepthHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(trained_elements("resnet18"), 11'689'512);
  EXPECT_EQ(trained_elements("resnet34"), 21'797'672);
  EXPECT_EQ(trained_elements("resnet101"), 44'549'160);
  EXPECT_EQ(trained_elements("resnet152"), 60'192'808);
}

// These are the numbers of torchvision's vgg16: 13 convolutions and three dense layers.
TEST(Models, Vgg16HasThePublishedNumberOfParameters) {
  EXPECT_EQ(trained_elements("vgg16"), 138'357'544);
  EXPECT_EQ(trainable_types(find_model("vgg16")).size(), 32u);
}

// Filters 432 + 6 * 2304 + 4608 + 5 * 9216 + 18432 + 5 * 36864, gamma and beta of 7 * 16 + 6 * 32 +
// 6 * 64 channels, and 64 * 10 + 10: He et al.'s 0.27 million.
TEST(Models, Resnet20HasThePublishedNumberOfParameters) {
  EXPECT_EQ(trained_elements("resnet20"), 267'696 + 2 * 688 + 650);
  EXPECT_EQ(trained_elements("resnet20"), 269'722);
}

TEST(Models, SmallOnesHaveTheParametersOfTheirLayers) {
  EXPECT_EQ(trained_elements("mlp"), 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
  EXPECT_EQ(trained_elements("mnist"),
            32 * 9 + 32 + 64 * 9 * 32 + 64 + 7 * 7 * 64 * 128 + 128 + 128 * 10 + 10);
}

// The parameters of a model of PyTorch with the same layers. Tokens and positions come first. Each
// block has two norms, queries, keys and values, their projection, and two dense layers. The last
// norm and the head follow.
TEST(Models, GptHasTheParametersOfItsLayers) {
  constexpr std::int64_t c = 384, v = 65, t = 256;
  const std::int64_t block = 2 * 2 * c + c * 3 * c + 3 * c + c * c + c + 2 * 4 * c * c + 5 * c;
  EXPECT_EQ(trained_elements("gpt"), v * c + t * c + 6 * block + 2 * c + c * v);
}

// As of torch.nn.LSTM and torch.nn.GRU, with an embedding before and a dense layer after them.
TEST(Models, RecurrentOnesHaveTheParametersOfTheirLayers) {
  constexpr std::int64_t h = 512, v = 65;
  const auto elements = [](std::int64_t gates) {
    return v * h + 2 * (2 * gates * h * h + 2 * gates * h) + h * v + v;
  };
  EXPECT_EQ(trained_elements("lstm"), elements(4));
  EXPECT_EQ(trained_elements("gru"), elements(3));
}

// A tied head, as in examples/gpt.cc, has no weights beside the table of tokens.
TEST(Models, GptMayTieItsHeadToTheTableOfTokens) {
  Graph graph;
  Tower tower(graph);
  const Output tokens = placeholder(graph, "tokens", DType::kI32, {2, 64});
  models::gpt(
      tower, tokens, tokens,
      {.layers = 4, .heads = 4, .width = 128, .sequence_length = 64, .tie_embeddings = true});
  constexpr std::int64_t c = 128, v = 65, t = 64;
  std::int64_t elements = 0;
  for (const Variable& variable : tower.trainables()) elements += variable.shape().elements();
  const std::int64_t block = 2 * 2 * c + c * 3 * c + 3 * c + c * c + c + 2 * 4 * c * c + 5 * c;
  EXPECT_EQ(elements, v * c + t * c + 4 * block + 2 * c);
}

// As GPT-2 begins: 0.02 / sqrt(2 * 8 blocks) = 0.005.
TEST(Models, GptMayBeginSmallerWhereItAddsToShortcuts) {
  const auto deviations = [](const std::string& architecture, bool scaled) {
    Graph graph;
    Tower tower(graph);
    const Output tokens = placeholder(graph, "tokens", DType::kI32, {2, 8});
    models::gpt(tower, tokens, tokens,
                {.architecture = architecture,
                 .layers = 8,
                 .heads = 2,
                 .width = 64,
                 .sequence_length = 8,
                 .scaled_init = scaled});
    Session session(graph, {.threads = 1});
    std::map<std::string, double> found;
    for (const Variable& variable : tower.trainables()) {
      const Tensor value = session.read(variable);
      double sum = 0;
      for (const float w : value.data<float>()) sum += w * w;
      found[std::string(variable.name())] = std::sqrt(sum / static_cast<double>(value.elements()));
    }
    return found;
  };
  for (const auto& [architecture, last] :
       {std::pair("gpt2", "block7/fc1/W"), std::pair("llama", "block7/down/W")}) {
    const auto plain = deviations(architecture, false), scaled = deviations(architecture, true);
    for (const std::string name : {last, "block0/attention/out/W"}) {
      EXPECT_NEAR(plain.at(name), 0.02, 0.001) << name;
      EXPECT_NEAR(scaled.at(name), 0.005, 0.00025) << name;
    }
    EXPECT_NEAR(scaled.at("block0/attention/qkv/W"), 0.02, 0.001);
    EXPECT_EQ(scaled.at("tokens/table"), plain.at("tokens/table"));
  }
}

std::int64_t trained_elements(const models::GptSize& size) {
  std::int64_t elements = 0;
  for (const TensorType& type : trainable_types(find_model("gpt", 0, {.gpt = size})))
    elements += type.shape.elements();
  return elements;
}

// Sets what --preset=name, the first of `flags`, stands for.
void choose_preset(const std::vector<OwnOption>& flags, std::string_view name) {
  for (const OwnOption::Choice& choice : flags[0].stands_for) {
    if (choice.name != name) continue;
    for (const std::string& written : choice.options) {
      const std::size_t equals = written.find('=');
      for (const OwnOption& option : flags)
        if (option.name == written.substr(0, equals))
          option.read({option.name, written.substr(equals + 1), "--" + written});
    }
  }
}

models::GptSize preset(std::string_view name) {
  models::GptSize size;
  std::string chosen;
  choose_preset(models::gpt_flags(size, chosen), name);
  return size;
}

std::int64_t elements_of_vit(std::string_view preset) {
  models::VitSize size;
  std::string chosen;
  data::ImageOptions images{.format = "tfrecord"};
  std::vector<OwnOption> flags = models::vit_flags(size, chosen);
  for (const OwnOption& flag : data::image_flags(images)) flags.push_back(flag);
  choose_preset(flags, preset);
  size.image_size = images.side;
  size.classes = images.classes;
  Graph graph;
  Tower tower(graph);
  const Output image =
      placeholder(graph, "image", DType::kF32, {1, size.image_size, size.image_size, 3});
  models::vit(tower, image, placeholder(graph, "label", DType::kI32, {1}), size);
  std::int64_t elements = 0;
  for (const Variable& variable : tower.trainables()) elements += variable.shape().elements();
  return elements;
}

// The numbers of `transformers`' GPT-2 and Llama 3.
TEST(Models, PresetsHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(trained_elements(preset("gpt2-124m")), 124'439'808);
  EXPECT_EQ(trained_elements(preset("gpt2-355m")), 354'823'168);
  EXPECT_EQ(trained_elements(preset("llama-8b")), 8'030'261'248);
}

// The numbers of timm's vit_tiny_patch16_224, vit_small_patch16_224 and vit_base_patch16_224.
TEST(Models, VisionTransformersHaveThePublishedNumberOfParameters) {
  EXPECT_EQ(elements_of_vit("ti16"), 5'717'416);
  EXPECT_EQ(elements_of_vit("s16"), 22'050'664);
  EXPECT_EQ(elements_of_vit("b16"), 86'567'656);
}

TEST(Models, GptWithoutBiasesHasOnlyWeights) {
  models::GptSize size{.layers = 1, .heads = 2, .width = 8, .sequence_length = 4};
  const std::int64_t with = trained_elements(size);
  size.bias = false;
  EXPECT_EQ(with - trained_elements(size), 3 * 8 + 8 + 4 * 8 + 8 + 3 * 8);
}

TEST(Models, GptRefusesSizesThatCannotBe) {
  const auto message = [](const models::GptSize& size) {
    return message_of<OptionMistake>([&] { find_model("gpt", 0, {.gpt = size}); });
  };
  EXPECT_EQ(message({.heads = 5}), "heads=5 does not divide the width 384 (the option width)");
  EXPECT_EQ(message({.kv_heads = 4}), "kv_heads=4 does not divide the 6 heads (the option heads)");
  EXPECT_THAT(message({.architecture = "llama", .heads = 2, .width = 6}),
              testing::HasSubstr("an even width of each head, not 3"));
  EXPECT_THAT(message({.rope_theta = 500000}), testing::HasSubstr("whose positions are learned"));
  EXPECT_THAT(message({.architecture = "bert"}), testing::HasSubstr("none of gpt2, llama"));
  EXPECT_EQ(message({.sequence_length = 16, .positions = 8}),
            "positions=8 is below the 16 tokens of a sample (the option sequence_length); 0 makes "
            "as many");
  EXPECT_THAT(message({.architecture = "llama", .positions = 512}),
              testing::HasSubstr("positions=512 has no use for llama"));
}

// As weights of a model that was trained on longer samples.
TEST(Models, GptMayHaveMorePositionsThanASampleHasTokens) {
  models::GptSize size{.layers = 1, .heads = 2, .width = 8, .sequence_length = 4};
  const std::int64_t as_many = trained_elements(size);
  size.positions = 10;
  EXPECT_EQ(trained_elements(size) - as_many, 6 * 8);
  EXPECT_EQ(find_model("gpt", 0, {.gpt = size}).fields[0].shape, (Shape{4}));
}

TEST(Models, TakeTokensOfTheirOwnNumberOrAnother) {
  const ModelSpec spec = find_model("gpt");
  EXPECT_EQ(spec.fields[0], (Dataset::Field{"tokens", DType::kI32, {256}}));
  EXPECT_EQ(spec.fields[1], (Dataset::Field{"label", DType::kI32, {256}}));
  EXPECT_EQ(find_model("gpt", 0, {.gpt = models::GptSize{.sequence_length = 16}}).fields[1].shape,
            (Shape{16}));
  EXPECT_THAT(message_of<InvalidArgument>([] { find_model("gpt", 28); }),
              testing::AllOf(testing::HasSubstr("image_size=28: the model gpt has no images"),
                             testing::HasSubstr("(the option sequence_length)")));
  EXPECT_THAT(message_of<InvalidArgument>(
                  [] { find_model("mlp", 0, {.gpt = models::GptSize{.layers = 8}}); }),
              testing::HasSubstr("the model mlp has no GptSize; that is for gpt"));
  EXPECT_THAT(message_of<InvalidArgument>([] { find_model("mlp", 0, {.sequence_length = 8}); }),
              testing::AllOf(testing::HasSubstr("sequence_length=8: the model mlp has no tokens"),
                             testing::HasSubstr("for the models gpt, lstm and gru")));
}

class EveryGpt : public testing::TestWithParam<const char*> {};

// The bits are equal for every number of towers.
TEST_P(EveryGpt, TrainsAlikeOnOneTwoAndFourDevices) {
  const ModelSpec spec = find_model(
      "gpt", 0,
      {.gpt = models::GptSize{
           .architecture = GetParam(), .kv_heads = 2, .sequence_length = 6, .dropout = 0.1}});
  const auto data = synthetic_data(spec.fields, spec.classes, 4, 1);
  std::string one;
  for (const int devices : {1, 2, 4}) {
    TrainerOptions options{.model = spec.model,
                           .optimizer = spec.optimizer,
                           .aggregation = {.allreduce = devices > 1 ? "collective" : ""},
                           .batch_size = 4 / devices,
                           .shards = 4,
                           .max_steps = 2};
    options.devices.clear();
    for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local("CPU", d));
    Trainer trainer(find_trainer(devices > 1 ? "replicated" : "simple"), std::move(options), *data);
    EXPECT_EQ(k_dependence(trainer.built()), "");
    trainer.train();
    const std::string hash = params_hash(trainer.session(), trainer.graph());
    EXPECT_EQ(one.empty() ? hash : one, hash) << devices;
    one = hash;
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, EveryGpt, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

// The 256 tokens are work enough for the weights of a shard.
TEST(Models, GptHasEightShardsByDefaultOnAnyNumberOfDevices) {
  const ModelSpec spec = find_model("gpt");
  const auto data = synthetic_data(spec.fields, spec.classes, 8, 1);
  for (const int devices : {1, 2, 4}) {
    TrainerOptions options{.model = spec.model,
                           .optimizer = spec.optimizer,
                           .aggregation = {.allreduce = devices > 1 ? "collective" : ""},
                           .batch_size = 8 / devices};
    options.devices.clear();
    for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local("CPU", d));
    options.session.dry_run = true;
    Trainer trainer(find_trainer(devices > 1 ? "replicated" : "simple"), std::move(options), *data);
    EXPECT_EQ(trainer.built().options().shards, 8);
    EXPECT_EQ(k_dependence(trainer.built()), "");
  }
}

TEST(Models, TakeImagesOfTheirOwnSizeOrAnother) {
  const ModelSpec spec = find_model("resnet50");
  ASSERT_EQ(spec.fields.size(), 2u);
  EXPECT_EQ(spec.fields[0], (Dataset::Field{"image", DType::kF32, {224, 224, 3}}));
  EXPECT_EQ(spec.fields[1], (Dataset::Field{"label", DType::kI32, {}}));
  EXPECT_EQ(spec.classes, 1000);
  EXPECT_EQ(find_model("resnet20").fields[0].shape, (Shape{32, 32, 3}));
  EXPECT_EQ(find_model("mnist").fields[0].shape, (Shape{28, 28, 1}));
  EXPECT_EQ(find_model("resnet20", 8).fields[0].shape, (Shape{8, 8, 3}));
  EXPECT_EQ(trainable_types(find_model("resnet20", 8)), trainable_types(find_model("resnet20")));
  EXPECT_EQ(trainable_types(find_model("mlp", 4))[0].shape, (Shape{16, 512}));
}

TEST(Models, RefuseUnknownNamesAndSizes) {
  try {
    find_model("resnet5");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "unknown model 'resnet5'; did you mean 'resnet50'? (models: mnist, mlp, resnet20, "
                 "resnet18, resnet34, resnet50, resnet101, resnet152, vgg16, gpt, lstm, gru)");
  }
  EXPECT_THROW(find_model("mlp", -1), InvalidArgument);
  EXPECT_THAT(model_names(),
              testing::ElementsAre("mnist", "mlp", "resnet20", "resnet18", "resnet34", "resnet50",
                                   "resnet101", "resnet152", "vgg16", "gpt", "lstm", "gru"));
}

bool takes_text(const std::string& model) { return find_model(model).fields[0].name == "tokens"; }

// One of each kind. Updates of vgg16 take longer than the others take to learn.
class EveryModel : public testing::TestWithParam<std::string> {};

// A model can learn the random labels of one batch by heart.
TEST_P(EveryModel, LearnsASmallSyntheticBatch) {
  if (kSanitized && GetParam() == std::string_view("resnet50")) GTEST_SKIP() << "resnet20 does";
  const bool text = takes_text(GetParam());
  const ModelSpec spec = find_model(GetParam(), text ? 0 : 16, {.sequence_length = text ? 8 : 0});
  const auto data = synthetic_data(spec.fields, spec.classes, 8, 7);
  struct Losses final : Callback {
    void after_step(Trainer& trainer, const StepInfo&) override {
      values.push_back(trainer.metric("loss"));
      accuracy = trainer.metric("accuracy");
    }
    std::vector<double> values;
    double accuracy = 0;
  };
  const auto losses = std::make_shared<Losses>();
  Trainer trainer(find_trainer("replicated"),
                  {.model = spec.model,
                   .optimizer = spec.optimizer,
                   .devices = {DeviceSpec("/cpu:0"), DeviceSpec("/cpu:1")},
                   .batch_size = 4,
                   .epochs = 12,
                   .callbacks = {losses}},
                  *data);
  trainer.train();
  ASSERT_EQ(losses->values.size(), 12u);
  // At first the loss is near that of guessing, e.g. log(10) = 2.3.
  EXPECT_NEAR(losses->values[0], std::log(spec.classes), 2.5);
  EXPECT_LT(losses->values.back(), 0.8 * losses->values.front());
  EXPECT_GE(losses->accuracy, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         testing::Values("mnist", "mlp", "resnet20", "resnet18", "resnet50", "gpt",
                                         "gru"),
                         [](const auto& test) { return test.param; });

// Smoothed targets make the loss of guessing larger, and training ends with other weights.
TEST(Models, SmoothTheirLabels) {
  const auto loss = [](double smoothing) {
    const ModelSpec spec = find_model("mlp", 4, {.label_smoothing = smoothing});
    const auto data = synthetic_data(spec.fields, spec.classes, 8, 7);
    Trainer trainer(find_trainer("simple"),
                    {.model = spec.model, .optimizer = sgd(1), .batch_size = 8, .epochs = 10},
                    *data);
    trainer.train();
    return trainer.metric("loss");
  };
  // If the target is spread over all classes, guessing is best: log(10).
  EXPECT_GE(loss(1), std::log(10) - 1e-5);
  EXPECT_GT(loss(0.5), loss(0) + 0.1);
}

// Windows of a side of 65, 33, 17, 9 and 5 pixels leave as many on all sides anyway. In even sides
// the odd pixel is elsewhere.
TEST(Models, ResnetMayPadAsPyTorch) {
  const auto logits = [](PaddingStyle style, std::int64_t side) {
    Graph graph;
    Tower tower(graph);
    const Output image = placeholder(graph, "image", DType::kF32, {1, side, side, 3});
    const Output label = placeholder(graph, "label", DType::kI32, {1});
    models::resnet(tower, image, label, 18, {.padding = style});
    Tensor pixels({1, side, side, 3}, DType::kF32);
    float value = 0;
    for (float& pixel : pixels.mutable_data<float>()) pixel = std::sin(value += 0.7f);
    Session session(graph);
    const FeedValue feeds[] = {{image, pixels}};
    return session.run(tower.outputs().at(0).value, feeds);
  };
  const PaddingStyle same = find_padding_style("same"), torch = find_padding_style("torch");
  EXPECT_EQ(logits(same, 65), logits(torch, 65));
  EXPECT_NE(logits(same, 64), logits(torch, 64));
}

// The shortcut acts like a 1x1 convolution whose filter is the identity over the existing channels.
TEST(Models, ShortcutsOfResnet20SubsampleAndPadWithZeros) {
  Graph graph;
  Tower tower(graph);
  const Output image = placeholder(graph, "image", DType::kF32, {1, 4, 4, 3});
  const Output label = placeholder(graph, "label", DType::kI32, {1});
  models::resnet20(tower, image, label);
  std::vector<Output> shortcuts;
  for (std::size_t i = 0; i < graph.size(); ++i)
    if (graph.node(i).name().ends_with("/shortcut")) shortcuts.push_back(graph.node(i).output());
  ASSERT_EQ(shortcuts.size(), 2u);
  Session session(graph);
  const Tensor filter = session.run(shortcuts[0]);
  ASSERT_EQ(filter.shape(), (Shape{32, 1, 1, 16}));
  for (std::size_t out = 0; out < 32; ++out)
    for (std::size_t in = 0; in < 16; ++in)
      EXPECT_EQ(filter.data<float>()[out * 16 + in], out == in ? 1 : 0) << out << " " << in;
}

}  // namespace models_test
}  // namespace belfry
