#include "belfry/trainers/commands/weights_file.h"

#include <gmock/gmock.h>

#include "belfry/framework/checkpoint/tensor_files.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/trainers/runs/saved_runs.h"
#include "belfry/trainers/commands/checkpoint_diff.h"

namespace belfry {
namespace weights_file_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<float> floats_in(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class WeightsFileTest : public SavedRunsTest {
 protected:
  // Saves convolutions, a dense layer, batch norm, and a table that is none of these.
  void save_model(const std::string& path, float first = 1) {
    Tensor kernel = counting({2, 1, 2, 3});
    kernel.mutable_data<float>()[0] = first;
    save(path, {{"conv/W", kernel},
                {"conv/W/Adam", counting({2, 1, 2, 3}), false},
                {"conv1/W", counting({2, 2, 3})},
                {"fc/W", counting({2, 3})},
                {"fc/b", counting({3})},
                {"bn/mean/EMA", counting({3}), false, VariableRole::kWeight},
                {"frozen/W", counting({2, 2}), false, VariableRole::kWeight},
                {"table", counting({4, 2})},
                {"other/W/count", counting({2, 3}), false},
                {"Adam/step", Tensor(std::int64_t{9}), false}});
  }
  Safetensors exported(const ExportOptions& options) {
    save_model(at("a"));
    ExportedWeights weights = export_weights(read_checkpoint(at("a")), options);
    permuted_ = weights.permuted;
    const auto bytes = std::as_bytes(std::span(weights.file));
    return Safetensors({bytes.begin(), bytes.end()}, "exported");
  }
  void export_to(const std::string& file, const std::string& path,
                 const ExportOptions& options = {}) {
    write_text_file(files_, file, export_weights(read_checkpoint(path), options).file);
  }
  std::string refusal(const std::string& like, const ImportOptions& options = {}) {
    return message_of<InvalidArgument>(
        [&] { import_weights(at("w"), read_checkpoint(like), at("out"), options, files_); });
  }

  std::vector<std::string> permuted_;
};

TEST_F(WeightsFileTest, HasTheWeightsFrozenOnesToo) {
  const Safetensors file = exported({});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors()) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("bn/mean/EMA", "conv/W", "conv1/W", "fc/W", "fc/b", "frozen/W", "table"));
  EXPECT_EQ(floats_in(file.values(file.tensors().at("fc/b"))), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(file.metadata().at("layout"), "belfry");
  EXPECT_EQ(file.metadata().at("step"), "40");
  EXPECT_THAT(permuted_, IsEmpty());
}

TEST_F(WeightsFileTest, HasTheStateOnDemand) {
  EXPECT_EQ(exported({.state = true}).tensors().size(), 10u);
}

TEST_F(WeightsFileTest, OfTorchPermutesWeightsOfLayersAndTheirSlotsAlone) {
  const Safetensors file = exported({.layout = WeightLayout::kTorch, .state = true});
  EXPECT_THAT(permuted_, ElementsAre("conv/W", "conv/W/Adam", "conv1/W", "fc/W", "frozen/W"));
  const auto& tensors = file.tensors();
  EXPECT_EQ(floats_in(file.values(tensors.at("frozen/W"))), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(tensors.at("fc/W").shape, (Shape{3, 2}));
  EXPECT_EQ(floats_in(file.values(tensors.at("fc/W"))), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  // [out 2, height 1, width 2, in 3] -> [out, in, height, width].
  EXPECT_EQ(tensors.at("conv/W").shape, (Shape{2, 3, 1, 2}));
  EXPECT_EQ(floats_in(file.values(tensors.at("conv/W"))),
            (std::vector<float>{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}));
  // [out 2, width 2, in 3] -> [out, in, width].
  EXPECT_EQ(tensors.at("conv1/W").shape, (Shape{2, 3, 2}));
  EXPECT_EQ(floats_in(file.values(tensors.at("conv1/W"))),
            (std::vector<float>{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}));
  EXPECT_EQ(tensors.at("table").shape, (Shape{4, 2}));
  EXPECT_EQ(tensors.at("other/W/count").shape, (Shape{2, 3})) << "no slot of a variable";
}

TEST_F(WeightsFileTest, ImportedAgainGivesTheSameCheckpointInEitherLayout) {
  save_model(at("a"), 77);
  save_model(at("b"), 1);
  for (const WeightLayout layout : {WeightLayout::kBelfry, WeightLayout::kTorch})
    for (const bool state : {false, true}) {
      export_to(at("w"), at("a"), {.layout = layout, .state = state});
      const ImportedWeights imported =
          import_weights(at("w"), read_checkpoint(at("b")), at("out"), {.overwrite = true}, files_);
      EXPECT_EQ(imported.layout, layout) << "as the file says";
      EXPECT_EQ(imported.kept.size(), state ? 0u : 3u);
      const StoredCheckpoint made = read_checkpoint(at("out"));
      EXPECT_TRUE(compare_checkpoints(made, read_checkpoint(at("a"))).none());
      EXPECT_EQ(made.head.manifest.step, 40u);
      EXPECT_EQ(made.head.manifest.extra.at("seed").integer(), 7);
      EXPECT_EQ(made.head.manifest.tensors.at("table").role, VariableRole::kWeight);
      EXPECT_TRUE(made.head.manifest.tensors.at("table").trainable);
      EXPECT_EQ(made.head.manifest.tensors.at("frozen/W").role, VariableRole::kWeight);
      EXPECT_FALSE(made.head.manifest.tensors.at("frozen/W").trainable);
      EXPECT_EQ(made.head.manifest.tensors.at("Adam/step").role, VariableRole::kState);
    }
}

// A weight, its average, and a frozen weight without one.
std::vector<SavedVariable> averaged(float weight, float average) {
  return {{"w", Tensor({1}, std::vector<float>{weight})},
          {"w/ExponentialMovingAverage", Tensor({1}, std::vector<float>{average}), false,
           VariableRole::kAverage},
          {"frozen", Tensor({1}, std::vector<float>{9}), false, VariableRole::kWeight}};
}

TEST_F(WeightsFileTest, HasTheValuesThatWereValidatedOrThoseThatAreAskedFor) {
  const auto value = [&](const char* validated, WeightChoice choice, const char* name = "w") {
    save(at("a"), averaged(2, 5), 40, validated);
    const ExportedWeights weights = export_weights(read_checkpoint(at("a")), {.weights = choice});
    EXPECT_EQ(weights.tensors, 2u) << "no average by a name of its own";
    const auto bytes = std::as_bytes(std::span(weights.file));
    const Safetensors file({bytes.begin(), bytes.end()}, "exported");
    return cat(floats_in(file.values(file.tensors().at(name)))[0], " ",
               file.metadata().at("weights"));
  };
  EXPECT_EQ(value("average", WeightChoice::kValidated), "5 average");
  EXPECT_EQ(value("raw", WeightChoice::kValidated), "2 raw");
  EXPECT_EQ(value("average", WeightChoice::kRaw), "2 raw");
  EXPECT_EQ(value("raw", WeightChoice::kAverage), "5 average");
  EXPECT_EQ(value("average", WeightChoice::kValidated, "frozen"), "9 average");
  save_model(at("a"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                export_weights(read_checkpoint(at("a")), {.weights = WeightChoice::kAverage});
              }),
              HasSubstr("has no moving averages of its weights"));
}

TEST_F(WeightsFileTest, ImportedIsWhatTheCheckpointPredictsBy) {
  save(at("a"), averaged(2, 5));
  save(at("b"),
       {{"w", Tensor({1}, std::vector<float>{7})}, {"frozen", Tensor({1}, std::vector<float>{8})}});
  export_to(at("w"), at("b"));
  const ImportedWeights imported =
      import_weights(at("w"), read_checkpoint(at("a")), at("out"), {}, files_);
  EXPECT_THAT(imported.begun, ElementsAre("w/ExponentialMovingAverage"));
  export_to(at("w2"), at("out"));
  const Safetensors file(files_.read(at("w2")), "exported");
  EXPECT_EQ(floats_in(file.values(file.tensors().at("w")))[0], 7) << "not the old average";
}

TEST_F(WeightsFileTest, OfNarrowTypesIsWidened) {
  save(at("a"), {{"w", Tensor({2}, std::vector<float>{0, 0})}});
  const auto import = [&](DType dtype, std::span<const std::byte> bytes) {
    std::vector<StoredTensor> tensors{{.name = "w", .dtype = dtype, .shape = {2}}};
    std::string file = lay_out_safetensors(tensors);
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    write_text_file(files_, at("w"), file);
    const ImportedWeights imported =
        import_weights(at("w"), read_checkpoint(at("a")), at("out"), {.overwrite = true}, files_);
    EXPECT_EQ(imported.widened, 1u);
    return floats_in(read_checkpoint(at("out")).values("w"));
  };
  const std::uint16_t f16[] = {0x3C00, 0xC100}, bf16[] = {0x3F80, 0xC020};
  EXPECT_EQ(import(DType::kF16, std::as_bytes(std::span(f16))), (std::vector<float>{1, -2.5}));
  EXPECT_EQ(import(DType::kBF16, std::as_bytes(std::span(bf16))), (std::vector<float>{1, -2.5}));
  const std::int32_t integers[] = {1, 2};
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { import(DType::kI32, std::as_bytes(std::span(integers))); }),
      AllOf(HasSubstr("is i32[2], but the checkpoint"),
            HasSubstr("has f32[2]; write the file with f32, f16 or bf16")));
}

