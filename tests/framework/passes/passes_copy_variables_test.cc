#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_copy_variables_test {

using ::testing::ElementsAre;

class CopyVariablesTest : public ::testing::Test {
 protected:
  Plan plan_of(const std::vector<Fetch>& fetches,
               LockDuration locks = LockDuration::kEachVariable) {
    PlanContext context = plan_context(devices, graph);
    context.locks = locks;
    return compile(fetches, {}, context);
  }
  Variable make(const char* name) {
    return variable(graph, name, {2}, {.initializer = init::ones()});
  }
  Output twos() { return fill(graph, {2}, 2, DType::kF32, "twos"); }

  static std::vector<std::string> launches(const Plan& plan) {
    std::vector<std::string> names;
    for (const Launch& launch : plan.launches) names.push_back(plan.node(launch.node).name());
    return names;
  }
  static bool is_state(const Plan& plan, Value value) {
    return plan.buffers[plan.buffer(value)].kind == BufferKind::kState;
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices = cpu_devices(2);
  Variable v = make("v"), w = make("w");
};

TEST_F(CopyVariablesTest, APlanBeginsByCopyingWhatItReads) {
  const Output sum = add_n({twos(), v, w}, "sum");
  Node& update = assign_add(v, sum, "update");
  EXPECT_THAT(launches(plan_of({update})),
              ElementsAre("v/read/copy", "w/read/copy", "twos", "sum", "update"));
  EXPECT_THAT(launches(plan_of({update}, LockDuration::kWholeRun)),
              ElementsAre("twos", "sum", "update"));
}

TEST_F(CopyVariablesTest, KernelsGetCopiesAndWritesTheVariableItself) {
  const Output sum = add_n({twos(), v}, "sum");
  Node& update = assign_add(v, sum, "update");
  const Plan plan = plan_of({update});
  for (const Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      EXPECT_EQ(is_state(plan, node.inputs[i]),
                node.op == &kCopy || (node.op == &kAssignAdd && i == 0))
          << node.name();
  }
}

TEST_F(CopyVariablesTest, ACopyOfWhatAWriteLeavesIsRightBehindIt) {
  const Output count = assign_add(v, twos(), "count").output();
  Node& other = assign_add(w, twos(), "other");
  const Output sum = add_n({twos(), count}, "sum");
  const Plan plan = plan_of({other, sum});
  const std::vector<std::string> names = launches(plan);
  const auto counted = std::ranges::find(names, "count");
  ASSERT_LT(counted + 1, names.end());
  EXPECT_EQ(counted[1], "count/copy");
  const PlanNode& summed = plan.node(planned(plan, sum.node()));
  EXPECT_FALSE(is_state(plan, summed.inputs[1]));
}

TEST_F(CopyVariablesTest, AReadAfterAWriteIsCopiedAfterIt) {
  Node& first = assign_add(v, twos(), "first");
  Output later;
  {
    const ControlDependencies after(graph, {first});
    later = v.read("later");
  }
  const Output sum = add_n({later, w}, "sum");
  EXPECT_THAT(launches(plan_of({sum.node()})),
              ElementsAre("w/read/copy", "twos", "first", "later/copy", "sum"));
}

TEST_F(CopyVariablesTest, AWriteWithoutUsersOfItsResultIsNotCopied) {
  EXPECT_THAT(launches(plan_of({assign_add(v, twos(), "update")})), ElementsAre("twos", "update"));
}

TEST_F(CopyVariablesTest, TowersOnOtherDevicesReadTheCopyOnTheVariablesDevice) {
  Output sum;
  {
    const DeviceScope on(graph, cpu(1));
    sum = add_n({twos(), v}, "sum");
  }
  const Plan plan = plan_of({sum.node()});
  ASSERT_EQ(plan.transfers.size(), 1u);
  EXPECT_EQ(plan.transfers[0].name, "v/read");
  EXPECT_THAT(launches(plan), ElementsAre("v/read/copy", "twos", "sum"));
}

}  // namespace passes_copy_variables_test
}  // namespace belfry
