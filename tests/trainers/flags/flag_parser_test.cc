#include "belfry/trainers/flags/flag_parser.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/flags/flag_spellings.h"
#include "belfry/trainers/program/program.h"

namespace belfry {
namespace flag_parser_test {

using testing::AllOf;
using testing::HasSubstr;

struct Parsed {
  int iters = 20;
  std::string devices = "cpu:2", help;
  bool verbose = false, check = true;
};

Parsed parse(std::vector<const char*> arguments) {
  Parsed parsed;
  FlagParser parser("A program.", "test");
  parser.add("-n,--iters", parsed.iters, -9, 99, "N", "runs [20]");
  parser.add("--devices", parsed.devices, "LIST", "where [cpu:2]");
  parser.add("-v,--verbose", parsed.verbose, "say more [false]");
  parser.add("--check", parsed.check, "0|1", "look at the results [1]");
  parsed.help = parser.parse(arguments);
  return parsed;
}

std::string refusal(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(FlagParser, ReadsLettersAsItReadsNames) {
  EXPECT_EQ(parse({}).iters, 20);
  EXPECT_EQ(parse({"-n", "8"}).iters, 8);
  EXPECT_EQ(parse({"-n8"}).iters, 8);
  EXPECT_EQ(parse({"-n=8"}).iters, 8);
  EXPECT_EQ(parse({"--iters=8"}).iters, 8);
  EXPECT_EQ(parse({"-n", "-1"}).iters, -1);
  EXPECT_EQ(parse({"-n", "8", "--iters", "9", "-n7"}).iters, 7);
  EXPECT_TRUE(parse({"-v"}).verbose);
  const Parsed both = parse({"-v", "-n", "8", "--devices=cpu:4"});
  EXPECT_TRUE(both.verbose);
  EXPECT_EQ(both.devices, "cpu:4");
  EXPECT_THAT(parse({"-h"}).help, HasSubstr("-n,--iters N"));
}

TEST(FlagParser, SaysTheVersion) {
  EXPECT_THAT(parse({"--version"}).help,
              testing::ContainsRegex(" of Belfry [0-9]+[.][0-9]+[.][0-9]+\n$"));
  EXPECT_EQ(parse({"--version=false"}).help, "");
  EXPECT_THAT(parse({"-h"}).help, HasSubstr("--version"));
}

TEST(FlagParser, RefusesUnknownLettersAndMissingValues) {
  EXPECT_THAT(refusal({"-g", "8"}), HasSubstr("'-g' is no flag"));
  EXPECT_THAT(refusal({"-"}), HasSubstr("'-' is no flag"));
  EXPECT_THAT(refusal({"n"}), HasSubstr("'n' is no flag"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("-n needs a value"));
  EXPECT_THAT(refusal({"-n="}), HasSubstr("-n needs a value"));
  EXPECT_THAT(refusal({"-n", "--devices"}), HasSubstr("-n needs a value, but --devices follows"));
  EXPECT_THAT(refusal({"--iter=3"}), HasSubstr("did you mean --iters?"));
}

TEST(FlagParser, KeepsHowAValueWasWritten) {
  int iters = 0;
  const auto parsed = [&](std::vector<const char*> arguments) {
    FlagParser parser("A program.", "test");
    const auto read = [&](const WrittenFlag& flag) { read_integer(flag, 1, 99, iters); };
    parser.add("-n,--iters", read, "N", "runs [20]", "20");
    parser.parse(arguments);
    EXPECT_EQ(parser.given("--iters"), !arguments.empty());
    return parser.flag("--iters");
  };
  EXPECT_EQ(parsed({"-n", "8"}).written, "-n 8");
  EXPECT_EQ(iters, 8);
  EXPECT_EQ(parsed({"-n=8"}).written, "-n 8");
  EXPECT_EQ(parsed({"-n8"}).shown_name(), "-n 8");
  EXPECT_EQ(parsed({"--iters", "8"}).written, "--iters=8");
  EXPECT_EQ(parsed({"--iters=8"}).shown_name(), "--iters");
  EXPECT_EQ(parsed({"--iters=8"}).value, "8");
  EXPECT_EQ(parsed({}).written, "--iters=20");
  EXPECT_EQ(iters, 20) << "what it is otherwise is read, too";
}

TEST(FlagParser, RefusesValuesThatItsVariablesDoNotTake) {
  EXPECT_EQ(refusal({"-n", "100"}), "-n 100 is not a whole number between -9 and 99");
  EXPECT_EQ(refusal({"--iters=2.5"}), "--iters=2.5 is not a whole number between -9 and 99");
  EXPECT_EQ(refusal({"--check=2"}), "--check=2 is neither true (or 1) nor false (or 0)");
  EXPECT_FALSE(parse({"--check=0"}).check);
  EXPECT_TRUE(parse({"--check", "on"}).check);
}

TEST(FlagParser, SetsVariablesToWhatAFunctionMakesOfTheText) {
  std::string word = "none", flag_text = "none";
  const auto parse_word = [](std::string_view text) {
    require(text != "bad", "'bad' is no word");
    return std::string(text.substr(1));
  };
  const auto read = [&](std::vector<const char*> arguments) {
    FlagParser parser("A program.", "test");
    parser.add_parsed("-w,--word", word, parse_word, "WORD", "its first letter is left out [none]");
    parser.add_parsed(
        "--flag", flag_text, [](const WrittenFlag& flag) { return flag.written; }, "TEXT",
        "as it is written [x]", "x");
    parser.parse(arguments);
  };
  read({});
  EXPECT_EQ(word, "none") << "a flag that is not given changes nothing";
  EXPECT_EQ(flag_text, "--flag=x") << "but for one with a value otherwise";
  read({"-w", "xyz", "--flag", "a"});
  EXPECT_EQ(word, "yz");
  EXPECT_EQ(flag_text, "--flag=a");
  try {
    read({"-w", "bad"});
    ADD_FAILURE() << "accepted";
  } catch (const FlagError& error) {
    EXPECT_STREQ(error.what(), "-w bad: 'bad' is no word");
  }
}

TEST(FlagParser, SetsNumbersThatAreAllowed) {
  double share = 0.5;
  std::optional<double> rate;
  const auto read = [&](std::vector<const char*> arguments) {
    const auto allowed = [](double x) { return x >= 0 && x <= 1; };
    FlagParser parser("A program.", "test");
    parser.add_number("--share", share, "a number from 0 to 1", allowed, "X", "a share [0.5]");
    parser.add_number("--rate", rate, "a number from 0 to 1", allowed, "X", "a rate [none]");
    parser.parse(arguments);
  };
  read({"--share=1"});
  EXPECT_EQ(share, 1);
  EXPECT_FALSE(rate.has_value());
  read({"--rate=0.25"});
  EXPECT_EQ(rate, 0.25);
  for (const char* wrong : {"--share=2", "--share=x", "--share=inf"}) try {
      read({wrong});
      ADD_FAILURE() << wrong << " was accepted";
    } catch (const FlagError& error) {
      EXPECT_EQ(error.what(), std::string(wrong) + " is not a number from 0 to 1");
    }
  EXPECT_EQ(share, 1);
}

TEST(FlagParser, TakesOneArgumentWithoutAName) {
  const auto folder_of = [](std::vector<const char*> arguments) {
    FlagParser parser("A program.", "test");
    std::string folder = ".";
    bool verbose = false;
    parser.add_argument("FOLDER", folder, "where [.]");
    parser.add("--verbose", verbose, "say more [false]");
    const std::string help = parser.parse(arguments);
    return help.empty() ? folder : help;
  };
  EXPECT_EQ(folder_of({}), ".");
  EXPECT_EQ(folder_of({"--verbose", "a b"}), "a b");
  EXPECT_EQ(folder_of({"-"}), "-");
  EXPECT_THAT(folder_of({"-h"}), AllOf(HasSubstr("[FOLDER]"), HasSubstr("where [.]")));
  EXPECT_THROW(folder_of({"a", "b"}), FlagError);
  EXPECT_THROW(folder_of({""}), FlagError);
  EXPECT_THROW(folder_of({"--"}), FlagError);
  EXPECT_THROW(folder_of({"-x"}), FlagError);
}

TEST(FlagParser, TakesSeveralArgumentsInOrder) {
  std::string in, out = "none";
  const auto parsed = [&](std::vector<const char*> arguments) {
    FlagParser parser("A program.", "test");
    parser.add_argument("IN", in, "what", FlagParser::Needed::kYes);
    parser.add_argument("OUT", out, "where");
    return parser.parse(arguments);
  };
  EXPECT_EQ(parsed({"a"}), "");
  EXPECT_EQ(in + out, "anone");
  EXPECT_EQ(parsed({"b", "c"}), "");
  EXPECT_EQ(in + out, "bc");
  EXPECT_THAT(parsed({"--help"}), HasSubstr("IN [OUT]"));
  EXPECT_THROW(parsed({"a", "b", "c"}), FlagError);
  EXPECT_THROW(parsed({}), FlagError);
}

TEST(FlagParser, TakesAllArgumentsThatFollow) {
  std::vector<std::string> runs;
  bool json = false;
  const auto parsed = [&](std::vector<const char*> arguments) {
    FlagParser parser("A program.", "test");
    parser.add_arguments("RUN", runs, "each");
    parser.add("--json", json, "as JSON");
    return parser.parse(arguments);
  };
  EXPECT_EQ(parsed({"a", "--json", "b", "c"}), "");
  EXPECT_EQ(runs, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(json);
  EXPECT_THAT(parsed({"-h"}), HasSubstr("RUN..."));
  EXPECT_THROW(parsed({"--json"}), FlagError);
}

TEST(FlagParser, TranslatesSpellings) {
  FlagParser parser("A program.", "test");
  int iters = 20;
  parser.add("-n,--iters", iters, 1, 99, "N", "runs [20]");
  parser.add_spellings({renamed("rounds", "N", "iters"), renamed("iters", "N", "nothing"),
                        renamed("turns", "N", "elsewhere"), refused("laps", "run instead")});
  const auto why = [&](std::vector<const char*> arguments) -> std::string {
    try {
      parser.parse(arguments);
    } catch (const FlagError& error) {
      return error.what();
    }
    return parser.flag("--iters").written;
  };
  EXPECT_EQ(why({"--rounds=3"}), "--rounds=3");
  EXPECT_EQ(iters, 3);
  EXPECT_EQ(parser.flag("--iters").shown_name(), "--rounds=3");
  EXPECT_EQ(why({"--iters=4"}), "--iters=4") << "the program's own flag";
  EXPECT_EQ(why({"--turns=4"}),
            "--turns=4 stands for --elsewhere=4, which this program does not have");
  EXPECT_EQ(why({"--laps=2"}), "--laps=2: run instead");
  EXPECT_EQ(why({"-n", "2", "--rounds=3"}),
            "-n 2 and --rounds=3, which stands for --iters=3, contradict each other; leave one of "
            "them out");
}

TEST(FlagValues, ReadBytesWithBinaryUnits) {
  EXPECT_EQ(parse_bytes("-b", "8"), 8);
  EXPECT_EQ(parse_bytes("-b", "0"), 0);
  EXPECT_EQ(parse_bytes("-b", "1K"), 1024);
  EXPECT_EQ(parse_bytes("-b", "3k"), 3072);
  EXPECT_EQ(parse_bytes("-b", "128M"), 134217728);
  EXPECT_EQ(parse_bytes("-b", "2g"), 2147483648);
  EXPECT_EQ(parse_bytes("-b", "8589934591G"), std::int64_t{8589934591} << 30);
  EXPECT_EQ(parse_bytes("-b", "3t"), std::int64_t{3} << 40);
}

TEST(FlagValues, RefuseWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "K", "-1", "1.5K", "1KB", "1 K", "K1", "0x10", "1P"})
    EXPECT_THROW(parse_bytes("-b", text), FlagError) << text;
  EXPECT_THROW(parse_bytes("-b", "8589934592G"), FlagError);
  EXPECT_THROW(parse_bytes("-b", "8388608T"), FlagError);
  EXPECT_THROW(parse_bytes("-b", "99999999999999999999"), FlagError);
}

TEST(Arguments, AreWhatFollowsTheProgramsName) {
  const char* const argv[] = {"program", "--a", "b"};
  EXPECT_EQ(program_arguments(3, argv).size(), 2u);
  EXPECT_EQ(program_arguments(3, argv)[0], argv[1]);
  EXPECT_TRUE(program_arguments(1, argv).empty());
  EXPECT_TRUE(program_arguments(0, nullptr).empty());
}

TEST(ShortNames, AreSeparatedByBlanks) {
  EXPECT_EQ(short_names(parse_devices("cpu:0,cpu:2")), "CPU:0 CPU:2");
  EXPECT_EQ(short_names({}), "");
}

}  // namespace flag_parser_test
}  // namespace belfry
