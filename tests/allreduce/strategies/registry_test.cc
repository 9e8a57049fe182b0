// The registry of strategies, and the tables of docs/strategies.md, which must agree with it.
#include <set>
#include <typeinfo>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/tests/allreduce/strategies/library_strategies.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace registry_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class OnFirst final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    std::vector<std::vector<Output>> sums(grads.towers());
    DeviceScope on(grads.graph(), grads.device(0));
    for (int v = 0; v < grads.variables(); ++v) {
      const Output total = add_n(grads.values(v));
      for (auto& row : sums) row.push_back(total);
    }
    return sums;
  }
};

const StrategyRegistration on_first{"test_on_first", [] { return std::make_unique<OnFirst>(); }};

TEST(StrategyRegistry, MakesStrategiesOfUsersByName) {
  TestGradients gradients(3, {{4}});
  const auto strategy = make_strategy("test_on_first");
  EXPECT_FALSE(strategy->canonical(3)) << "unless it says so";
  const GradientTable mean = strategy->reduce(gradients.table());
  EXPECT_EQ(mean.at(2, 0).value.device(), cpu(0));
  EXPECT_THAT(message_of([] {
                register_strategy("test_on_first", [] { return std::make_unique<OnFirst>(); });
              }),
              HasSubstr("'test_on_first' is already registered"));
}

TEST(StrategyRegistry, TakesStrategiesOfUsersInSpecs) {
  TestGradients gradients(3, {{4}, {5}});
  const GradientTable sums = make_strategy("test_on_first:16:naive")
                                 ->reduce(gradients.table(), {.reduction = Reduction::kSum});
  EXPECT_EQ(sums.at(2, 0).value.device(), cpu(0)) << "16 bytes, by on_first";
  EXPECT_FALSE(sums.at(0, 0).value.node().name().starts_with("AllReduceNaive"));
  EXPECT_TRUE(sums.at(0, 1).value.node().name().starts_with("AllReduceNaive"));
  EXPECT_THAT(message_of([] { make_strategy("test_on_first#2"); }),
              HasSubstr("'test_on_first#2': test_on_first takes no number of chunks"));
}

TEST(StrategyRegistry, RefusesNamesThatMeanSomethingElseInSpecs) {
  for (const char* name : {"", "auto", "all", "a-b", "a:b", "a#2", "a,b", "a b"})
    EXPECT_THAT(
        message_of([&] { register_strategy(name, [] { return std::make_unique<OnFirst>(); }); }),
        HasSubstr("aggregation strategy"))
        << name;
}

// The strategies that the first column of a table in docs/strategies.md names: what stands there in
// backticks. The table is in the section `heading`. Rows of refused names are left out.
std::set<std::string> documented(std::string_view heading) {
  const std::vector<std::byte> bytes =
      local_file_system().read(cat(BELFRY_SOURCE_DIR, "/docs/strategies.md"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::set<std::string> names;
  bool within = false;
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with("## ")) within = line.substr(3) == heading;
    if (!within || !line.starts_with("| `") || line.find("refused") != line.npos) continue;
    const std::vector<std::string_view> parts = split(split(line, '|')[1], '`');
    for (std::size_t i = 1; i < parts.size(); i += 2) names.emplace(parts[i]);
  }
  names.erase("--allreduce=");  // the head of the column
  return names;
}

void expect_rows(std::string_view heading, const std::vector<std::string>& names) {
  std::set<std::string> rows = documented(heading);
  for (const std::string& name : names)
    EXPECT_EQ(rows.erase(name), 1U)
        << name << " has no row in '" << heading << "' of docs/strategies.md";
  EXPECT_THAT(rows, IsEmpty()) << "'" << heading << "' of docs/strategies.md has unknown names";
}

TEST(StrategyRegistry, HoldsWhatTheMenuInTheDocumentsLists) {
  expect_rows("The menu", library_strategies());
  for (const char* name : {"xring", "rechd", "pscpu", "psgpu", "nccl/xring", "auto"})
    EXPECT_THAT(strategy_names(), Not(Contains(name))) << "an alias";
}

// The table counts within one process, where mpi adds nothing.
TEST(StrategyRegistry, HoldsWhatTheDocumentsSayTheCostsOf) {
  std::vector<std::string> names = library_strategies();
  std::erase(names, "mpi");
  expect_rows("What it costs", names);
}

TEST(StrategyRegistry, KnowsWhatAliasesStandFor) {
  for (const auto& [alias, name] :
       {std::pair{"xring", "ring"}, {"rechd", "halving_doubling"}, {"psgpu", "shuffle"}}) {
    EXPECT_EQ(main_strategy_name(alias), name);
    EXPECT_EQ(typeid(*make_strategy(alias)), typeid(*make_strategy(name)));
  }
  for (const char* name : {"ring", "pscpu", "nccl/xring", "auto", "unknown"})
    EXPECT_EQ(main_strategy_name(name), name) << "stands for nothing else";
  EXPECT_THAT(message_of([] { register_alias("xring", "naive"); }),
              HasSubstr("'xring' is already registered"));
  EXPECT_EQ(main_strategy_name("xring"), "ring");
}

TEST(StrategyRegistry, NamesTheNearestStrategy) {
  const std::string message = message_of([] { make_strategy("heirarchical"); });
  EXPECT_THAT(message, HasSubstr("'heirarchical'; did you mean 'hierarchical'?"));
  EXPECT_THAT(message, HasSubstr(cat("(strategies: ", join(strategy_names()), "; aliases: ")));
  EXPECT_THAT(message, HasSubstr("aliases: nccl/pscpu"));
}

}  // namespace registry_test
}  // namespace belfry
