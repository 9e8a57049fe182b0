// Placements follow from the whole graph, not from fetches or earlier runs. Quotes of TensorFlow
// are what 1.15.5 printed.
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/placement/explain.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace placement_test {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Adds to a variable in place, and has no kernel for GPUs.
const Op kWriteOnHost{.name = "WriteOnHost",
                      .inputs = 1,
                      .shape = same_as_input,
                      .no_gradient = "it is for tests",
                      .writes = 1,
                      .reference = [](KernelPlan&) -> KernelRun {
                        return [](const KernelPointers& p) { *p.written<float>(0) += 1; };
                      },
                      .cpu_only = "it is for tests"};

// Sessions of four CPUs.
class WholeGraphTest : public PlacementTest {
 protected:
  WholeGraphTest() : PlacementTest(4) {}

  std::unique_ptr<Session> session(bool soft = false) const {
    return std::make_unique<Session>(
        graph, SessionOptions{.device_count = {{"CPU", 4}}, .allow_soft_placement = soft});
  }
  // The device of the node in a plan of one fetch.
  DeviceSpec runs_on(Session& session, const Output& output) {
    session.run({output.node()});
    return session.devices()[at(device_of(*session.prepare({output.node()}).plan(), output))];
  }
  Variable free_variable(const char* name) {
    return variable(graph, name, {2}, {.initializer = init::zeros()});
  }
};

// TensorFlow: ('b', '/job:localhost/replica:0/task:0/device:CPU:1').
TEST_F(WholeGraphTest, AColocatedNodeThatIsNotFetchedDecidesToo) {
  const Output n = on("", "n"), a = with(n, "/cpu:1", "a"), b = with(n, "", "b");
  EXPECT_EQ(runs_on(*session(), b), cpu(1));
  EXPECT_EQ(runs_on(*session(), n), cpu(1));
  EXPECT_EQ(runs_on(*session(), a), cpu(1));
}

// TensorFlow has nn, v and v/read on CPU:3, whichever of them is fetched.
TEST_F(WholeGraphTest, AVariableIsWhereItsColocatedNodesAskToBeInAnyOrder) {
  const Variable v = free_variable("v");
  const Output nn = with(v.ref(), "/cpu:3", "nn");
  const auto first = session(), second = session(), third = session();
  first->run({v});
  EXPECT_EQ(runs_on(*first, nn), cpu(3));
  EXPECT_EQ(runs_on(*second, nn), cpu(3));
  second->run({v});
  third->run({nn, v});
  for (Session* each : {first.get(), second.get(), third.get()}) {
    each->run({nn, v});
    for (const Output& output : {nn, v.ref(), static_cast<Output>(v)})
      EXPECT_EQ(each->placement(output), cpu(3));
  }
}

TEST_F(WholeGraphTest, AWriteThatIsNotRunYetDecidesWhereItsVariableIs) {
  const Variable v = free_variable("v");
  const Output loss = identity(v, "loss");
  Node& update = graph.add(kWriteOnHost, {v.ref()}, "update");
  for (const bool loss_first : {true, false}) {
    Session session(graph, {.device_count = {{"GPU", 1}}, .dry_run = true});
    session.prepare({loss_first ? loss.node() : update});
    const CompiledStep& last = session.prepare({loss_first ? update : loss.node()});
    EXPECT_EQ(session.placement(v.ref()), cpu(0)) << loss_first;
    EXPECT_EQ(session.devices()[at(device_of(*last.plan(), loss_first ? update.output() : loss))],
              loss_first ? cpu(0) : gpu(0));
  }
}

TEST_F(WholeGraphTest, AGeneratorGoesWhereAllItsConsumersAreFetchedOrNot) {
  const Output shared = on("", "shared"), lone = on("", "lone");
  DeviceScope scope(graph, "/cpu:2");
  const Output one = identity(shared), two = identity(lone);
  DeviceScope other(graph, "/cpu:1");
  identity(shared);
  const auto sessions = session();
  sessions->run({one, two});
  EXPECT_EQ(sessions->placement(shared), cpu(0));
  EXPECT_EQ(sessions->placement(lone), cpu(2));
}

TEST_F(WholeGraphTest, WhatIsFedIsWhereItWouldBeComputed) {
  Output x;
  {
    DeviceScope scope(graph, "/cpu:3");
    x = identity(on("/cpu:1"), "x");
  }
  DeviceScope scope(graph, "/cpu:2");
  const Output y = identity(x, "y");
  const auto fed = session();
  const CompiledStep& step = fed->prepare({y}, {{x, {2}}});
  EXPECT_EQ(step.plan()->nodes[0].device(), 3);
  EXPECT_EQ(fed->placement(x), cpu(3));
}

TEST_F(WholeGraphTest, TellsThePlacementOfWhatNeedsAFeedAndMakesNothing) {
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  DeviceScope scope(graph, "/cpu:2");
  const Variable v = free_variable("v");
  const Output y = identity(x, "y");
  const auto asked = session();
  EXPECT_EQ(asked->placement(y), cpu(2));
  EXPECT_EQ(asked->placement(x), cpu(2));
  EXPECT_EQ(asked->placement(v.ref()), cpu(2));
  EXPECT_EQ(asked->explain(y).device, cpu(2).str());
  EXPECT_EQ(asked->device_use()[2].variables, 0);
  Graph other;
  const Output foreign = fill(other, {2}, 1);
  EXPECT_THAT(message_of<InvalidArgument>([&] { asked->placement(foreign); }),
              HasSubstr("belongs to another graph than the session's"));
}

// TensorFlow fails each run of such a graph: "Cannot assign a device for operation bad: node bad
// (defined at ...)  was explicitly assigned to /device:CPU:9 but available devices are ...".
TEST_F(WholeGraphTest, WhatCannotBePlacedFailsTheRunsThatNeedItAlone) {
  const Output ok = on("", "ok"), bad = on("/cpu:9", "bad");
  const Output after = identity(bad, "after");
  const auto half = session();
  half->run({ok});
  EXPECT_THAT(message_of<InvalidArgument>([&] { half->run({after}); }),
              HasSubstr("Cannot assign a device for operation bad: node bad (defined at "));
  EXPECT_THAT(message_of<InvalidArgument>([&] { half->placement(bad); }),
              HasSubstr("was explicitly assigned to /device:CPU:9"));
  EXPECT_EQ(half->placement(after), cpu(0));
}

TEST_F(WholeGraphTest, AContradictionFailsTheRunsOfAllThatItConcerns) {
  const Output n = on("", "n"), a = with(n, "/cpu:1", "a"), b = with(n, "/cpu:2", "b");
  const Output ok = on("/cpu:3", "ok");
  const auto refusing = session();
  for (const Output& each : {n, a, b})
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { refusing->run({each}); }),
        ContainsRegex("^Cannot colocate nodes b \\(defined at placement_support.h:[0-9]+\\) "
                      "and n \\(defined at placement_support.h:[0-9]+\\): Cannot merge "));
  EXPECT_EQ(runs_on(*refusing, ok), cpu(3));
}

