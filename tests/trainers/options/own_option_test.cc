// Flags that recipes add to those of every training program.
#include "belfry/trainers/options/own_option.h"

#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {
namespace own_flag_test {

using testing::AllOf;
using testing::HasSubstr;

struct Held {
  bool deep = false;
  std::int64_t layers = 2;
  double rate = 0.25;
  std::string name;

  std::vector<OwnOption> flags() {
    return {{.name = "deep", .variable = &deep, .text = "more layers"},
            {.name = "layers",
             .variable = &layers,
             .text = "how many",
             .range = {"a whole number >= 1", [](double x) { return x >= 1; }}},
            {.name = "drop_rate",
             .variable = &rate,
             .text = "of what is zero",
             .range = {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }},
             .unit = "RATE"},
            {.name = "layer_name", .variable = &name, .text = "of the first"}};
  }
};

TrainFlags parse(std::vector<const char*> arguments, std::vector<OwnOption> flags) {
  return parse_flags(arguments, {.program = "test", .own = std::move(flags)});
}

std::string refusal(std::vector<const char*> arguments, std::vector<OwnOption> flags) {
  try {
    parse(std::move(arguments), std::move(flags));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(OwnFlags, SetTheVariablesOfTheProgram) {
  Held held;
  parse({"--deep", "--layers=5", "--drop-rate", "0.5", "--layer_name=fc"}, held.flags());
  EXPECT_TRUE(held.deep);
  EXPECT_EQ(held.layers, 5);
  EXPECT_EQ(held.rate, 0.5);
  EXPECT_EQ(held.name, "fc");
  Held left;
  parse({"--seed=3"}, left.flags());
  EXPECT_EQ(left.rate, 0.25);
  EXPECT_FALSE(left.deep);
}

TEST(OwnFlags, SayWhatTheyTakeWhateverIsWrong) {
  Held held;
  for (const char* const wrong : {"--layers=0", "--layers=1e3", "--layers=99999999999999999999"})
    EXPECT_EQ(refusal({wrong}, held.flags()), std::string(wrong) + " is not a whole number >= 1");
}

TEST(OwnFlags, OfWhichTheLastCountsAsOfOthers) {
  Held held;
  parse({"--drop_rate=0.5", "--drop_rate=0.125", "--deep", "--nodeep"}, held.flags());
  EXPECT_EQ(held.rate, 0.125);
  EXPECT_FALSE(held.deep);
}

TEST(OwnFlags, RefuseWhatOtherFlagsWould) {
  Held held;
  EXPECT_EQ(refusal({"--drop_rate=1"}, held.flags()),
            "--drop_rate=1 is not a number >= 0 and below 1");
  EXPECT_THAT(refusal({"--drop_rate=nan"}, held.flags()), HasSubstr("is not a number >= 0"));
  EXPECT_EQ(refusal({"--layers=0"}, held.flags()), "--layers=0 is not a whole number >= 1");
  EXPECT_THAT(refusal({"--layers=1.5"}, held.flags()), HasSubstr("is not a whole number"));
  EXPECT_THAT(refusal({"--deep=perhaps"}, held.flags()), HasSubstr("--deep=perhaps"));
  EXPECT_THAT(refusal({"--drop_rate"}, held.flags()), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({"--drop_rte=0"}, held.flags()), HasSubstr("did you mean --drop_rate?"));
  EXPECT_EQ(held.rate, 0.25);
}

TEST(OwnFlags, AreShownWithUnitTextAndDefault) {
  Held held;
  const std::string help = parse({"--help"}, held.flags()).help;
  for (const char* part :
       {"Of this program", "--deep", "more layers [false]", "--layers N", "how many [2]",
        "--drop_rate RATE", "of what is zero [0.25]", "--layer_name TEXT", "of the first [none]"})
    EXPECT_THAT(help, HasSubstr(part)) << part;
}

TEST(OwnFlags, TakeOneOfTheirChoicesAlone) {
  std::string size = "small";
  const std::vector<OwnOption> flags{
      {.name = "size", .variable = &size, .text = "of it", .choices = {"small", "large"}}};
  parse({"--size=large"}, flags);
  EXPECT_EQ(size, "large");
  EXPECT_THAT(refusal({"--size=larg"}, flags),
              HasSubstr("--size=larg is none of small, large; did you mean 'large'?"));
  EXPECT_THAT(parse({"--help"}, flags).help, HasSubstr("small|large: of it [large]"));
  size = "medium";
  EXPECT_THAT(refusal({}, flags), HasSubstr("default that cannot be: --size=medium is none of"));
}

TEST(OwnFlags, HaveNamesThatNoOtherFlagHas) {
  double x = 0;
  for (const char* taken : {"seed", "help", "dry_run"})
    EXPECT_THAT(refusal({}, {{taken, &x, ""}}), AllOf(HasSubstr(taken), HasSubstr("another flag")));
  EXPECT_THAT(refusal({}, {{"x", &x, ""}, {"x", &x, ""}}), HasSubstr("another flag"));
  for (const char* wrong : {"", "--x", "Rate", "drop-rate", "1x", "_x"})
    EXPECT_THAT(refusal({}, {{wrong, &x, ""}}), HasSubstr("small letters")) << wrong;
}

TEST(OwnFlags, NeedAVariableWithADefaultThatMayBe) {
  double rate = 2;
  EXPECT_THAT(refusal({}, {{"rate", static_cast<double*>(nullptr), ""}}),
              HasSubstr("'rate' has no variable"));
  EXPECT_THAT(
      refusal({}, {{"rate", &rate, "", {"a number below 1", [](double x) { return x < 1; }}}}),
      HasSubstr("--rate=2 is not a number below 1"));
}

using OwnFlagsOfTrain = TrainTest;

TEST_F(OwnFlagsOfTrain, AreInTheReport) {
  Held held;
  Recipe recipe = small_recipe();
  recipe.flags = held.flags();
  const std::string json = "--json=" + json_.string();
  EXPECT_EQ(run_train({"--max_steps=1", "--drop_rate=0.5", json}, recipe).code, 0);
  EXPECT_EQ(
      report()["flags"],
      (nlohmann::json{{"deep", false}, {"layers", 2}, {"drop_rate", 0.5}, {"layer_name", ""}}));
  const TrainResult refused = run_train({"--drop_rate=-1"}, recipe);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("--drop_rate=-1 is not a number >= 0 and below 1"));
  EXPECT_EQ(run_train({"--max_steps=1", json}).code, 0);
  EXPECT_EQ(report()["flags"], nlohmann::json::object());
}

}  // namespace own_flag_test
}  // namespace belfry
