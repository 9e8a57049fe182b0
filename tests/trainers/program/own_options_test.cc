// Rows of options are all that flags, configurations, reports, identities and refusals go by. So
// an option of a trainer of one's own is everywhere at once.
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/core/run_fingerprint.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/flags/help_text.h"

namespace belfry {
namespace own_options_test {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::int64_t spice = 1;

const TrainerKind& spiced() {
  static const TrainerRegistration registered([] {
    TrainerKind kind = find_trainer("simple");
    kind.name = "test_spiced";
    kind.summary = "one tower, of a test";
    kind.options = {
        {.name = "spice",
         .variable = &spice,
         .text = "how hot",
         .range = {"a whole number from 0 to 9", [](double x) { return x >= 0 && x <= 9; }}}};
    return kind;
  }());
  return find_trainer("test_spiced");
}

class OwnOptions : public TrainTest {
 protected:
  OwnOptions() {
    spice = 1;
    spiced();
  }
};

TEST_F(OwnOptions, OfATrainerAreFlagsWithARange) {
  EXPECT_THAT(without_breaks(parse({"--help"}).help),
              HasSubstr("Of the trainer test_spiced: --spice N how hot [1]"));
  EXPECT_THAT(parse({"--help=of the trainer test"}).help, HasSubstr("--spice N"));
  parse({"--trainer=test_spiced", "--devices=cpu:1", "--spice=3"});
  EXPECT_EQ(spice, 3);
  EXPECT_EQ(refusal({"--trainer=test_spiced", "--devices=cpu:1", "--spice=10"}),
            "--spice=10 is not a whole number from 0 to 9");
  EXPECT_THAT(
      refusal({"--trainer=async", "--spice=3"}),
      AllOf(HasSubstr("--spice=3 is of --trainer=test_spiced"), HasSubstr("--trainer=async")));
}

TEST_F(OwnOptions, OfATrainerAreInConfigurationsOfThatTrainerAlone) {
  TrainFlags flags = parse({"--trainer=test_spiced", "--devices=cpu:1", "--spice=3"});
  EXPECT_EQ(flags.config.at("spice").integer(), 3);
  EXPECT_EQ(flags.config.at(kChosen).at("spice").integer(), 3);
  EXPECT_EQ(parse({"--devices=cpu:2"}).config.at(kChosen).find("spice"), nullptr);
}

TEST_F(OwnOptions, OfATrainerAreInTheReport) {
  const std::string json = "--json=" + json_.string();
  EXPECT_EQ(
      run_train({"--max_steps=1", "--devices=cpu:1", "--trainer=test_spiced", "--spice=4", json})
          .code,
      0);
  EXPECT_EQ(report()["spice"], 4);
  EXPECT_EQ(run_train({"--max_steps=1", json}).code, 0);
  EXPECT_FALSE(report().contains("spice"));
}

TEST_F(OwnOptions, OfATrainerAreComparedWithOtherRunsAndProcesses) {
  const auto data = smooth_data(24);
  const auto made = [&] {
    return std::make_unique<Trainer>(
        spiced(), TrainerOptions{.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 8},
        *data);
  };
  const JsonValue before = made()->record().fingerprint();
  spice = 2;
  const auto trainer = made();
  EXPECT_EQ(first_difference(before, trainer->record().fingerprint()),
            "the option spice was 1 and is now 2");
  EXPECT_THAT(agreed_items(trainer->built(), trainer->progress(), trainer->record().fingerprint()),
              Contains(AgreedItem{"the option spice", "2"}));
}

TEST_F(OwnOptions, OfATrainerAreInCompletionsAndTables) {
  const OptionRow row = own_option_rows(spiced())[0];
  EXPECT_THAT(completion_script("x", {&row, 1}), HasSubstr("--spice="));
  EXPECT_THAT(flag_tables({&row, 1}), HasSubstr("| `--spice=N` | how hot | 1 |"));
}

// What changes results is compared, reported and kept, whoever adds it.
TEST(OptionRows, ThatChangeResultsAreEverywhere) {
  const auto data = smooth_data(24);
  const Trainer trainer(find_trainer("simple"),
                        {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 8}, *data);
  const TrainFlags flags = parse({"--devices=cpu:1"});
  int count = 0;
  for (const Option<TrainerOptions>& row : trainer_option_rows()) {
    if (!is_in_fingerprint(row)) continue;
    ++count;
    EXPECT_NE(trainer.record().fingerprint().find(row.fingerprint_key()), nullptr) << row.name;
    EXPECT_NE(find_option(*flags.table, row.name), nullptr) << row.name;
    EXPECT_TRUE(row.value) << row.name << ": no report could have it";
    EXPECT_TRUE(!row.noted || flags.config.find(row.name)) << row.name;
    EXPECT_THAT(parse({"--help"}).help, HasSubstr("--" + row.name));
  }
  EXPECT_GE(count, 6);
}

// Whatever is typed, errors are ours: they name the flag as it was written.
TEST(OptionRows, NameThemselvesInEveryError) {
  const TrainFlags flags = parse({"--devices=cpu:1"});
  for (const Option<TrainFlags>& row : *flags.table) {
    const std::string flag = "--" + row.name;
    for (const char* value : {"", "garbage", "-1", "9e99999", "nan", "=", "\n"}) {
      const std::string argument = cat(flag, "=", value);
      const std::string why = refusal({argument.c_str()});
      if (why == kAccepted) continue;
      EXPECT_THAT(why, testing::StartsWith(flag)) << argument;
      EXPECT_THAT(why, Not(HasSubstr("Could not"))) << argument;
    }
  }
}

TEST(OptionRows, NameTheSpellingOfAnotherProgramInErrors) {
  for (const char* flag :
       {"--num_gpus", "--device", "--num_epochs", "--variable_update", "--num_batches",
        "--use_fp16", "--all_reduce_spec", "--tf_random_seed", "--partition_updates"})
    for (const char* value : {"", "garbage", "-1", "9e99999", "nan", "=", "\n"}) {
      const std::string argument = cat(flag, "=", value);
      EXPECT_THAT(refusal({argument.c_str()}), testing::StartsWith(flag)) << argument;
    }
}

TEST(OptionRows, HaveTheirWordsAndNamesElsewhere) {
  EXPECT_THAT(parse({"--completion"}).help,
              AllOf(HasSubstr("--async) words=\"ordered free\""), HasSubstr("complete"),
                    Not(HasSubstr("--best_metric) words"))));
  EXPECT_THAT(refusal({"--lr=1"}), HasSubstr("unknown flag --lr; did you mean --learning_rate?"));
  EXPECT_THAT(refusal({"--help=nothing"}),
              AllOf(HasSubstr("--help=nothing is no group"), HasSubstr("Inspection")));
}

}  // namespace own_options_test
}  // namespace belfry
