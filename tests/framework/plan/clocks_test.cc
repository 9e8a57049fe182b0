#include "belfry/framework/plan/clocks.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace clocks_test {

using Strands = std::vector<int>;

// Clocks must agree with plain lists of counts.
TEST(Clocks, CountAsListsDo) {
  for (const int strands : {1, 16, 17, 300}) {
    std::mt19937 random(static_cast<unsigned>(strands));
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Clocks clocks(static_cast<std::size_t>(strands));
    std::vector<Clocks::Clock> made{Clocks::kNothing};
    std::vector<Strands> lists{Strands(static_cast<std::size_t>(strands))};
    for (int step = 0; step < 200; ++step) {
      const auto a = random() % made.size(), b = random() % made.size();
      const int strand = below(strands), count = below(9);
      Strands list = lists[a];
      for (std::size_t s = 0; s < list.size(); ++s) list[s] = std::max(list[s], lists[b][s]);
      int& raised = list[static_cast<std::size_t>(strand)];
      raised = std::max(raised, count);
      made.push_back(clocks.with(clocks.joined(made[a], made[b]), Index<Strand>(strand), count));
      lists.push_back(list);
      for (int s = 0; s < strands; ++s)
        ASSERT_EQ(clocks.count(made.back(), Index<Strand>(s)), list[static_cast<std::size_t>(s)]);
    }
  }
}

TEST(Clocks, StoreNothingForWhatIsKnown) {
  Clocks clocks(1000);
  const Clocks::Clock old = clocks.with(Clocks::kNothing, Index<Strand>(3), 5);
  const Clocks::Clock later = clocks.with(old, Index<Strand>(700), 2);
  EXPECT_EQ(clocks.joined(old, later), later);
  EXPECT_EQ(clocks.joined(later, old), later);
  EXPECT_EQ(clocks.joined(later, later), later);
  EXPECT_EQ(clocks.with(later, Index<Strand>(3), 4), later);
  const Clocks::Clock next = clocks.with(later, Index<Strand>(3), 6);
  EXPECT_EQ(next, later + 3) << "its nodes, one a level, follow those of the last clock";
}

// The nodes of clocks per launch, in a step of K towers that all wait for each other again and
// again.
double nodes_per_launch(int towers) {
  Graph graph;
  std::vector<Output> values;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(graph, DeviceSpec::local("CPU", t));
    values.push_back(fill(graph, {4}, t));
  }
  for (int round = 0; round < 6; ++round) {
    values = all_reduce(values);
    for (int t = 0; t < towers; ++t) {
      DeviceScope on(graph, DeviceSpec::local("CPU", t));
      Output& value = values[static_cast<std::size_t>(t)];
      for (int i = 0; i < 4; ++i) value = add_n({value, value});
    }
  }
  std::vector<Fetch> fetches;
  for (const Output& value : values) fetches.emplace_back(value.node());
  const auto devices = cpu_devices(towers);
  const Plan plan = compiled(devices, fetches);
  Clocks::Clock last = Clocks::kNothing;
  for (const Launch& launch : plan.launches) last = std::max(last, launch.clock);
  return static_cast<double>(last) / static_cast<double>(plan.launches.size());
}

TEST(Clocks, TakeForMoreTowersAsMuchMemoryPerLaunch) {
  const double few = nodes_per_launch(64);  // levels of 16 strands each
  for (const int towers : {128, 256}) EXPECT_LT(nodes_per_launch(towers), 1.6 * few) << towers;
}

}  // namespace clocks_test
}  // namespace belfry
