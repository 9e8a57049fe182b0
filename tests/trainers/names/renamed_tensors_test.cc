#include "belfry/trainers/names/renamed_tensors.h"

#include <cstring>

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace renamed_tensors_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Values = std::map<std::string, Tensor>;
using Types = std::map<std::string, TensorType>;

// 1, 2, 3, ... from `first` on.
Tensor counted(Shape shape, float first = 1) {
  Tensor tensor(std::move(shape), DType::kF32);
  for (float& value : tensor.mutable_data<float>()) value = first++;
  return tensor;
}

TensorSource source_of(const Values& values) {
  TensorSource source{.types = {},
                      .read =
                          [&values](const std::string& name) {
                            const Tensor& tensor = values.at(name);
                            return std::vector<std::byte>(tensor.raw(),
                                                          tensor.raw() + tensor.bytes());
                          },
                      .place = [](const std::string& name) { return cat("FILE: '", name, "'"); }};
  for (const auto& [name, tensor] : values) source.types[name] = {tensor.shape(), tensor.dtype()};
  return source;
}

Values renamed(const Values& values, const NameRules& rules, const RenamingOptions& options = {}) {
  const RenamedTensors all(source_of(values), rules, options);
  Values made;
  for (const auto& [name, target] : all.tensors()) {
    Tensor tensor(target.type.shape, target.type.dtype);
    const std::vector<std::byte> bytes = all.value(name);
    EXPECT_EQ(bytes.size(), tensor.bytes()) << name;
    std::memcpy(tensor.mutable_raw(), bytes.data(), bytes.size());
    made.emplace(name, tensor);
  }
  return made;
}

std::string refusal(const Values& values, const NameRules& rules,
                    const RenamingOptions& options = {}) {
  return message_of<InvalidArgument>([&] { RenamedTensors(source_of(values), rules, options); });
}

std::vector<float> floats(const Tensor& tensor) {
  const auto values = tensor.data<float>();
  return {values.begin(), values.end()};
}

NameRules rules_of(const std::string& text) { return NameRules::parse(text, "mine"); }

const char kGrouped[] =
    "let width = block0/out/W[0]\n"
    "h.{i}.[q k v] = block{i}/qkv/W : out in -> in out, along out = width * *\n"
    "h.{i}.o = block{i}/out/W : out in -> in out\n";

// Four queries of width 4, and two keys and values.
Values grouped() {
  return {{"h.0.q", counted({4, 2}, 10)},
          {"h.0.k", counted({2, 2}, 20)},
          {"h.0.v", counted({2, 2}, 30)},
          {"h.0.o", counted({2, 4}, 40)}};
}

TEST(RenamedTensors, JoinWhatASplitGivesBack) {
  const NameRules rules = rules_of(kGrouped);
  const Values theirs = grouped(), ours = renamed(theirs, rules);
  ASSERT_THAT(ours, SizeIs(2));
  const Tensor& qkv = ours.at("block0/qkv/W");
  EXPECT_EQ(qkv.shape(), (Shape{2, 8}));
  EXPECT_THAT(floats(qkv),
              ElementsAre(10, 12, 14, 16, 20, 22, 30, 32, 11, 13, 15, 17, 21, 23, 31, 33));
  EXPECT_EQ(ours.at("block0/out/W").shape(), (Shape{4, 2}));
  const Values back = renamed(ours, rules, {.way = RenamingWay::kToTheirs});
  EXPECT_EQ(back, theirs);
}

