// What the tensors of a checkpoint are, and which of them hold the weights.
#include "belfry/framework/checkpoint/weight_choice.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/tests/framework/checkpoint/checkpoint_test_support.h"

namespace belfry {
namespace weight_choice_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

// A trained weight and its average, a frozen weight, a moment of batch norm, a slot and a counter.
struct Trained {
  Trained() {
    make("conv/W", DType::kF32, {2}, true, "");
    make("conv/W/ExponentialMovingAverage", DType::kF32, {2}, false, kAverageVariables);
    make("frozen/W", DType::kF32, {2}, false, "");
    make("bn/mean/EMA", DType::kF32, {2}, false, "");
    make("conv/W/Adam", DType::kF32, {2}, false, kStateVariables);
    make("Adam/step", DType::kI64, {}, false, kStateVariables);
  }

  void make(const std::string& name, DType dtype, Shape shape, bool trainable,
            std::string_view role) {
    VariableOptions options{.dtype = dtype,
                            .initializer = init::zeros(),
                            .trainable = trainable,
                            .collections = {std::string(kGlobalVariables)}};
    if (!role.empty()) options.collections.emplace_back(role);
    variables[name] = graph.create_variable({name, std::move(shape), options}, At());
  }
  void set(Session& session, const std::string& name, float value) {
    session.write(variables.at(name), floats({value, value}));
  }

