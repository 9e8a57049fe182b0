#include "belfry/trainers/names/name_rules.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/trainers/names/named_weights.h"

namespace belfry {
namespace name_rules_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string refusal(const std::string& text) {
  return message_of<InvalidArgument>([&] { NameRules::parse(text, "mine"); });
}

TEST(NamePattern, FindsNumbersAndGivesTheNameBack) {
  const NamePattern theirs("layer{g+1}.{b}.conv{n}.weight"), ours("group{g}/block{b}/conv{n}/W");
  const auto numbers = theirs.numbers_in("layer2.10.conv3.weight");
  ASSERT_TRUE(numbers);
  EXPECT_THAT(*numbers, ElementsAre(Pair("b", 10u), Pair("g", 1u), Pair("n", 3u)));
  EXPECT_EQ(ours.name(*numbers), "group1/block10/conv3/W");
  EXPECT_EQ(ours.numbers_in("group1/block10/conv3/W"), numbers);
  EXPECT_EQ(theirs.name(*numbers), "layer2.10.conv3.weight");
}

TEST(NamePattern, FitsNothingElse) {
  const NamePattern pattern("layer{g+1}.weight");
  for (const char* const name :
       {"layer0.weight", "layer01.weight", "layer.weight", "layer1.weight2", "layer1",
        "xlayer1.weight", "layer-1.weight", "layer11111111111111111111.weight"})
    EXPECT_FALSE(pattern.numbers_in(name)) << name;
  const NamePattern same("h.{i}.{i}");
  EXPECT_TRUE(same.numbers_in("h.2.2"));
  EXPECT_FALSE(same.numbers_in("h.2.3"));
}

TEST(AxisPattern, Transposes) {
  const AxisPattern axes("out in", "in out");
  EXPECT_EQ(axes.arranged(Shape{3, 2}, {}), (Shape{2, 3}));
  const std::vector<std::byte> values{std::byte{1}, std::byte{2}, std::byte{3},
                                      std::byte{4}, std::byte{5}, std::byte{6}};
  const std::vector<std::byte> turned = axes.arranged(values, {3, 2}, 1, {});
  EXPECT_THAT(turned, ElementsAre(std::byte{1}, std::byte{3}, std::byte{5}, std::byte{2},
                                  std::byte{4}, std::byte{6}));
  EXPECT_EQ(axes.back().arranged(turned, {2, 3}, 1, {}), values);
}

TEST(AxisPattern, PartsAxesAndJoinsThem) {
  // Rows of two heads, whose elements are in pairs here and in halves there.
  const AxisPattern axes("(heads pair two) in", "in (heads two pair)");
  const AxisLengths given{{"heads", 2}, {"two", 2}};
  EXPECT_EQ(axes.arranged(Shape{8, 1}, given), (Shape{1, 8}));
  std::vector<std::byte> values;
  for (int i = 0; i < 8; ++i) values.push_back(static_cast<std::byte>(i));
  const std::vector<std::byte> halves = axes.arranged(values, {8, 1}, 1, given);
  std::vector<int> found;
  for (const std::byte value : halves) found.push_back(std::to_integer<int>(value));
  EXPECT_THAT(found, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_EQ(axes.back().arranged(halves, {1, 8}, 1, given), values);
}

TEST(AxisPattern, LetsAxesOfLengthOneComeAndGo) {
  const AxisPattern axes("1 1 width", "width");
  EXPECT_EQ(axes.arranged(Shape{1, 1, 5}, {}), (Shape{5}));
  EXPECT_EQ(axes.back().arranged(Shape{5}, {}), (Shape{1, 1, 5}));
}

TEST(AxisPattern, SaysWhatDoesNotFit) {
  const AxisPattern axes("(heads half) in", "in (heads half)");
  const auto refused = [&](const Shape& shape, const AxisLengths& given) {
    return message_of<InvalidArgument>([&] { axes.arranged(shape, given); });
  };
  EXPECT_THAT(refused({4}, {}), HasSubstr("has 2 axes, but the tensor is [4]"));
  EXPECT_THAT(refused({4, 2}, {}),
              HasSubstr("the lengths of heads and half are unknown; say one: let half = ..."));
  EXPECT_THAT(refused({4, 2}, {{"heads", 3}}),
              HasSubstr("axis 0 of [4,2] has a length of 4, not a multiple of 3"));
}

TEST(NameRules, AreReadLineByLine) {
  const NameRules rules = NameRules::parse(
      "# a model\n"
      "needs padding=torch\n"
      "let width = block0/out/W[0]\n"
      "let heads = 4\n"
      "\n"
      "(model.)h.{i}.[q k v].weight = block{i}/qkv/W : out in -> in out, along out = width * *\n"
      "h.{i}.gate_up = block{i}/[gate up]/W : out in -> in out, along out, as bf16\n"
      "mean = bn/mean/EMA : frozen\n"
      "ignore *.mask\n",
      "mine");
  EXPECT_THAT(rules.needs, ElementsAre(Pair("padding", "torch")));
  EXPECT_THAT(rules.ignored, ElementsAre("*.mask"));
  ASSERT_EQ(rules.rules.size(), 3u);
  const NameRule& join = rules.rules[0];
  EXPECT_TRUE(join.joins());
  EXPECT_EQ(join.line, 6);
  EXPECT_TRUE(join.theirs[1][0].numbers_in("model.h.2.k.weight"));
  EXPECT_TRUE(join.theirs[1][1].numbers_in("h.2.k.weight"));
  EXPECT_EQ(join.axes->str(), "out in -> in out");
  EXPECT_EQ(join.along, "out");
  EXPECT_THAT(join.sizes, ElementsAre("width", "*", "*"));
  EXPECT_TRUE(rules.rules[1].splits());
  EXPECT_EQ(rules.rules[1].their_type, DType::kBF16);
  EXPECT_FALSE(rules.rules[2].trained);
}

TEST(NameRules, ThatAreWrongAreRefusedByLine) {
  EXPECT_THAT(refusal(""), HasSubstr("mine: has no rule"));
  EXPECT_THAT(refusal("# x\na b\n"), HasSubstr("mine, line 2: no rule: write THEIRS = OURS"));
  EXPECT_THAT(refusal("h.{i} = block"), HasSubstr("both sides must have the same numbers"));
  EXPECT_THAT(refusal("h.{I} = b{I}"), HasSubstr("a number is written {i}, or {i+1}"));
  EXPECT_THAT(refusal("h.{i}{j} = b{i}/{j}"), HasSubstr("two numbers need text between them"));
  EXPECT_THAT(refusal("h.{i = b{i}"), HasSubstr("'{' and '}' do not match"));
  EXPECT_THAT(refusal("[a b] = c"), HasSubstr("a list needs the axis"));
  EXPECT_THAT(refusal("[a b] = [c d] : x -> x, along x"), HasSubstr("only one side"));
  EXPECT_THAT(refusal("a = c : x -> x, along x"), HasSubstr("no use without a list"));
  EXPECT_THAT(refusal("[a b] = c : x -> x, along y"), HasSubstr("has no such axis of its own"));
  EXPECT_THAT(refusal("[a b] = c : x -> x, along x = 1 2 3"),
              HasSubstr("there are 3 lengths for 2 tensors"));
  EXPECT_THAT(refusal("[a b] = c : x -> x, along x = width *"),
              HasSubstr("line 1: the length 'width' is unknown; say it: let width = ..."));
  EXPECT_THAT(refusal("a = b : x y -> x"), HasSubstr("both sides must have the same axes"));
  EXPECT_THAT(refusal("a = b : x x -> x x"), HasSubstr("the axis x is twice"));
  EXPECT_THAT(refusal("a = b : (x y -> x y"), HasSubstr("parentheses do not match"));
  EXPECT_THAT(refusal("a = b : Out -> Out"), HasSubstr("'Out' is no name of an axis"));
  EXPECT_THAT(refusal("a = b : flip"), HasSubstr("'flip' is no step; there are AXES -> AXES"));
  EXPECT_THAT(refusal("a = b : as i32"), HasSubstr("only f16, bf16, f32 and f64"));
  EXPECT_THAT(refusal("a = b : as int"), HasSubstr("is none of F16"));
  EXPECT_THAT(refusal("let x = 0\na = b"), HasSubstr("a length is above 0"));
  EXPECT_THAT(refusal("let x = 2\nlet x = 3\na = b"),
              HasSubstr("line 2: 'x' has a length already"));
  EXPECT_THAT(refusal("needs x=2\nneeds x=3\na = b"),
              HasSubstr("line 2: 'x' needs to be '2' already; remove one"));
}

TEST(NeededValue, IsComparedAsWhatTheOptionIs) {
  EXPECT_TRUE(is_needed_value(1e-6, "1e-6"));
  EXPECT_TRUE(is_needed_value(1e-6, "0.000001"));
  EXPECT_TRUE(is_needed_value(500000.0, "500000"));
  EXPECT_TRUE(is_needed_value(8, "8"));
  EXPECT_FALSE(is_needed_value(1e-5, "1e-6"));
  EXPECT_FALSE(is_needed_value(8, "eight"));
  EXPECT_TRUE(is_needed_value(false, "false"));
  EXPECT_TRUE(is_needed_value(true, "1"));
  EXPECT_FALSE(is_needed_value(true, "false"));
  EXPECT_FALSE(is_needed_value(false, "torch"));
  EXPECT_TRUE(is_needed_value("torch", "torch"));
  EXPECT_FALSE(is_needed_value("same", "torch"));
}

TEST(NameRules, OfOtherProgramsAreKnown) {
  EXPECT_THAT(known_name_rules(),
              testing::IsSupersetOf({"gpt2", "llama", "torchvision-resnet", "vit"}));
  for (const std::string& name : known_name_rules())
    EXPECT_THAT(find_name_rules(name).rules, testing::Not(IsEmpty())) << name;
  EXPECT_THAT(message_of<InvalidArgument>([] { find_name_rules("lama"); }),
              AllOf(HasSubstr("there are no names 'lama'; there are gpt2, "),
                    HasSubstr("did you mean 'llama'?")));
  EXPECT_THROW(find_name_rules("none/such.names"), NotFoundError);
}

}  // namespace name_rules_test
}  // namespace belfry