TEST(RenamedTensors, SplitWhatAJoinGivesBack) {
  const NameRules rules = rules_of(
      "gate_up = [gate up]/W : out in -> in out, along out\n"
      "parts = [a b c] : x y -> x y, along y = 1 * 2\n");
  const Values theirs{{"gate_up", counted({4, 2})}, {"parts", counted({2, 5})}};
  const Values ours = renamed(theirs, rules);
  EXPECT_THAT(floats(ours.at("gate/W")), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(floats(ours.at("up/W")), ElementsAre(5, 7, 6, 8));
  EXPECT_THAT(floats(ours.at("a")), ElementsAre(1, 6));
  EXPECT_THAT(floats(ours.at("b")), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(floats(ours.at("c")), ElementsAre(4, 5, 9, 10));
  EXPECT_EQ(renamed(ours, rules, {.way = RenamingWay::kToTheirs}), theirs);
}

TEST(RenamedTensors, MayHaveAPrefixThatExportsWrite) {
  const NameRules rules = rules_of("(model.)a.weight = a/W\n");
  const Values ours{{"a/W", counted({2})}};
  for (const char* const name : {"a.weight", "model.a.weight"})
    EXPECT_EQ(renamed({{name, counted({2})}}, rules), ours);
  EXPECT_THAT(renamed(ours, rules, {.way = RenamingWay::kToTheirs}).begin()->first,
              "model.a.weight");
  EXPECT_THAT(refusal({{"a.weight", counted({2})}, {"model.a.weight", counted({2})}}, rules),
              AllOf(HasSubstr("FILE: 'model.a.weight': by mine, line 1 it is the same as "),
                    HasSubstr("'a.weight', which is there, too; remove one")));
  const Values twice{{"a.weight", counted({2})}, {"model.a.weight", counted({2})}};
  const RenamedTensors partial(source_of(twice), rules, {.partial = true});
  EXPECT_THAT(partial.tensors(), SizeIs(1));
  EXPECT_THAT(partial.left_out(), ElementsAre(HasSubstr("it is the same as 'a.weight'")));
}

TEST(RenamedTensors, OfNarrowTypesAreWidenedAndRoundedOnlyByRule) {
  Tensor half({2}, DType::kBF16);
  const std::uint16_t bits[] = {0x3F80, 0xC020};
  std::memcpy(half.mutable_raw(), bits, sizeof bits);
  EXPECT_THAT(floats(renamed({{"a", half}}, rules_of("a = b")).at("b")), ElementsAre(1, -2.5f));
  const Values wide{{"a", Tensor({2}, std::vector<double>{1, 0.1})}};
  const Types model{{"b", {{2}, DType::kF32}}};
  EXPECT_THAT(
      refusal(wide, rules_of("a = b"), {.model = &model}),
      HasSubstr("it becomes 'b', but it is f64 and that is f32; let the rule round: as f64"));
  const NameRules rounding = rules_of("a = b : as f64");
  const Values ours = renamed(wide, rounding, {.model = &model});
  EXPECT_THAT(floats(ours.at("b")), ElementsAre(1, 0.1f));
  EXPECT_EQ(renamed(ours, rounding, {.way = RenamingWay::kToTheirs}).at("a").dtype(), DType::kF64);
  const Values narrow = renamed({{"b", Tensor({2}, std::vector<float>{1, -2.5f})}},
                                rules_of("a = b : as bf16"), {.way = RenamingWay::kToTheirs});
  EXPECT_EQ(narrow.at("a"), half);
}

TEST(RenamedTensors, OfAJoinAllWidenOrAreRounded) {
  const NameRules rules = rules_of("[a b] = c : x -> x, along x");
  const Tensor wide({1}, std::vector<double>{0.1});
  EXPECT_THAT(refusal({{"a", counted({1})}, {"b", wide}}, rules),
              HasSubstr("FILE: 'b': by mine, line 1 it becomes 'c', but it is f64 and that is f32; "
                        "let the rule round: as f64"));
  EXPECT_THAT(floats(renamed({{"a", counted({1})}, {"b", wide}},
                             rules_of("[a b] = c : x -> x, along x, as f64"))
                         .at("c")),
              ElementsAre(1, 0.1f));
  EXPECT_THAT(refusal({{"a", counted({1})}, {"b", Tensor({1}, DType::kI64)}}, rules),
              HasSubstr("FILE: 'b': by mine, line 1 it becomes 'c', but it is i64"));
}

TEST(RenamedTensors, OfWholeNumbersKeepTheirTypeInAnExport) {
  const Values ours{{"count", Tensor(std::int64_t{3})}};
  EXPECT_EQ(renamed(ours, rules_of("n = count : as bf16"), {.way = RenamingWay::kToTheirs})
                .at("n")
                .dtype(),
            DType::kI64);
}

TEST(RenamedTensors, NeedAModelForTheLengthsOfItsWeights) {
  const NameRules rules =
      rules_of("let half = out/W[1]\na = W : (heads half) in -> in (heads half)\nb = out/W");
  const Values values{{"a", counted({4, 2})}, {"b", counted({2, 2})}};
  EXPECT_THAT(refusal(values, rules),
              HasSubstr("the length half is that of a weight of the model, "
                        "which is not known here; name a checkpoint of it"));
  const Types model{{"W", {{2, 4}, DType::kF32}}, {"out/W", {{2, 2}, DType::kF32}}};
  EXPECT_THAT(renamed(values, rules, {.model = &model}), SizeIs(2));
  const Types empty{{"out/W", {{2, 0}, DType::kF32}}};
  EXPECT_THAT(refusal(values, rules, {.model = &empty}),
              HasSubstr("out/W is [2,0], but a length is above 0"));
}

TEST(RenamedTensors, ThatNoRuleTakesAreErrorsByName) {
  const NameRules rules = rules_of("a = b\nignore *.mask\n");
  const Values values{{"a", counted({1})}, {"h.mask", counted({1})}, {"other", counted({1})}};
  EXPECT_THAT(refusal(values, rules),
              HasSubstr("FILE: 'other': no rule of mine takes it; add one, or leave out what does "
                        "not fit (the option partial)"));
  const RenamedTensors partial(source_of(values), rules, {.partial = true});
  EXPECT_THAT(partial.tensors(), SizeIs(1));
  EXPECT_THAT(partial.left_out(), ElementsAre(HasSubstr("'other': no rule of mine takes it")));
  EXPECT_THAT(
      refusal({{"b", counted({1})}, {"c", counted({1})}}, rules, {.way = RenamingWay::kToTheirs}),
      HasSubstr("FILE: 'c': no rule of mine takes it"));
}

TEST(RenamedTensors, ThatMeetMustBeEqual) {
  const NameRules rules =
      rules_of("head = head/W : out in -> in out\nhead = table\ntokens = table\n");
  const Types tied{{"table", {{2, 3}, DType::kF32}}};
  const Values equal{{"head", counted({2, 3})}, {"tokens", counted({2, 3})}};
  EXPECT_THAT(renamed(equal, rules, {.model = &tied}), SizeIs(1));
  EXPECT_THAT(
      refusal({{"head", counted({2, 3})}, {"tokens", counted({2, 3}, 5)}}, rules, {.model = &tied}),
      AllOf(HasSubstr("FILE: 'tokens': by mine, line 3 it becomes 'table', as does 'head'"),
            HasSubstr("and they differ")));
  const Types own{{"table", {{2, 3}, DType::kF32}}, {"head/W", {{3, 2}, DType::kF32}}};
  EXPECT_THAT(
      renamed({{"head", counted({2, 3})}, {"tokens", counted({2, 3}, 5)}}, rules, {.model = &own}),
      SizeIs(2));
}

TEST(RenamedTensors, OfAJoinMustAllBeThere) {
  Values values = grouped();
  values.erase("h.0.k");
  EXPECT_THAT(refusal(values, rules_of(kGrouped)),
              HasSubstr("FILE: 'h.0.q': by mine, line 2 it makes 'block0/qkv/W' together with "
                        "'h.0.k', which is missing; add that"));
  const RenamedTensors partial(source_of(values), rules_of(kGrouped), {.partial = true});
  EXPECT_THAT(partial.tensors(), SizeIs(1));
}

TEST(RenamedTensors, OfAJoinMustHaveTheLengthsOfTheModel) {
  const Types model{{"block0/qkv/W", {{2, 8}, DType::kF32}},
                    {"block0/out/W", {{4, 2}, DType::kF32}}};
  EXPECT_THAT(renamed(grouped(), rules_of(kGrouped), {.model = &model}), SizeIs(2));
  Values values = grouped();
  values["h.0.q"] = counted({2, 2});
  values["h.0.k"] = counted({4, 2});
  EXPECT_THAT(refusal(values, rules_of(kGrouped), {.model = &model}),
              HasSubstr("'h.0.q' has a length of 2 along out, not 4"));
  values["h.0.k"] = counted({4, 3});
  EXPECT_THAT(refusal(values, rules_of(kGrouped), {.model = &model}),
              HasSubstr("'h.0.k' and 'h.0.q' do not fit together"));
}

TEST(RenamedTensors, MustFitTheModelUnlessPartial) {
  const NameRules rules = rules_of("a.{i} = b{i}/W\n");
  const Values values{{"a.0", counted({2})}, {"a.1", counted({2})}};
  const auto refused = [&](const Types& model) {
    return refusal(values, rules, {.model = &model});
  };
  const TensorType pair{{2}, DType::kF32};
  EXPECT_THAT(refused({{"b0/W", pair}}),
              HasSubstr("FILE: 'a.1': by mine, line 1 it becomes 'b1/W', which the model lacks"));
  EXPECT_THAT(refused({{"b0/W", pair}, {"b1/W", pair}, {"b2/W", pair}}),
              HasSubstr("no tensor becomes 'b2/W', which the model has"));
  EXPECT_THAT(refused({{"b0/W", pair}, {"b1/W", {{3}, DType::kF32}}}),
              AllOf(HasSubstr("it becomes 'b1/W' f32[2], but the model has f32[3]"),
                    HasSubstr("let it start anew (the option partial)")));
  const Types other{{"b0/W", pair}, {"b1/W", {{3}, DType::kF32}}, {"b2/W", pair}};
  const RenamedTensors partial(source_of(values), rules, {.model = &other, .partial = true});
  EXPECT_THAT(partial.tensors(), SizeIs(1));
  EXPECT_THAT(partial.missing(), ElementsAre("b2/W"));
  EXPECT_THAT(partial.unlike(), ElementsAre("b1/W (f32[2] there, f32[3] here)"));
}

TEST(RenamedTensors, ThatAreEmptyStayEmpty) {
  const Values ours = renamed({{"a", counted({0, 3})}}, rules_of("a = b : x y -> y x"));
  EXPECT_EQ(ours.at("b").shape(), (Shape{3, 0}));
}

TEST(RenamedTensors, OfBatchNormKeepTheirMomentsApart) {
  const NameRules rules = find_name_rules("torchvision-resnet");
  const Values ours = renamed({{"layer2.0.bn1.running_mean", counted({2}, 1)},
                               {"layer2.0.bn1.running_var", counted({2}, 5)},
                               {"layer2.0.bn1.num_batches_tracked", Tensor(std::int64_t{3})},
                               {"layer2.0.downsample.0.weight", counted({1, 3, 1, 2})}},
                              rules);
  EXPECT_EQ(ours.at("group1/block0/conv1/bn/mean/EMA"), counted({2}, 1));
  EXPECT_EQ(ours.at("group1/block0/conv1/bn/variance/EMA"), counted({2}, 5));
  EXPECT_THAT(floats(ours.at("group1/block0/shortcut/W")), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(RenamedTensors, OfOlderFilesGetTheNamesOfNewerOnes) {
  const NameRules rules = find_name_rules("vit");
  const std::string layer = "encoder.layers.encoder_layer_1.mlp.";
  const Values ours = renamed({{layer + "linear_1.bias", counted({3})}}, rules);
  EXPECT_EQ(ours, (Values{{"block1/fc0/b", counted({3})}}));
  EXPECT_EQ(renamed(ours, rules, {.way = RenamingWay::kToTheirs}),
            (Values{{layer + "0.bias", counted({3})}}));
}

}  // namespace renamed_tensors_test
}  // namespace belfry