  Graph graph;
  std::map<std::string, Variable> variables;
};

class WeightChoiceTest : public CheckpointTest {
 protected:
  // Saves values that tell the tensors apart.
  void save_trained(const char* validated = "average") {
    Trained trained;
    Session session(trained.graph, {.threads = 1});
    trained.set(session, "conv/W", 1);
    trained.set(session, "conv/W/ExponentialMovingAverage", 2);
    trained.set(session, "frozen/W", 3);
    trained.set(session, "bn/mean/EMA", 4);
    trained.set(session, "conv/W/Adam", 5);
    remove_tree(files_, path_);
    save_checkpoint(session, path_, JsonValue::object().set(kValidatedWeights, validated));
  }
  std::map<std::string, std::string> roles() {
    std::map<std::string, std::string> result;
    for (const auto& [name, entry] : read_checkpoint_head(path_).manifest.tensors)
      result[name] = cat(name_of(entry.role), entry.trainable ? "" : ", frozen",
                         entry.average_of.empty() ? "" : " of " + entry.average_of);
    return result;
  }
  std::map<std::string, std::string> chosen(WeightChoice choice) {
    return choose_weights(read_checkpoint_head(path_).manifest, choice, path_).tensors;
  }
};

// The manifest as older versions wrote it, without roles.
std::string as_older(std::string text) {
  for (const char* member : {"role", "trainable"})
    for (std::size_t at = 0; (at = text.find(cat("\"", member, "\":"))) != text.npos;)
      text.erase(at, text.find('\n', at) + 1 - at);
  const std::string before = text.substr(0, text.rfind("\"crc32\""));
  const std::uint32_t crc = crc32_of(std::as_bytes(std::span(before)));
  return cat(before, "\"crc32\": \"", hex(crc, 8), "\"\n}\n");
}

const std::map<std::string, std::string> kRoles = {
    {"conv/W", "weight"},
    {"conv/W/ExponentialMovingAverage", "average, frozen of conv/W"},
    {"frozen/W", "weight, frozen"},
    {"bn/mean/EMA", "weight, frozen"},
    {"conv/W/Adam", "state, frozen"},
    {"Adam/step", "state, frozen"}};

TEST_F(WeightChoiceTest, GoesByTheRolesThatTheManifestKeeps) {
  save_trained();
  EXPECT_EQ(roles(), kRoles);
  const StoredCheckpoint stored = read_checkpoint(path_);
  EXPECT_EQ(stored.head.manifest.tensors.at("frozen/W").file, "model.safetensors");
}

TEST_F(WeightChoiceTest, IsThatOfTheTrainingUnlessAnotherIsAskedFor) {
  const auto raw = ElementsAre(Pair("bn/mean/EMA", "bn/mean/EMA"), Pair("conv/W", "conv/W"),
                               Pair("frozen/W", "frozen/W"));
  const auto averages =
      ElementsAre(Pair("bn/mean/EMA", "bn/mean/EMA"),
                  Pair("conv/W", "conv/W/ExponentialMovingAverage"), Pair("frozen/W", "frozen/W"));
  save_trained("average");
  EXPECT_THAT(chosen(WeightChoice::kValidated), averages);
  EXPECT_THAT(chosen(WeightChoice::kRaw), raw);
  save_trained("raw");
  EXPECT_THAT(chosen(WeightChoice::kValidated), raw);
  EXPECT_THAT(chosen(WeightChoice::kAverage), averages);
}

TEST_F(WeightChoiceTest, NamesACheckpointWithoutAverages) {
  save();
  EXPECT_THAT(chosen(WeightChoice::kValidated), ElementsAre(Pair("fc/w", "fc/w")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { chosen(WeightChoice::kAverage); }),
              AllOf(HasSubstr(path_), HasSubstr("has no moving averages of its weights")));
}

TEST_F(WeightChoiceTest, FindsRolesInCheckpointsOfOlderVersions) {
  Manifest manifest;
  manifest.files["model.safetensors"] = manifest.files["state.safetensors"] = {};
  const auto add = [&](const char* name, const char* in, DType dtype, Shape shape) {
    manifest.tensors[name] = {.file = in, .dtype = dtype, .shape = std::move(shape)};
  };
  add("conv/W", "model.safetensors", DType::kF32, {2});
  add("frozen/W", "state.safetensors", DType::kF32, {2});
  add("bn/mean/EMA", "state.safetensors", DType::kF32, {2});
  add("conv/W/Adam", "state.safetensors", DType::kF32, {2});
  add("conv/W/ExponentialMovingAverage", "state.safetensors", DType::kF32, {2});
  add("ExponentialMovingAverage/num_updates", "state.safetensors", DType::kI64, {});
  add("Adam/step", "state.safetensors", DType::kI64, {});
  add("loss_scale", "state.safetensors", DType::kF32, {});
  add("loss_scale/good_steps", "state.safetensors", DType::kI64, {});
  const Manifest read = Manifest::parse(as_older(manifest.str()), "manifest.json");
  EXPECT_TRUE(read.tensors.at("conv/W").trainable);
  EXPECT_FALSE(read.tensors.at("frozen/W").trainable);
  std::vector<std::string> weights, averages, state;
  for (const auto& [name, entry] : read.tensors)
    (entry.role == VariableRole::kWeight    ? weights
     : entry.role == VariableRole::kAverage ? averages
                                            : state)
        .push_back(name);
  EXPECT_THAT(weights, UnorderedElementsAre("conv/W", "frozen/W", "bn/mean/EMA"));
  EXPECT_THAT(averages, ElementsAre("conv/W/ExponentialMovingAverage"));
  EXPECT_THAT(state, UnorderedElementsAre("conv/W/Adam", "ExponentialMovingAverage/num_updates",
                                          "Adam/step", "loss_scale", "loss_scale/good_steps"));
}

TEST_F(WeightChoiceTest, RefusesAnAverageOfAnotherType) {
  save_trained();
  Manifest manifest = read_checkpoint_head(path_).manifest;
  manifest.tensors.at("conv/W/ExponentialMovingAverage").average_of = "Adam/step";
  EXPECT_THAT(message_of<IoError>([&] { Manifest::parse(manifest.str(), "manifest.json"); }),
              AllOf(HasSubstr("conv/W/ExponentialMovingAverage"), HasSubstr("no weight of its")));
}

// A graph of the weights alone, and of an optimizer of its own.
TEST_F(WeightChoiceTest, SetsWeightsAndLeavesStateAsItIs) {
  save_trained();
  for (const WeightChoice choice : {WeightChoice::kValidated, WeightChoice::kRaw}) {
    Trained trained;
    Session session(trained.graph, {.threads = 1});
    session.write(trained.variables.at("Adam/step"), Tensor(std::int64_t{9}));
    const LoadedWeights loaded = load_weights(session, path_, choice);
    const auto read = [&](const char* name) {
      return session.read(trained.variables.at(name)).data<float>()[0];
    };
    EXPECT_EQ(read("conv/W"), choice == WeightChoice::kRaw ? 1 : 2);
    EXPECT_EQ(read("frozen/W"), 3);
    EXPECT_EQ(read("bn/mean/EMA"), 4);
    EXPECT_EQ(read("conv/W/Adam"), 0) << "a slot is no weight";
    EXPECT_EQ(session.read(trained.variables.at("Adam/step")).item<std::int64_t>(), 9);
    EXPECT_THAT(loaded.taken, ElementsAre("bn/mean/EMA", "conv/W", "frozen/W"));
    EXPECT_TRUE(loaded.initial.empty() && loaded.left_out.empty() && loaded.unlike.empty());
  }
}

TEST_F(WeightChoiceTest, RefusesAModelThatSharesCountersAlone) {
  save_trained();
  Graph graph;
  variable(graph, "other", {2}, {.initializer = init::zeros()});
  graph.create_variable(
      {"Adam/step",
       {},
       {.dtype = DType::kI64,
        .initializer = init::zeros(),
        .trainable = false,
        .collections = {std::string(kGlobalVariables), std::string(kStateVariables)}}},
      At());
  Session session(graph, {.threads = 1});
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { load_weights(session, path_); }),
      AllOf(HasSubstr("no weight of the checkpoint " + path_ + " fits this model"),
            HasSubstr("it has bn/mean/EMA, conv/W, frozen/W"), HasSubstr("the model has other")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { restore_weights(session, path_); }),
              HasSubstr("has no weight 'other'"));
}

}  // namespace weight_choice_test
}  // namespace belfry
