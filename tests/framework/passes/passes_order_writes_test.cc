#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_order_writes_test {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class OrderWritesTest : public ::testing::Test {
 protected:
  Plan ordered(const std::vector<Fetch>& fetches) {
    Plan plan;
    prune(plan, fetches, {});
    const PlanContext context = plan_context(devices, fetches[0].node->graph());
    place(plan, context);
    add_transfers(plan, context);
    order_writes(plan);
    return plan;
  }
  Variable make(const char* name) {
    return variable(graph, name, {2}, {.initializer = init::ones()});
  }
  Output twos() { return fill(graph, {2}, 2); }

  // Whether there is a path from the first node to the second.
  static bool path(const Plan& plan, NodeIndex from, NodeIndex to) {
    const Consumers consumers = consumers_of(plan);
    std::vector<NodeIndex> open{from};
    Indexed<PlanNode, char> seen(plan.nodes.size());
    while (!open.empty()) {
      const NodeIndex n = open.back();
      open.pop_back();
      if (n == to) return true;
      if (seen[n]++) continue;
      const auto next = consumers[n];
      open.insert(open.end(), next.begin(), next.end());
    }
    return false;
  }
  static int copies(const Plan& plan) {
    return static_cast<int>(std::ranges::count_if(
        plan.nodes, [](const PlanNode& node) { return node.op == &kCopy && node.fetch() < 0; }));
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(2);
  Variable v = make("v");
};

TEST_F(OrderWritesTest, AWriteWaitsForUsersOfTheOldValueThroughAliasesAndTransfers) {
  Output user;
  {
    DeviceScope on(graph, "/cpu:1");
    user = add_n({identity(identity(v)), twos()}, "user");
  }
  Node& write = assign(v, twos());
  const Plan plan = ordered({user, write});
  EXPECT_TRUE(path(plan, planned(plan, user.node()), planned(plan, write)));
  EXPECT_EQ(copies(plan), 0);
}

TEST_F(OrderWritesTest, UsersOfTheNewValueRunAfterTheWrite) {
  Node& write = assign(v, twos());
  ControlDependencies after(graph, {&write});
  const Output user = add_n({v.read(), twos()});
  const Plan plan = ordered({user, write});
  EXPECT_TRUE(path(plan, planned(plan, write), planned(plan, user.node())));
  EXPECT_FALSE(path(plan, planned(plan, user.node()), planned(plan, write)));
}

TEST_F(OrderWritesTest, AnOldValueIsCopiedOnlyIfALaterNodeNeedsIt) {
  Node& write = assign_add(v, v);
  EXPECT_EQ(copies(ordered({v, write})), 0);  // the fetch can be made before
  const Plan plan = ordered({add_n({v, write.output()})});
  EXPECT_EQ(copies(plan), 1);
  EXPECT_TRUE(path(plan, planned(plan, kCopy), planned(plan, write)));
}

TEST_F(OrderWritesTest, TheResultOfAWriteIsProtectedFromTheNext) {
  Node& first = assign_add(v, twos());
  const Output user = add_n({first.output(), twos()});
  ControlDependencies after(graph, {&first});
  Node& second = assign_add(v, twos());
  const Plan plan = ordered({user, second});
  EXPECT_TRUE(path(plan, planned(plan, user.node()), planned(plan, second)));
}

TEST_F(OrderWritesTest, EachResultOfAWriteOfTwoVariablesIsProtectedByItself) {
  const Variable w = make("w");
  Node& update = momentum_update(v, w, twos(), constant(graph, 1));
  const Output momentum = update.output(1);
  ControlDependencies after(graph, {&update});
  Node& second = assign_add(w, twos());
  const Output late = add_n({momentum, second.output()});
  EXPECT_EQ(copies(ordered({late})), 1);
  Session session(graph);
  session.write(w, floats({10, 20}));
  // momentum 0.9 * w + 2, then 2 more
  EXPECT_EQ(session.run(late),
            floats({0.9f * 10 + 2 + (0.9f * 10 + 2 + 2), 0.9f * 20 + 2 + (0.9f * 20 + 2 + 2)}));
}

TEST_F(OrderWritesTest, RefusesWritesWithoutAnOrderWithBothLines) {
  Node* const both[] = {&assign(v, twos()), &assign_sub(v, twos())};
  EXPECT_THAT(message_of<InvalidArgument>([&] { ordered({group(graph, both)}); }),
              AllOf(HasSubstr("the writes to variable 'v' by Assign 'Assign'"),
                    HasSubstr("AssignSub 'AssignSub'"), HasSubstr("are not ordered"),
                    ContainsRegex("order_writes_test.cc:[0-9]+.*order_writes_test.cc:[0-9]+")));
  EXPECT_NO_THROW(ordered({*both[0]}));  // one is left after pruning
}

// The step reads each of two variables late. The order that protects one of them must not decide
// which value the read of the other sees.
TEST_F(OrderWritesTest, VersionsFollowTheGraphNotTheOrderOfOtherVariables) {
  const Variable w = make("w");
  Node& write_w = assign(w, fill(graph, {2}, 5), "write_w");
  Output old_v;
  {
    ControlDependencies after(graph, {&write_w});
    old_v = add_n({v, twos()}, "old_v");  // reads v before its write, after the write of w
  }
  Node& write_v = assign(v, fill(graph, {2}, 7), "write_v");
  Output old_w;
  {
    ControlDependencies after(graph, {&write_v});
    old_w = identity(w.read("read_w"), "old_w");  // waits for v alone, so it sees the old w
  }
  Session session(graph);
  const auto got = session.run({old_v, old_w, write_v, write_w});
  EXPECT_EQ(got[0], floats({3, 3}));
  EXPECT_EQ(got[1], floats({1, 1}));
  EXPECT_EQ(session.read(v), floats({7, 7}));
  EXPECT_EQ(session.read(w), floats({5, 5}));
}

}  // namespace passes_order_writes_test
}  // namespace belfry
