#include "belfry/framework/placement/explain.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/shape_of.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace explain_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kPrefix[] = "/job:localhost/replica:0/task:0/device:";

// "+" or "-", short name and reason of each candidate.
std::vector<std::string> candidates(const Explanation& explanation) {
  std::vector<std::string> result;
  for (const Explanation::Candidate& candidate : explanation.candidates)
    result.push_back(cat(candidate.kept ? "+" : "-",
                         candidate.device.substr(std::string(kPrefix).size()), " ",
                         candidate.reason));
  return result;
}

std::vector<std::string> pulls(const Explanation& explanation) {
  std::vector<std::string> result;
  for (const Explanation::Pull& pull : explanation.pulls)
    result.push_back(cat(pull.who, " > ", pull.whom, ": ", pull.why));
  return result;
}

class ExplainTest : public PlacementTest {
 protected:
  Explanation explain(const Output& output, SessionOptions options = {}) {
    if (options.device_count.empty()) options.device_count = {{"CPU", 2}};
    return Session(graph, std::move(options)).explain(output);
  }
};

TEST_F(ExplainTest, AGraphKnowsTheRequestAndWhatShapedIt) {
  Output x;
  unsigned outer_line = 0;
  {
    DeviceScope outer(graph, "/job:localhost");
    outer_line = __LINE__ - 1;
    DeviceScope inner(graph, "/cpu:1");
    x = fill(graph, {2}, 1, DType::kF32, "x");
  }
  const Explanation known = graph.explain(x);
  EXPECT_EQ(known.node, "x");
  EXPECT_EQ(known.type, "Fill");
  EXPECT_EQ(known.requested, "/job:localhost/device:CPU:1");
  EXPECT_EQ(known.device, "");
  ASSERT_THAT(known.scopes, SizeIs(2));
  EXPECT_THAT(known.scopes[0].what, HasSubstr("/device:CPU:1"));
  EXPECT_THAT(known.scopes[1].what, HasSubstr("/job:localhost"));
  EXPECT_THAT(known.scopes[1].file, HasSubstr("explain_test.cc"));
  EXPECT_EQ(known.scopes[1].line, static_cast<int>(outer_line));
  EXPECT_THAT(known.candidates, IsEmpty());
  EXPECT_THAT(known.load, IsEmpty());
  Graph other;
  EXPECT_THROW(other.explain(x), InvalidArgument);
}

TEST_F(ExplainTest, ASessionTellsWhyEachDeviceWasKeptOrDropped) {
  EXPECT_THAT(candidates(explain(on("/cpu:1"))),
              ElementsAre("-CPU:0 it is not /device:CPU:1", "+CPU:1 it is the first candidate"));
  EXPECT_THAT(candidates(explain(on(""))),
              ElementsAre("+CPU:0 it is the first candidate",
                          cat("+CPU:1 it would do, but ", kPrefix, "CPU:0 was chosen")));
  const SessionOptions dry{.device_count = {{"GPU", 1}}, .dry_run = true};
  const Output lone = host_only(on("", "input"), "lone");
  const Explanation host = explain(lone, dry);
  EXPECT_EQ(host.device, cpu(0).str());
  EXPECT_THAT(candidates(host)[0], "+CPU:0 it is the first candidate");
  EXPECT_THAT(candidates(host)[1],
              AllOf(HasSubstr("-GPU:0 no supported kernel for GPU devices: HostOnly 'lone' (built "
                              "at explain_test.cc:"),
                    HasSubstr("; it is for tests")));
}

TEST_F(ExplainTest, NamesTheRuleOfGeneratorsAndMetadata) {
  const Output x = constant(graph, {1, 2}, {2}, "x");
  DeviceScope scope(graph, "/cpu:1");
  const Output y = relu(x);
  DeviceScope none(graph, NoDevice{});
  const Output shape = shape_of(y);
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run(shape);
  EXPECT_EQ(session.explain(x).candidates[1].reason,
            "it has no inputs, and all its consumers are there");
  EXPECT_EQ(session.explain(shape).candidates[1].reason,
            "it looks at the shape of its input, which is there");
  EXPECT_EQ(session.explain(x).device, cpu(1).str());
}

TEST_F(ExplainTest, TellsWhoPulledWhom) {
  const Output anchor = on("", "anchor"), one = with(anchor, "/cpu:1", "one");
  const Output value = constant(graph, {1, 2}, {2});
  Output free;
  {
    ColocateWith group(anchor);
    DeviceScope scope(graph, "/cpu:1");
    const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
    free = assign(v, value).output();
  }
  Node* const all[] = {&anchor.node(), &one.node(), &free.node()};
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({group(graph, all)});
  const Explanation known = session.explain(anchor);
  EXPECT_THAT(known.colocation, ElementsAre("one", "v", "v/Initializer/Fill", "Assign"));
  EXPECT_THAT(pulls(known),
              ElementsAre("v > Assign: reference edge", "anchor > one: colocation group anchor",
                          "anchor > v: colocation group anchor",
                          "anchor > v/Initializer/Fill: colocation group anchor"));
  EXPECT_EQ(known.device, cpu(1).str());
  EXPECT_THAT(session.explain(free).colocation,
              ElementsAre("anchor", "one", "v", "v/Initializer/Fill"));
}