TEST_F(WeightsFileTest, ReplacesNoCheckpointUnasked) {
  save_model(at("a"));
  save_model(at("out"), 5);
  export_to(at("w"), at("a"));
  const auto import = [&](const ImportOptions& options) {
    import_weights(at("w"), read_checkpoint(at("a")), at("out"), options, files_);
  };
  EXPECT_THAT(message_of<IoError>([&] { import({}); }),
              AllOf(HasSubstr(at("out") + " is there"), HasSubstr("(the option overwrite)")));
  EXPECT_EQ(floats_in(read_checkpoint(at("out")).values("conv/W"))[0], 5);
  import({.overwrite = true});
  EXPECT_EQ(floats_in(read_checkpoint(at("out")).values("conv/W"))[0], 1);
}

TEST_F(WeightsFileTest, NamesWhatDoesNotFit) {
  save_model(at("a"));
  export_to(at("w"), at("a"), {.layout = WeightLayout::kTorch});
  EXPECT_THAT(refusal(at("a"), {.layout = WeightLayout::kBelfry}),
              AllOf(HasSubstr(at("w") + ": tensor 'conv/W' at byte "), HasSubstr("is f32[2,3,1,2]"),
                    HasSubstr("has f32[2,1,2,3]; it would fit in the layout torch (the option")));
  save(at("b"), {{"fc/W", counting({2, 3})}});
  EXPECT_THAT(refusal(at("b")),
              AllOf(HasSubstr("tensor 'bn/mean/EMA'"), HasSubstr("has no variable of this name")));
  save(at("c"), {{"fc/V", counting({2, 3})}, {"fc/W", counting({2, 3})}});
  export_to(at("w"), at("b"));
  EXPECT_THAT(refusal(at("c")), AllOf(HasSubstr("has no tensor 'fc/V', which the checkpoint"),
                                      HasSubstr("did you mean 'fc/W'?")));
  EXPECT_FALSE(files_.exists(at("out")));
}

