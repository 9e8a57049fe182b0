// Flags that are refused, and what the errors say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {
namespace flag_mistakes_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(Flags, SuggestTheNearestNameForUnknownOnes) {
  EXPECT_EQ(refusal({"--bath_size=3"}), "unknown flag --bath_size; did you mean --batch_size?");
  EXPECT_EQ(refusal({"--qqqqqqqqq"}), "unknown flag --qqqqqqqqq; see --help");
  // The older name of a flag leads to it, too.
  EXPECT_EQ(refusal({"--partition_update=1"}),
            "unknown flag --partition_update; did you mean --zero_stage?");
}

TEST(Flags, RefuseWhatIsNoFlag) {
  EXPECT_THAT(refusal({"cpu:4"}), HasSubstr("'cpu:4' is no flag"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("'-n' is no flag"));
  EXPECT_THAT(refusal({"--"}), HasSubstr("'--' is no flag"));
  EXPECT_THAT(refusal({""}), HasSubstr("is no flag"));
}

TEST(Flags, RefuseMissingValues) {
  EXPECT_EQ(refusal({"--epochs"}), "--epochs needs a value");
  EXPECT_EQ(refusal({"--epochs="}), "--epochs needs a value");
  EXPECT_EQ(refusal({"--json", ""}), "--json needs a value");
  EXPECT_EQ(refusal({"--json", "--max_steps=1"}),
            "--json needs a value, but --max_steps=1 follows");
}

TEST(Flags, RefuseNumbersThatAreNone) {
  for (const char* argument : {"--epochs=three", "--epochs=1.5", "--batch_size=8x", "--seed=-1",
                               "--learning_rate=fast", "--max_steps=99999999999999999999"})
    EXPECT_THAT(refusal({argument}), HasSubstr(std::string(argument).substr(2, 4))) << argument;
}

TEST(Flags, RefuseNumbersOutOfRange) {
  EXPECT_THAT(refusal({"--epochs=0"}), HasSubstr("--epochs=0 is not a whole number between 1"));
  EXPECT_THAT(refusal({"--batch_size=0"}),
              HasSubstr("--batch_size=0 is not a whole number between 1"));
  EXPECT_THAT(refusal({"--batch_size", "-4"}),
              HasSubstr("--batch_size=-4 is not a whole number between 1"));
  EXPECT_THAT(refusal({"--batch_size=3000000000"}), HasSubstr("--batch_size=3000000000"));
  EXPECT_THAT(refusal({"--max_steps=-1"}), HasSubstr("--max_steps=-1"));
  EXPECT_THAT(refusal({"--threads=-1"}), HasSubstr("--threads=-1"));
  EXPECT_THAT(refusal({"--gradient_repacking=-1"}), HasSubstr("--gradient_repacking=-1"));
}

TEST(Flags, SayInOneSentenceWhatTheyAllow) {
  EXPECT_EQ(refusal({"--epochs=three"}),
            "--epochs=three is not a whole number between 1 and 2147483647");
  EXPECT_EQ(refusal({"--seed=-1"}),
            "--seed=-1 is not a whole number between 0 and 18446744073709551615");
  EXPECT_EQ(refusal({"--bucket_mb=1e999"}),
            "--bucket_mb=1e999 is not a number between 0 and 1048576");
  EXPECT_EQ(refusal({"--dry_run=maybe"}),
            "--dry_run=maybe is neither true (or 1) nor false (or 0)");
  EXPECT_EQ(refusal({"--fuse=2"}), "--fuse=2 is neither true (or 1) nor false (or 0)");
  EXPECT_EQ(refusal({"--parameter_device=gpu", "--trainer=async"}),
            "--parameter_device=gpu is neither spread nor cpu");
}

TEST(Flags, RefuseLearningRatesThatAreNegativeOrNotFinite) {
  for (const char* argument : {"--learning_rate=nan", "--learning_rate=inf", "--learning_rate=-inf",
                               "--learning_rate=-0.1"})
    EXPECT_THAT(refusal({argument}), HasSubstr("is not a finite number >= 0")) << argument;
  EXPECT_THAT(refusal({"--learning_rate", "-1"}), HasSubstr("--learning_rate=-1"));
  EXPECT_EQ(parse({"--learning_rate=0"}).optimizer.learning_rate, 0.0);
}

TEST(Flags, NameTheFlagThatOthersCallOtherwise) {
  const std::pair<const char*, const char*> meant[] = {{"--lr=0.1", "--learning_rate"},
                                                       {"--bs=8", "--batch_size"},
                                                       {"--wd=0", "--weight_decay"},
                                                       {"--gpus=2", "--devices"},
                                                       {"--learing_rate=1", "--learning_rate"}};
  for (const auto& [given, ours] : meant)
    EXPECT_THAT(refusal({given}), HasSubstr(cat("; did you mean ", ours, "?"))) << given;
}

TEST(Flags, RefuseDivisionsThatCannotBe) {
  EXPECT_THAT(refusal({"--trainer=async", "--uneven=pad"}),
              AllOf(HasSubstr("--uneven=pad"), HasSubstr("--trainer=async does not take")));
  EXPECT_THAT(refusal({"--trainer=async", "--tower_weights=2,1"}),
              AllOf(HasSubstr("--tower_weights=2,1"), HasSubstr("--trainer=async")));
  EXPECT_EQ(parse({"--trainer=async", "--uneven=error"}).trainer.batches.uneven, Uneven::kError);
  EXPECT_THAT(refusal({"--uneven=wait"}), AllOf(HasSubstr("--uneven"), HasSubstr("weight")));
  EXPECT_EQ(refusal({"--tower_weights=1"}),
            "--tower_weights has 1 where there are 2 devices; give one weight for each");
  EXPECT_THAT(refusal({"--tower_weights=1,,2"}),
              AllOf(HasSubstr("--tower_weights=1,,2: a number is missing"), HasSubstr("as 2,1")));
  EXPECT_EQ(refusal({"--tower_weights=1,0"}),
            "--tower_weights: 0 is not a number from 1e-9 to 1e6");
  for (const char* wrong : {"--tower_weights=1,", "--tower_weights=,", "--tower_weights=1,x",
                            "--tower_weights=1,0", "--tower_weights=1,-1", "--tower_weights=1,nan",
                            "--tower_weights=1,inf", "--tower_weights=1 2"})
    EXPECT_THAT(refusal({wrong}), HasSubstr("--tower_weights")) << wrong;
  EXPECT_THAT(refusal({"--tower_weights=100,1", "--batch_size=4"}),
              AllOf(HasSubstr("--tower_weights=100,1 leaves CPU:1 none of the 8"),
                    HasSubstr("--batch_size=4")));
  EXPECT_THAT(refusal({"--tower_weights=100,1", "--global_batch_size=8"}),
              HasSubstr("none of the 8 examples that --global_batch_size=8 on 2 devices makes"));
}

}  // namespace flag_mistakes_test
}  // namespace belfry
