#include <algorithm>
#include <typeinfo>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace registry_test {

using testing::HasSubstr;

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

const StrategyRegistration on_first{"on_first", [] { return std::make_unique<OnFirst>(); }};

TEST(StrategyRegistry, MakesStrategiesOfUsersByName) {
  TestGradients gradients(3, {{4}});
  const auto strategy = make_strategy("on_first");
  EXPECT_FALSE(strategy->canonical(3)) << "unless it says so";
  const GradientTable mean = strategy->reduce(gradients.table());
  EXPECT_EQ(mean.at(2, 0).value.device(), cpu(0));
  EXPECT_THAT(
      message_of([] { register_strategy("on_first", [] { return std::make_unique<OnFirst>(); }); }),
      HasSubstr("'on_first' is already registered"));
}

TEST(StrategyRegistry, TakesStrategiesOfUsersInSpecs) {
  TestGradients gradients(3, {{4}, {5}});
  const GradientTable sums =
      make_strategy("on_first:16:naive")->reduce(gradients.table(), {.reduction = Reduction::kSum});
  EXPECT_EQ(sums.at(2, 0).value.device(), cpu(0)) << "16 bytes, by on_first";
  EXPECT_FALSE(sums.at(0, 0).value.node().name().starts_with("AllReduceNaive"));
  EXPECT_TRUE(sums.at(0, 1).value.node().name().starts_with("AllReduceNaive"));
  EXPECT_THAT(message_of([] { make_strategy("on_first#2"); }),
              HasSubstr("'on_first#2': on_first takes no number of chunks"));
}

TEST(StrategyRegistry, RefusesNamesThatMeanSomethingElseInSpecs) {
  for (const char* name : {"", "auto", "all", "a-b", "a:b", "a#2", "a,b", "a b"})
    EXPECT_THAT(
        message_of([&] { register_strategy(name, [] { return std::make_unique<OnFirst>(); }); }),
        HasSubstr("aggregation strategy"))
        << name;
}

TEST(StrategyRegistry, ListsTheMenuWithoutAliases) {
  const std::vector<std::string> names = strategy_names();
  for (const char* name : {"collective", "colocate", "halving_doubling", "hierarchical", "mpi",
                           "naive", "naive_cpu", "nccl", "ring", "shuffle"})
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  for (const char* name : {"xring", "rechd", "pscpu", "psgpu", "nccl/xring", "auto"})
    EXPECT_EQ(std::ranges::count(names, name), 0) << name;
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
  EXPECT_THAT(message,
              HasSubstr("collective, colocate, halving_doubling, hierarchical, mpi, naive"));
  EXPECT_THAT(message, HasSubstr("aliases: nccl/pscpu"));
}

}  // namespace registry_test
}  // namespace belfry