TEST_F(WeightsFileTest, ThatIsNoneOrTooLongIsRefused) {
  save_model(at("a"));
  const auto import = [&] {
    import_weights(at("w"), read_checkpoint(at("a")), at("out"), {}, files_);
  };
  EXPECT_THROW(import(), NotFoundError);
  write_text_file(files_, at("w"), "no such format");
  EXPECT_THROW(import(), IoError);
  write_text_file(files_, at("w"), "");
  std::filesystem::resize_file(at("w"), std::uintmax_t{1} << 40);
  EXPECT_THROW(import(), IoError);
}

// A file of names for save_model().
NameRules names_of_model() {
  return NameRules::parse(
      "needs padding=torch\n"
      "conv.weight = conv/W : out in height width -> out height width in\n"
      "conv1.weight = conv1/W : out in width -> out width in\n"
      "(net.)fc.[a b].weight = fc/W : out in -> in out, along out = 1 *\n"
      "(net.)fc.bias = fc/b\n"
      "bn.running_mean = bn/mean/EMA : frozen\n"
      "frozen = frozen/W\n"
      "table = table\n",
      "mine");
}

TEST_F(WeightsFileTest, ByNamesOfOthersGivesEveryByteBack) {
  save_model(at("a"), 77);
  const NameRules names = names_of_model();
  const ExportedWeights exported = export_weights(read_checkpoint(at("a")), {.names = &names});
  EXPECT_EQ(exported.tensors, 8u);
  write_text_file(files_, at("w"), exported.file);
  const Safetensors file(files_.read(at("w")), "exported");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.tensors().at("net.fc.b.weight").shape, (Shape{2, 2}));

  const ImportedWeights alone =
      import_named_weights(at("w"), names, nullptr, at("alone"), {}, files_);
  EXPECT_EQ(alone.made, 7u);
  const StoredCheckpoint made = read_checkpoint(at("alone")), old = read_checkpoint(at("a"));
  EXPECT_EQ(made.head.manifest.tensors.size(), 7u) << "weights, and no state";
  EXPECT_FALSE(made.head.manifest.tensors.at("bn/mean/EMA").trainable);
  EXPECT_EQ(made.head.manifest.extra.at("needs").at("padding").text(), "torch");
  for (const auto& [name, entry] : made.head.manifest.tensors)
    EXPECT_TRUE(std::ranges::equal(made.values(name), old.values(name))) << name;

  save_model(at("b"), 1);
  const StoredCheckpoint like = read_checkpoint(at("b"));
  const ImportedWeights imported =
      import_named_weights(at("w"), names, &like, at("out"), {}, files_);
  EXPECT_EQ(imported.kept.size(), 3u) << "the state";
  EXPECT_TRUE(compare_checkpoints(read_checkpoint(at("out")), old).none());
  EXPECT_EQ(read_checkpoint(at("out")).head.manifest.step, 40u);
}

