#include "belfry/examples/bench/strategy_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace strategy_list_test {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StrategyList, TakesNamesSpecsAndAutoWithEitherDash) {
  const StrategyList list = parse_strategies("halving-doubling,auto,ring#2:64k:naive-cpu");
  EXPECT_THAT(list.names, ElementsAre("halving_doubling", "auto", "ring#2:64k:naive_cpu"));
  EXPECT_TRUE(list.automatic);
  EXPECT_FALSE(list.all);
}

TEST(StrategyList, HasEachStrategyForAll) {
  const StrategyList list = parse_strategies("all,auto");
  std::vector<std::string> names = strategy_names();
  names.emplace_back("auto");
  EXPECT_EQ(list.names, names);
  EXPECT_TRUE(list.all);
  EXPECT_TRUE(list.automatic);
}

TEST(StrategyList, RefusesWhatIsUnknownOrThereTwice) {
  const auto error = [](const char* text) {
    return message_of<FlagError>([&] { parse_strategies(text); });
  };
  EXPECT_EQ(error("ring,naive,ring"), "--strategies=ring,naive,ring: ring is there twice");
  EXPECT_THAT(error("naive-cpu,naive_cpu"), HasSubstr("naive_cpu is there twice"));
  EXPECT_THAT(error("all,naive"), HasSubstr("naive is there twice"));
  EXPECT_THAT(error("naiv"), HasSubstr("did you mean 'naive'?"));
  EXPECT_EQ(
      error("naive,"),
      "--strategies: an item of 'naive,' is empty; write names with one comma between, such as "
      "naive,ring");
}

}  // namespace strategy_list_test
}  // namespace belfry
