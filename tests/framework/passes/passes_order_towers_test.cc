#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_order_towers_test {

using ::testing::ElementsAre;

class OrderTowersTest : public ::testing::Test {
 protected:
  // Builds towers. Each adds x in steps with the given names.
  void build(std::vector<std::vector<std::string>> towers, int first_replica = 0) {
    for (std::size_t t = 0; t < towers.size(); ++t) {
      const int replica = first_replica + static_cast<int>(t);
      const ReplicaScope tower(graph, cat("tower", replica, "/"), replica, ++calls);
      const NameScope names(graph, cat("tower", replica));
      Output y = x;
      for (const std::string& name : towers[t]) y = add_n({y, x}, At(name));
      last.push_back(y);
    }
  }
  std::vector<std::string> order() {
    const Output sum = add_n(last, "sum");
    PlanGraph plan;
    prune(plan, std::vector<Fetch>{sum.node()}, std::vector<FeedType>{{x, {2}}});
    order_towers(plan);
    std::vector<std::string> names;
    for (const PlanNode& node : plan.nodes) names.push_back(node.name());
    return names;
  }

  Graph graph;
  Output x = placeholder(graph, "x", DType::kF32, {2});
  int calls = 0;
  std::vector<Output> last;
};

TEST_F(OrderTowersTest, PutsLikesTogether) {
  build({{"a", "b"}, {"a", "b"}, {"a", "b"}});
  EXPECT_THAT(order(), ElementsAre("x", "tower0/a", "tower1/a", "tower2/a", "tower0/b", "tower1/b",
                                   "tower2/b", "sum"));
}

TEST_F(OrderTowersTest, FollowsTheFirstTowerWhereOneHasMore) {
  build({{"a", "extra", "b"}, {"a", "b"}, {"a", "own", "b"}});
  EXPECT_THAT(order(), ElementsAre("x", "tower0/a", "tower1/a", "tower2/a", "tower2/own",
                                   "tower0/extra", "tower0/b", "tower1/b", "tower2/b", "sum"));
}

// There are two models, like towers that train and towers that predict.
TEST_F(OrderTowersTest, KeepsModelsApart) {
  build({{"a", "b"}, {"a", "b"}});
  x = placeholder(graph, "other", DType::kF32, {2});
  std::vector<Output> trained = std::exchange(last, {});
  build({{"c"}, {"c"}});
  last.insert(last.begin(), trained.begin(), trained.end());
  const Output sum = add_n(last, "sum");
  PlanGraph plan;
  prune(plan, std::vector<Fetch>{sum.node()},
        std::vector<FeedType>{{x, {2}}, {trained[0].node().input(1), {2}}});
  order_towers(plan);
  std::vector<std::string> names;
  for (const PlanNode& node : plan.nodes) names.push_back(node.name());
  EXPECT_THAT(names, ElementsAre("x", "other", "tower0/a", "tower1/a", "tower0/b", "tower1/b",
                                 "tower0_1/c", "tower1_1/c", "sum"));
}

TEST_F(OrderTowersTest, LeavesOneTowerAlone) {
  build({{"a", "b"}});
  EXPECT_THAT(order(), ElementsAre("x", "tower0/a", "tower0/b"));
}

}  // namespace passes_order_towers_test
}  // namespace belfry