TEST_F(WeightsFileTest, InShardsGivesEveryByteBack) {
  save_model(at("a"), 77);
  const NameRules names = names_of_model();
  const StoredCheckpoint old = read_checkpoint(at("a"));
  const ExportedWeights exported =
      export_weight_shards(old, {.names = &names}, at("model"), 60, files_);
  EXPECT_EQ(exported.tensors, 8u);
  // In their order: 12 + 48, 48, 16 + 8 + 16 + 12 and 32 bytes.
  EXPECT_EQ(exported.shards, 4u);
  const TensorFiles stored(at("model"), files_);
  EXPECT_EQ(stored.path(), at("model") + "/model.safetensors.index.json");
  EXPECT_THAT(stored.place_of("bn.running_mean"), HasSubstr("model-00001-of-00004.safetensors"));
  EXPECT_THAT(stored.place_of("table"), HasSubstr("model-00004-of-00004.safetensors"));
  const std::vector<std::byte> index = files_.read(stored.path());
  const JsonValue json =
      JsonValue::parse({reinterpret_cast<const char*>(index.data()), index.size()});
  EXPECT_EQ(json.at("metadata").at("total_size").integer(), 12 + 48 + 48 + 12 + 8 + 16 + 16 + 32);

  import_named_weights(at("model"), names, nullptr, at("back"), {}, files_);
  const StoredCheckpoint made = read_checkpoint(at("back"));
  EXPECT_EQ(made.head.manifest.tensors.size(), 7u);
  for (const auto& [name, entry] : made.head.manifest.tensors)
    EXPECT_TRUE(std::ranges::equal(made.values(name), old.values(name))) << name;

  const ExportedWeights larger =
      export_weight_shards(old, {.names = &names}, at("model"), 1000, files_);
  EXPECT_EQ(larger.shards, 1u);
  EXPECT_THAT(TensorFiles(at("model"), files_).place_of("table"),
              HasSubstr("model-00001-of-00001.safetensors"));
}

TEST_F(WeightsFileTest, ByNamesOfOthersMustFitTheModelUnlessPartial) {
  save_model(at("a"), 77);
  const NameRules names = names_of_model();
  write_text_file(files_, at("w"),
                  export_weights(read_checkpoint(at("a")), {.names = &names}).file);
  save(at("b"), {{"fc/W", counting({2, 3})}, {"fc/b", counting({9})}, {"new", counting({2})}});
  const StoredCheckpoint like = read_checkpoint(at("b"));
  const auto import = [&](bool partial) {
    return import_named_weights(at("w"), names, &like, at("out"), {.partial = partial}, files_);
  };
  EXPECT_THAT(message_of<InvalidArgument>([&] { import(false); }),
              AllOf(HasSubstr(at("w") + ": tensor 'bn.running_mean' at byte "),
                    HasSubstr("by mine, line 6 it becomes 'bn/mean/EMA', which the model lacks")));
  EXPECT_FALSE(files_.exists(at("out")));
  const ImportedWeights imported = import(true);
  EXPECT_EQ(imported.made, 1u);
  EXPECT_EQ(imported.left_out.size(), 5u);
  EXPECT_THAT(imported.missing, ElementsAre("new"));
  EXPECT_THAT(imported.unlike, ElementsAre("fc/b (f32[3] there, f32[9] here)"));
  EXPECT_EQ(floats_in(read_checkpoint(at("out")).values("new")), (std::vector<float>{1, 2}));
}

TEST(WeightLayouts, AreNamedAndRefusedByName) {
  for (const WeightLayout layout : {WeightLayout::kBelfry, WeightLayout::kTorch})
    EXPECT_EQ(find_weight_layout(name_of(layout)), layout);
  EXPECT_THAT(message_of<InvalidArgument>([] { find_weight_layout("keras"); }),
              HasSubstr("there are belfry, torch"));
}

TEST(WeightLayouts, LeaveWhatIsEmptyEmpty) {
  EXPECT_TRUE(permuted({}, {0, 3}, 4, {1, 0}).empty());
  EXPECT_EQ(inverse({0, 3, 1, 2}), (AxisOrder{0, 2, 3, 1}));
}

}  // namespace weights_file_test
}  // namespace belfry