// TensorFlow: "Cannot colocate nodes node Const ... and node v ...: Cannot merge devices with
// incompatible ids", at each later run, of v alone, too.
TEST_F(WholeGraphTest, AVariableWithMemoryRefusesLaterConstraintsAndStaysUsable) {
  const Variable v = free_variable("v");
  const auto growing = session();
  growing->run({v});
  const Output nn = with(v.ref(), "/cpu:3", "nn"), beside = with(v.ref(), "", "beside");
  const std::string refused = message_of<InvalidArgument>([&] { growing->run({nn}); });
  EXPECT_THAT(
      refused,
      AllOf(
          ContainsRegex("^Cannot colocate nodes nn \\(defined at placement_support.h:[0-9]+\\) "
                        "and v \\(defined at placement_test.cc:[0-9]+\\): Cannot merge devices "
                        "with incompatible ids: "),
          ContainsRegex("; Variable 'v' \\(built at placement_test.cc:[0-9]+\\) has had memory on "
                        "/job:localhost/replica:0/task:0/device:CPU:0 since an earlier run: "
                        "constrain it before it is first run, or make a new session$")));
  EXPECT_EQ(runs_on(*growing, beside), cpu(0));
  growing->run({assign(v, beside)});
  EXPECT_EQ(growing->read(v), floats({1, 1}));
  EXPECT_EQ(session()->placement(v.ref()), cpu(3));
}

TEST_F(WholeGraphTest, AVariableWithMemoryRefusesALaterWriteWithoutAKernelThere) {
  const Variable v = free_variable("v");
  Session session(graph, {.device_count = {{"GPU", 1}}, .dry_run = true});
  session.prepare({v});
  Node& update = graph.add(kWriteOnHost, {v.ref()}, "update");
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { session.prepare({update}); }),
      AllOf(ContainsRegex("Cannot colocate nodes v \\(defined at placement_test.cc:[0-9]+\\) "
                          "and update \\(defined at placement_test.cc:[0-9]+\\): no "
                          "supported kernel for GPU devices: WriteOnHost 'update'"),
            HasSubstr("device:GPU:0 since an earlier run")));
  session.prepare({identity(v)});
  EXPECT_EQ(session.placement(v.ref()), gpu(0));
}