// Once the graph has grown, the variable's memory is the reason.
TEST_F(ExplainTest, MemoryOfAVariableIsAReasonWhenTheGraphHasGrown) {
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({v});
  EXPECT_THAT(candidates(session.explain(v.ref())),
              ElementsAre("-CPU:0 it is not /device:CPU:1", "+CPU:1 it is the first candidate"));
  on("/cpu:0");
  EXPECT_THAT(candidates(session.explain(v.ref())),
              ElementsAre(cat("-CPU:0 it is not ", kPrefix, "CPU:1"),
                          "+CPU:1 the variable has memory there"));
}

TEST_F(ExplainTest, MemoryOfAVariableBindsItsWholeSet) {
  const Output one = constant(graph, {1, 2}, {2});
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  const Output written = assign(v, one).output();
  const Output beside = with(v.ref(), "", "beside");
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({written, beside});
  on("/cpu:1");
  const std::string elsewhere = cat("-CPU:1 it is not ", kPrefix, "CPU:0");
  EXPECT_THAT(candidates(session.explain(v.ref())),
              ElementsAre("+CPU:0 the variable has memory there", elsewhere));
  for (const Output& member : {written, beside})
    EXPECT_THAT(candidates(session.explain(member)),
                ElementsAre("+CPU:0 chosen for 'v', with which it is colocated: the variable has "
                            "memory there",
                            elsewhere));
}

TEST_F(ExplainTest, TellsWhatSoftPlacementLetGo) {
  const SessionOptions soft{.allow_soft_placement = true};
  EXPECT_EQ(explain(on("/gpu:3"), soft).fallback,
            "no device is /device:GPU:3 and has kernels for all colocated nodes; soft placement "
            "dropped the type and the index");
  EXPECT_EQ(explain(on("/cpu:1"), soft).fallback, "");
  EXPECT_THAT(candidates(explain(on("/gpu:3"),
                                 {.device_count = {{"CPU", 2}}, .allow_soft_placement = true})),
              ElementsAre("+CPU:0 it is the first candidate",
                          cat("+CPU:1 it would do, but ", kPrefix, "CPU:0 was chosen")));
  const Output anchor = on("", "anchor"), a = with(anchor, "/cpu:0", "a"),
               b = with(anchor, "/cpu:1", "b");
  Session session(graph, {.device_count = {{"CPU", 2}}, .allow_soft_placement = true});
  session.run({a, b});
  EXPECT_EQ(session.explain(a).fallback,
            "'b' and 'anchor' are colocated, but ask for /device:CPU:1 and /device:CPU:0; soft "
            "placement leaves open what differs");
}

TEST_F(ExplainTest, TellsOfNodesThatNoStepHolds) {
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  DeviceScope scope(graph, "/cpu:1");
  const Output y = relu(x);
  const Explanation known = explain(y);
  EXPECT_EQ(known.device, cpu(1).str());
  EXPECT_EQ(explain(x).device, cpu(1).str());  // with its only consumer
  EXPECT_THROW(explain(on("/cpu:7")), InvalidArgument);
}

TEST_F(ExplainTest, OutputsOfACollectiveAreExplainedOneByOne) {
  const Output parts[] = {on("/cpu:1"), on("/cpu:0")};
  const auto sums = all_reduce(parts);
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.run({sums[0], sums[1]});
  EXPECT_EQ(session.explain(sums[0]).device, cpu(1).str());
  EXPECT_EQ(session.explain(sums[1]).device, cpu(0).str());
  EXPECT_THAT(candidates(session.explain(sums[0])),
              ElementsAre("-CPU:0 a collective's output is where its input is",
                          "+CPU:1 a collective's output is where its input is"));
}

TEST_F(ExplainTest, PrintsForPeople) {
  const Output x = on("/cpu:1");
  const std::string text = explain(x).str();
  EXPECT_THAT(text, HasSubstr(cat("x: (Fill)\n  device: ", kPrefix, "CPU:1\n")));
  EXPECT_THAT(text, HasSubstr("  requested: /device:CPU:1\n"));
  EXPECT_THAT(text, HasSubstr("placement_support.h:"));
  EXPECT_THAT(text, HasSubstr(cat("  - ", kPrefix, "CPU:0: it is not /device:CPU:1\n  * ", kPrefix,
                                  "CPU:1: it is the first candidate\n")));
}

TEST_F(ExplainTest, RefusesNodesOfAnotherGraph) {
  Graph other;
  EXPECT_THROW(explain(fill(other, {2}, 1)), InvalidArgument);
}

}  // namespace explain_test
}  // namespace belfry
