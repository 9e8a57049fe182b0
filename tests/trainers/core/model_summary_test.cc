#include "belfry/trainers/core/model_summary.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"

namespace belfry {
namespace model_summary_test {

using testing::ElementsAre;
using testing::HasSubstr;

ModelSummary summary_of(const char* model, int batch_size, int towers = 1, int steps = 1) {
  const ModelSpec spec = find_model(model);
  const auto data = synthetic_data(spec.fields, spec.classes, batch_size * towers * steps, 1);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .devices = cpus(towers),
                         .batch_size = batch_size,
                         .batches = {.gradient_accumulation_steps = steps},
                         .session = {.dry_run = true}};
  const Trainer trainer(find_trainer(towers == 1 ? "simple" : "replicated"), std::move(options),
                        *data);
  return summarise(trainer.built().nodes(), steps);
}

TEST(ModelSummary, HasALayerForEachScopeInTheOrderOfTheModel) {
  const ModelSummary summary = summary_of("mlp", 4);
  std::vector<std::string> names;
  for (const LayerSummary& layer : summary.layers) names.push_back(layer.name);
  const auto at = [&](const char* name) { return std::ranges::find(names, name) - names.begin(); };
  ASSERT_LT(at("fc2"), std::ssize(names));
  EXPECT_TRUE(at("fc0") < at("fc1") && at("fc1") < at("fc2"));
  const LayerSummary& layer = summary.layers[static_cast<std::size_t>(at("fc0"))];
  EXPECT_EQ(layer.output, (TensorType{{4, 512}, DType::kF32}));
  EXPECT_EQ(layer.parameters, 784 * 512 + 512);
  EXPECT_EQ(layer.multiply_adds, 4 * 784 * 512);
  EXPECT_GE(layer.bytes, 4 * 512 * 4);
  EXPECT_EQ(summary.samples, 4);
}

TEST(ModelSummary, CountsTheParametersThatPyTorchCounts) {
  EXPECT_EQ(summary_of("resnet50", 1).parameters, 25'557'032);
  EXPECT_EQ(summary_of("resnet20", 2).parameters, 269'722);
  EXPECT_EQ(summary_of("gpt", 1).parameters, 10'795'776);
}

TEST(ModelSummary, CountsFrozenParametersAndSaysHowManyAreTrained) {
  const auto data = smooth_data(8);
  TrainerOptions options{.model = scaled_model,
                         .optimizer = sgd(0.1),
                         .devices = cpus(1),
                         .batch_size = 4,
                         .session = {.dry_run = true}};
  const Trainer trainer(find_trainer("simple"), std::move(options), *data);
  const ModelSummary summary = summarise(trainer.built().nodes());
  EXPECT_EQ(summary.parameters, 4 + 4 * 5 + 5 + 5 + 1);
  EXPECT_EQ(summary.trained, 4 * 5 + 5 + 5 + 1);
  EXPECT_THAT(to_table(summary), HasSubstr("31 of the parameters are trained"));
  EXPECT_EQ(to_json(summary).at("trained_parameters").integer(), 31);
}

// torch.utils.flop_counter counts 16,356,737,024 for two images forward, and 48,598,155,264 with
// the backward pass.
TEST(ModelSummary, CountsHalfOfWhatPyTorchsFlopCounterSays) {
  const ModelSummary summary = summary_of("resnet50", 2);
  EXPECT_EQ(summary.multiply_adds, 16'356'737'024 / 2.0);
  EXPECT_EQ(summary.step_multiply_adds, 48'598'155'264 / 2.0);
}

TEST(ModelSummary, CountsTheBackwardPassOfAllTowersAndBatches) {
  // Each dense layer counts again for its input and its weights. The images have no gradient.
  const double first = 4.0 * 784 * 512, others = 4.0 * (512 * 512 + 512 * 10);
  EXPECT_EQ(summary_of("mlp", 4).multiply_adds, first + others);
  EXPECT_EQ(summary_of("mlp", 4).step_multiply_adds, 2 * first + 3 * others);
  EXPECT_EQ(summary_of("mlp", 4, 2).step_multiply_adds, 2 * (2 * first + 3 * others));
  EXPECT_EQ(summary_of("mlp", 4, 1, 3).step_multiply_adds, 3 * (2 * first + 3 * others));
}

TEST(ModelSummary, GivesAVariableThatNoLayerOwnsALineOfItsOwn) {
  const ModelSummary summary = summary_of("gpt", 1);
  const auto found = std::ranges::find(summary.layers, "positions", &LayerSummary::name);
  ASSERT_NE(found, summary.layers.end());
  EXPECT_EQ(found->parameters, 256 * 384);
  EXPECT_EQ(found->output, (TensorType{{256, 384}, DType::kF32}));
}

TEST(ModelSummary, IsATableAndJson) {
  const ModelSummary summary{.layers = {{"fc", {{2, 3}, DType::kF32}, 1234567, 24, 96}},
                             .samples = 2,
                             .parameters = 1234567,
                             .bytes = 96,
                             .multiply_adds = 24,
                             .step_multiply_adds = 72};
  EXPECT_THAT(to_table(summary), HasSubstr("1,234,567"));
  EXPECT_THAT(to_table(summary), HasSubstr("12 multiply-adds a sample"));
  ModelSummary large = summary;
  large.multiply_adds = 1e15;
  EXPECT_THAT(to_table(large), HasSubstr("  1,000,000,000,000,000  ")) << "columns stay apart";
  const JsonValue json = to_json(summary);
  EXPECT_EQ(json.at("layers").items().front().at("output").text(), "f32[2,3]");
  EXPECT_EQ(json.at("multiply_adds_per_step").number(), 72);
  EXPECT_EQ(json.at("batch_size").integer(), 2);
}

}  // namespace model_summary_test
}  // namespace belfry