TEST_F(WholeGraphTest, ANodeBetweenTwoVariablesWithMemoryIsRefusedAlone) {
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = free_variable("v");
  DeviceScope inner(graph, "/cpu:2");
  const Variable w = free_variable("w");
  const auto growing = session();
  growing->run({v, w});
  DeviceScope none(graph, NoDevice{});
  const auto make_both = [&]() -> Node& {
    ColocateWith first(v.ref()), second(w.ref());
    return fill(graph, {2}, 1, DType::kF32, "both").node();
  };
  Node& both = make_both();
  EXPECT_THAT(message_of<InvalidArgument>([&] { growing->run({both}); }),
              HasSubstr("Cannot colocate nodes both "));
  growing->run({identity(v), identity(w)});
}

// TensorFlow does so, too; only variables with memory stay.
TEST_F(WholeGraphTest, AGraphThatGrowsMovesWhatHasNoMemory) {
  const Output n = on("", "n"), b = with(n, "", "b");
  const Variable idle = free_variable("idle");
  const auto growing = session();
  EXPECT_EQ(runs_on(*growing, b), cpu(0));
  EXPECT_EQ(growing->placement(idle.ref()), cpu(0));
  with(n, "/cpu:1", "a");
  const Output pulls = with(idle.ref(), "/cpu:2", "pulls");
  EXPECT_EQ(growing->placement(b), cpu(1));
  EXPECT_EQ(runs_on(*growing, b), cpu(0)) << "steps stay as they were prepared";
  EXPECT_EQ(runs_on(*growing, identity(b)), cpu(0));
  EXPECT_EQ(runs_on(*growing, pulls), cpu(2));
  EXPECT_EQ(growing->placement(idle.ref()), cpu(2));
}

// A node is taken back with its variable, and another node gets its number.
TEST_F(WholeGraphTest, NodesThatWereTakenBackAreForgotten) {
  const auto asking = session();
  DeviceScope scope(graph, "/cpu:1");
  const auto fails = [&](Graph& g, const Shape&, DType) -> Output {
    asking->placement(fill(g, {2}, 1));
    throw InvalidArgument("it fails");
  };
  EXPECT_THROW(variable(graph, "v", {2}, {.initializer = fails}), InvalidArgument);
  DeviceScope other(graph, "/cpu:2");
  fill(graph, {2}, 1);
  EXPECT_EQ(asking->placement(identity(fill(graph, {2}, 1))), cpu(2));
}

class SoftPlacementTest : public WholeGraphTest {
 protected:
  static int lines_of(const std::string& text) {
    return static_cast<int>(std::ranges::count(text, '\n'));
  }
};

TEST_F(SoftPlacementTest, AVariableThatIsMovedIsWarnedOfOnceInALine) {
  DeviceScope scope(graph, "/gpu:1");
  const Variable v = free_variable("v");
  const Output written = assign(v, fill(graph, {2}, 1)).output();
  ::testing::internal::CaptureStderr();
  const auto moving = session(true);
  moving->run({v});
  moving->run({written});
  moving->run({identity(v)});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_of(text), 1) << text;
  EXPECT_THAT(text,
              ContainsRegex("Variable 'v' \\(built at placement_test.cc:[0-9]+\\) asks for "
                            "/device:GPU:1, but soft placement put it on "
                            "/job:localhost/replica:0/task:0/device:CPU:0: the session has no such "
                            "device\n$"));
}

TEST_F(SoftPlacementTest, TheWarningNamesTheOpThatMovedTheVariable) {
  DeviceScope scope(graph, "/gpu:0");
  const Variable v = free_variable("v"), stays = free_variable("stays");
  graph.add(kWriteOnHost, {v.ref()}, "update");
  ::testing::internal::CaptureStderr();
  Session session(graph,
                  {.device_count = {{"GPU", 1}}, .allow_soft_placement = true, .dry_run = true});
  session.prepare({v, stays});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines_of(text), 1) << text;
  EXPECT_THAT(text,
              AllOf(HasSubstr("device:CPU:0: no supported kernel for GPU devices: WriteOnHost "
                              "'update' (built at placement_test.cc:"),
                    HasSubstr("; it is for tests\n"), Not(HasSubstr("stays"))));
}

}  // namespace placement_test
}  // namespace belfry
