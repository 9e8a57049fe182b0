#include "belfry/trainers/commands/subcommands.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace subcommands_test {

using testing::AllOf;
using testing::HasSubstr;

// Describes what ran.
std::string outcome(std::vector<const char*> arguments) {
  std::string said;
  const auto run = [&](std::span<const char* const> rest, const std::string& program) {
    said = cat(program, " with ", rest.size());
    return 7;
  };
  const std::vector<Subcommand> commands = {{"list", "lists", run},
                                            {"check", "checks", run, {"sums"}}};
  try {
    return cat(run_subcommand(commands, "A tool.", arguments, "tool"), ": ", said);
  } catch (const FlagError& error) {
    return error.what();
  }
}

TEST(Subcommands, GetWhatFollowsTheirName) {
  EXPECT_EQ(outcome({"list"}), "7: tool list with 0");
  EXPECT_EQ(outcome({"check", "--help", "x"}), "7: tool check with 2");
}

TEST(Subcommands, AreNamedWhereNoneOrAnUnknownOneIsGiven) {
  EXPECT_EQ(outcome({}), "tool needs a command: list or check (see --help)");
  EXPECT_THAT(outcome({"lsit"}),
              AllOf(HasSubstr("no command 'lsit'"), HasSubstr("there are list, check")));
  EXPECT_THAT(outcome({"chek"}), HasSubstr("did you mean 'check'? (there are list, check; see"));
}

TEST(Subcommands, AreNamedToWhoGivesOneOfTheirsAlone) {
  EXPECT_THAT(outcome({"sums"}), HasSubstr("no command 'sums'; did you mean 'tool check sums'?"));
}

TEST(Subcommands, SayTheirVersion) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(outcome({"--version"}), "0: ");
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::ContainsRegex("^tool of Belfry [0-9]+[.][0-9]+[.][0-9]+\n$"));
}

TEST(Subcommands, AreListedByHelp) {
  for (const char* help : {"--help", "-h", "help"}) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(outcome({help}), "0: ");
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                AllOf(HasSubstr("Usage: tool COMMAND"), HasSubstr("  list        lists\n")));
  }
}

}  // namespace subcommands_test
}  // namespace belfry
