#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/split.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace passes_prune_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Plan pruned(const std::vector<Fetch>& fetches, const std::vector<FeedType>& feeds = {}) {
  Plan plan;
  prune(plan, fetches, feeds);
  return plan;
}

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> result;
  for (const PlanNode& node : plan.nodes) result.push_back(node.name());
  return result;
}

class PruneTest : public ::testing::Test {
 protected:
  Graph graph;
  Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  Output y = add_n({x, x}, "y");
  Output unused = add_n({y, y}, "unused");
};

TEST_F(PruneTest, KeepsWhatTheFetchesNeed) {
  const Plan plan = pruned({y}, {{x, {3, 2}}});
  EXPECT_THAT(names(plan), ElementsAre("x", "y", "y/fetch"));
  EXPECT_EQ(plan.nodes[0].feed(), 0);
  EXPECT_EQ(plan.nodes[2].fetch(), 0);
}

TEST_F(PruneTest, NoParticipantIsCutOutOfACollective) {
  std::vector<std::vector<Output>> tensors(2);
  for (int i = 0; i < 4; ++i)
    tensors[static_cast<std::size_t>(i / 2)].push_back(
        constant(graph, Tensor(1.f), At(cat("c", i))));
  const Plan plan = pruned({all_reduce_bucket(tensors)[1][0].node()});
  EXPECT_THAT(names(plan), ElementsAre("c0", "c1", "c2", "c3", "AllReduce"));
}

TEST_F(PruneTest, ShapesAreThoseOfTheFeeds) {
  const Plan plan = pruned({y}, {{x, {3, 2}}});
  for (const PlanNode& node : plan.nodes) EXPECT_EQ(node.types[0].str(), "f32[3,2]");
}

TEST_F(PruneTest, KeepsControlInputsAndTheirOrder) {
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  Node& write = assign(v, constant(graph, 1));
  ControlDependencies after(graph, {&write});
  const Output z = constant(graph, 2);
  const Plan plan = pruned({identity(z, "z")});
  const NodeIndex at = planned(plan, graph.find("z"));
  ASSERT_TRUE(planned(plan, write));
  EXPECT_TRUE(plan.writes);
  EXPECT_THAT(plan.variables, ElementsAre(&v.node()));
  // The constant was built inside the scope, so the constant has the wait.
  EXPECT_THAT(plan.node(at).after, ElementsAre());
  EXPECT_THAT(plan.node(planned(plan, z.node())).after, ElementsAre(planned(plan, write)));
}

TEST_F(PruneTest, LooksNotBehindAFedInnerNode) {
  const Plan plan = pruned({unused}, {{y, {1, 2}}});
  EXPECT_THAT(names(plan), ElementsAre("y", "unused", "unused/fetch"));
  EXPECT_EQ(plan.nodes[0].feed(), 0);
  EXPECT_FALSE(plan.find(y.node()));
  EXPECT_EQ(plan.find(unused.node()), NodeIndex(1));
}

TEST_F(PruneTest, ANodeWithOneFedOutputStillGivesTheOthers) {
  const auto parts = split(constant(graph, floats({1, 2})), 2, 0);
  const Output both = add_n({parts[0], parts[1]});
  const Plan plan = pruned({both}, {{parts[0], {1}}});
  const PlanNode& sum = plan.node(planned(plan, both.node()));
  EXPECT_EQ(plan.node(sum.inputs[0].node).feed(), 0);
  EXPECT_EQ(sum.inputs[1], (Value{planned(plan, parts[1].node()), 1}));
}

TEST_F(PruneTest, AFedNodeStillRunsForThoseThatWaitForIt) {
  const Variable v = variable(graph, "v", {}, {.initializer = init::zeros()});
  Node& write = assign(v, constant(graph, 1));
  ControlDependencies after(graph, {&write});
  const Output sum = add_n({write.output(), constant(graph, 2)});
  const Output late = add_n({x, x});
  const Plan plan = pruned({sum, late}, {{write.output(), {}}, {x, {1, 2}}});
  EXPECT_TRUE(planned(plan, write));
  const PlanNode& node = plan.node(planned(plan, sum.node()));
  EXPECT_EQ(plan.node(node.inputs[0].node).feed(), 0);
}

TEST_F(PruneTest, FetchesOfNodesHaveNoCopy) {
  const Plan plan = pruned({y.node(), y}, {{x, {1, 2}}});
  EXPECT_EQ(std::ranges::count(plan.nodes, &kCopy, &PlanNode::op), 1);
  EXPECT_FALSE(plan.fetches[0]);
  EXPECT_EQ(plan.fetches[1], y);
}

TEST_F(PruneTest, RefusesAPlaceholderThatIsNotFed) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { pruned({y}); }),
              ::testing::AllOf(HasSubstr("Placeholder 'x' (built at passes_prune_test.cc:"),
                               HasSubstr("needs a value; feed it")));
}

TEST_F(PruneTest, RefusesFeedsThatDoNotFit) {
  const auto refusal = [&](const std::vector<FeedType>& feeds) {
    return message_of<InvalidArgument>([&] { pruned({y}, feeds); });
  };
  EXPECT_THAT(refusal({{x, {3, 4}}}), HasSubstr("fed with shape [3,4], but it has [?,2]"));
  EXPECT_THAT(refusal({{x, {3}}}), HasSubstr("fed with shape [3], but it has [?,2]"));
  EXPECT_THAT(refusal({{x, {kUnknownSize, 2}}}), HasSubstr("fed with shape [?,2]"));
  EXPECT_THAT(refusal({{x, {3, 2}}, {x, {3, 2}}}), HasSubstr("fed twice"));
  EXPECT_THAT(refusal({{Output(), {3, 2}}}), HasSubstr("empty Output"));
}

TEST_F(PruneTest, RefusesTheStorageOfVariables) {
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  EXPECT_THAT(message_of<InvalidArgument>([&] { pruned({v.ref()}); }),
              HasSubstr("fetch the Variable"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                pruned({v}, {{v.ref(), {2}}});
              }),
              HasSubstr("Session::write"));
}

TEST_F(PruneTest, RefusesToRunNothing) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { pruned({}); }), HasSubstr("nothing to run"));
}

}  // namespace passes_prune_test
}  // namespace belfry
