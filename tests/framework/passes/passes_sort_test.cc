// The one global order of a plan's nodes.
#include <map>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/tanh.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_sort_test {

using ::testing::ElementsAre;

// Two chains of three nodes on two devices, like two backward passes. A collective combines their
// first links.
class SortTest : public ::testing::Test {
 protected:
  Output on(int device, const char* name, Output input) {
    DeviceScope scope(graph, cpu(device));
    return tanh(input, name);
  }
  // The names of launches, in order.
  std::vector<std::string> order(const Output& combined) {
    Node& write = assign(v, combined, "write");
    PlanContext context = plan_context(devices, graph);
    context.options.fuse = false;
    const Plan plan = compile(std::vector<Fetch>{write, *last}, {}, context);
    std::vector<std::string> names;
    for (const Launch& launch : plan.launches) names.push_back(plan.node(launch.node).name());
    return names;
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(2);
  Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  Output x = fill(graph, {2}, 1, DType::kF32, "x");
  Output a = on(0, "a", x), b = on(0, "b", a), c = on(1, "c", x), d = on(1, "d", c);
  Node* last = &add_n({b, d}, "last").node();
};

TEST_F(SortTest, CollectivesAndWritesGoAsSoonAsTheyMay) {
  const Output sums[] = {a, c};
  EXPECT_THAT(order(all_reduce(sums, {}, "sum")[0]),
              ElementsAre("x", "a", "b", "c", "sum", "write", "d", "last"));
}

TEST_F(SortTest, OthersGoInTheOrderOfTheirCreation) {
  EXPECT_THAT(order(add_n({a, c}, "sum")),
              ElementsAre("x", "a", "b", "c", "d", "last", "sum", "write"));
}

TEST_F(SortTest, EagerNodesGoAsSoonAsTheyMayWithTheTensorsTheyTake) {
  devices[1]->memory_space = 1;
  const EagerScope eager(graph);
  EXPECT_THAT(order(add_n({a, c}, "sum")), ElementsAre("x", "a", "b", "x/copy", "c", "c/copy",
                                                       "sum", "write", "d", "d/copy", "last"));
}

// The order of a step with six sums of 4 MiB. T computes, S and G are messages, A adds the pieces
// that S brings.
std::string order_of_sums(ProcessPlace place, int towers) {
  Graph graph(1, place);
  Output x = fill(graph, {1 << 20}, 0.5, DType::kF32, "x");
  const TreeNode here{place.rank * towers, (place.rank + 1) * towers};
  const std::size_t nodes = covering_nodes(here, place.size * towers).size();
  std::vector<Fetch> fetches;
  for (int i = 0; i < 6; ++i) {
    x = tanh(x);
    const std::vector<Output> own(nodes, x);
    fetches.emplace_back(sum_over_processes(own, place, towers, false));
  }
  const Variable v = variable(graph, "v", {1 << 20});
  fetches.emplace_back(assign(v, x));  // plans without writes keep the order of creation
  Session session(graph, {.dry_run = true, .planned_place = place});
  const Plan& plan = *session.prepare(fetches).plan();
  const std::map<const Op*, char> letters{
      {&kTanh, 'T'}, {&kReduceScatter, 'S'}, {&kAddPieces, 'A'}, {&kAllGather, 'G'}};
  std::string order;
  for (const Launch& launch : plan.launches)
    if (const auto letter = letters.find(plan.node(launch.node).op); letter != letters.end())
      order += letter->second;
  return order;
}

// An eighth of all messages is 6 MiB: the first sum waits for the second and the third.
TEST(SortMessages, PutsWhatWaitsForOneBehindTheNextOnes) {
  const ProcessPlace one_host{.rank = 0, .size = 4, .per_host = 4};
  EXPECT_EQ(order_of_sums(one_host, 1), "TSTSTSAGTSAGTSAGTSAGAGAG");
}

// Nothing is sent after these sums, so only 16 MiB of them stay behind.
TEST(SortMessages, PutsWhatNobodyElseWaitsForLast) {
  EXPECT_EQ(order_of_sums({.rank = 0, .size = 2}, 1), "TSTSTSTSTSATSAAAAA");
}

// The first of three processes with two towers has one node of the tree, and the others two.
TEST(SortMessages, IsTheSameInAllProcesses) {
  const std::string first = order_of_sums({.rank = 0, .size = 3}, 2);
  for (const int rank : {1, 2}) EXPECT_EQ(order_of_sums({.rank = rank, .size = 3}, 2), first);
}

}  // namespace passes_sort_test
}  // namespace belfry
