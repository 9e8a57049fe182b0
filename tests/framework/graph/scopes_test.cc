#include "belfry/framework/graph/scopes.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace scopes_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string placed(Graph& graph) { return fill(graph, {}, 0).device().str(); }

struct FixedSetter final : DeviceSetter {
  explicit FixedSetter(std::string device) : result(std::move(device)) {}
  DeviceSpec place(const Node& node) override {
    seen.push_back(node.device().str());
    types.emplace_back(node.op().name);
    return result;
  }
  std::string str() const override { return "FixedSetter"; }
  std::map<std::string, std::int64_t> load() const override {
    return {{"/device:CPU:5", static_cast<std::int64_t>(seen.size())}};
  }
  std::string result;
  std::vector<std::string> seen, types;
};

TEST(DeviceScope, OuterSpecsFillInWhatInnerOnesLeaveOpen) {
  Graph graph;
  DeviceScope outer(graph, "/job:worker/cpu:3");
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:3");
  {
    DeviceScope inner(graph, "/cpu:1");
    EXPECT_EQ(placed(graph), "/job:worker/device:CPU:1");
    DeviceScope innermost(graph, "/task:7");
    EXPECT_EQ(placed(graph), "/job:worker/task:7/device:CPU:1");
  }
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:3");
}

TEST(DeviceScope, AnEmptySpecChangesNothing) {
  Graph graph;
  DeviceScope outer(graph, "/cpu:1");
  DeviceScope empty(graph, "");
  EXPECT_EQ(placed(graph), "/device:CPU:1");
}

TEST(DeviceScope, NoDeviceStopsWhatIsOutsideOnly) {
  Graph graph;
  DeviceScope outer(graph, "/job:worker/cpu:1");
  DeviceScope none(graph, NoDevice{});
  EXPECT_EQ(placed(graph), "");
  DeviceScope inner(graph, "/cpu:2");
  EXPECT_EQ(placed(graph), "/device:CPU:2");
}

TEST(DeviceScope, ASetterSeesAndReplacesWhatInnerScopesSet) {
  Graph graph;
  FixedSetter setter("/cpu:5");
  DeviceScope outer(graph, "/job:worker/cpu:9");
  DeviceScope with_setter(graph, setter);
  DeviceScope inner(graph, "/task:3/cpu:1");
  EXPECT_EQ(placed(graph), "/job:worker/device:CPU:5");  // the outer spec still fills in
  EXPECT_THAT(setter.seen, ElementsAre("/task:3/device:CPU:1"));
  EXPECT_THAT(setter.types, ElementsAre("Fill"));
}

TEST(DeviceScope, AFunctionMayLookAtTheNode) {
  Graph graph;
  DeviceScope scope(graph, [](const Node& node) {
    return DeviceSpec(node.output_type(0).shape.rank() == 0 ? "/cpu:0" : "/cpu:1");
  });
  EXPECT_EQ(fill(graph, {}, 0).device().str(), "/device:CPU:0");
  EXPECT_EQ(fill(graph, {3}, 0).device().str(), "/device:CPU:1");
  DeviceScope clear(graph, [](const Node&) { return DeviceSpec(); });
  EXPECT_EQ(fill(graph, {}, 0).device().str(), "/device:CPU:0");  // the outer one decides again
}

TEST(DeviceScope, AnEmptyResultClearsWhatInnerScopesSet) {
  Graph graph;
  const auto nowhere = [](const Node&) { return DeviceSpec(); };
  {
    DeviceScope function(graph, nowhere);
    DeviceScope inner(graph, "/cpu:3");
    EXPECT_EQ(placed(graph), "");
  }
  DeviceScope outer(graph, "/gpu:1");
  DeviceScope function(graph, nowhere);
  DeviceScope inner(graph, "/cpu:3");
  EXPECT_EQ(placed(graph), "/device:GPU:1");
}

TEST(DeviceScope, AFunctionMayReturnTextWhichIsParsed) {
  Graph graph;
  {
    DeviceScope function(graph, [](const Node&) { return "gpu:0"; });
    EXPECT_EQ(placed(graph), "/device:GPU:0");  // TensorFlow keeps "gpu:0" as it is
    DeviceScope job(graph, "/job:a");
    EXPECT_EQ(placed(graph), "/device:GPU:0");  // replaced
  }
  // TensorFlow keeps this one, too, as a device that no placer can find.
  DeviceScope nonsense(graph, [](const Node&) { return "nonsense"; });
  EXPECT_THAT(message_of<InvalidArgument>([&] { placed(graph); }),
              HasSubstr("Unknown attribute: 'nonsense'"));
}

// The program of the seed page on scopes and attributes.
TEST(DeviceScope, AFunctionThatIgnoresNodesDevicesOverridesInnerScopes) {
  Graph graph;
  const DeviceFunction assign_to_device = [](const Node& node) {
    return node.is_variable() ? DeviceSpec("/device:CPU:0") : DeviceSpec("/device:GPU:0");
  };
  {
    DeviceScope on(graph, assign_to_device);
    const Variable a = variable(graph, "a", {}, {.initializer = init::ones()});
    EXPECT_EQ(a.device().str(), "/device:CPU:0");
    EXPECT_EQ(placed(graph), "/device:GPU:0");
    DeviceScope inner(graph, "/CPU:0");
    EXPECT_EQ(placed(graph), "/device:GPU:0");
  }
  DeviceScope sibling(graph, "/CPU:0");
  EXPECT_EQ(placed(graph), "/device:CPU:0");
}

TEST(DeviceScope, AFunctionSeesWhatAVariableIs) {
  Graph graph;
  std::vector<std::string> seen;
  DeviceScope on(graph, [&](const Node& node) {
    if (node.is_variable())
      seen.push_back(cat(node.logical_name(), " ", node.variable().trainable));
    return node.device();
  });
  variable(graph, "w", {2}, {.initializer = init::zeros(), .trainable = false});
  EXPECT_THAT(seen, ElementsAre("w false"));
}

TEST(DeviceScope, RefusesFunctionsThatAreEmptyOrAddNodes) {
  Graph graph;
  EXPECT_THAT(message_of<InvalidArgument>([&] { DeviceScope on(graph, DeviceFunction()); }),
              AllOf(HasSubstr("scopes_test.cc:"), HasSubstr("the function is empty")));
  DeviceScope on(graph, [&](const Node&) { return fill(graph, {}, 0).device(); });
  EXPECT_THAT(message_of<InvalidArgument>([&] { placed(graph); }),
              HasSubstr("device setters and functions must not add nodes"));
  DeviceScope none(graph, NoDevice{});
  EXPECT_EQ(placed(graph), "");
}

TEST(DeviceScope, TakesSpecsWhoseFieldsAreSetByHand) {
  Graph graph;
  DeviceSpec spec;
  spec.type = "cpu";
  spec.index = 1;
  Output x;
  {
    DeviceScope on(graph, spec);
    x = fill(graph, {2}, 3);
  }
  EXPECT_EQ(x.device().str(), "/device:CPU:1");
  Session session(graph, {.device_count = {{"CPU", 2}}});
  EXPECT_EQ(session.run(x).data<float>()[1], 3);
  EXPECT_TRUE(spec.matches(session.placement(x)));
}

TEST(DeviceScope, AnIndexThatGoesToAnotherTypeIsWarnedOfOncePerScope) {
  Graph graph;
  const auto printed = [](const auto& f) {
    ::testing::internal::CaptureStderr();
    f();
    return ::testing::internal::GetCapturedStderr();
  };
  DeviceScope outer(graph, "/gpu:1");
  EXPECT_THAT(printed([&] {
                DeviceScope inner(graph, "/cpu");
                EXPECT_EQ(placed(graph), "/device:CPU:1");
              }),
              AllOf(StartsWith("W Fill 'Fill' (built at scopes_test.cc:"),
                    HasSubstr("asks for /device:CPU:*, and scope /device:GPU:1 (scopes_test.cc:"),
                    HasSubstr("adds its index: /device:CPU:1")));
  EXPECT_EQ(printed([&] {
              DeviceScope inner(graph, "/cpu");
              placed(graph);
            }),
            "");
  EXPECT_EQ(printed([&] {
              DeviceScope first(graph, "/gpu:2");
              DeviceScope same_type(graph, "/gpu"), job(graph, "/job:a");
              placed(graph);
              DeviceScope own_index(graph, "/cpu:0");
              placed(graph);
            }),
            "");
}

TEST(DeviceScope, ReasonsAreKeptInOrderOfApplication) {
  Graph graph;
  FixedSetter setter("/cpu:5");
  DeviceScope outer(graph, "/job:a/cpu:0");
  DeviceScope inner(graph, setter);
  DeviceScope empty(graph, "");
  DeviceScope innermost(graph, "/cpu:7");
  const auto reasons = fill(graph, {}, 0).node().request().reasons;
  ASSERT_EQ(reasons.size(), 3u);
  EXPECT_EQ(reasons[0].what(), "scope /device:CPU:7");
  EXPECT_EQ(reasons[0].result.str(), "/device:CPU:7");
  EXPECT_EQ(reasons[1].what(), "setter FixedSetter");
  EXPECT_EQ(reasons[1].result.str(), "/device:CPU:5");
  EXPECT_FALSE(reasons[1].load);  // loads are for variables
  EXPECT_EQ(reasons[2].what(), "scope /job:a/device:CPU:0");
  EXPECT_EQ(reasons[2].result.str(), "/job:a/device:CPU:5");
  EXPECT_THAT(reasons[2].site.str(), StartsWith("scopes_test.cc:"));
  EXPECT_EQ(reasons[0].site.line, reasons[2].site.line + 3);
}

TEST(DeviceScope, NodesThatAskAlikeShareTheirRequest) {
  Graph graph;
  const auto request = [&] { return &fill(graph, {}, 0).node().request(); };
  DeviceScope scope(graph, "/cpu:0");
  const DeviceRequest* const first = request();
  EXPECT_EQ(request(), first);
  {
    DeviceScope inner(graph, "/job:a");
    EXPECT_NE(request(), first);
  }
  EXPECT_EQ(request(), first);
}

TEST(DeviceScope, VariablesKeepTheLoadsBeforeTheSetterDecided) {
  Graph graph;
  FixedSetter setter("/cpu:5");
  DeviceScope scope(graph, setter);
  placed(graph);
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  const auto reasons = v.node().request().reasons;
  ASSERT_EQ(reasons.size(), 1u);
  ASSERT_TRUE(reasons[0].load);
  EXPECT_THAT(*reasons[0].load, ElementsAre(std::pair("/device:CPU:5", 1)));
}

TEST(DeviceScope, ReasonsLeaveOutWhatNoDeviceCutsOff) {
  Graph graph;
  DeviceScope outer(graph, "/cpu:0");
  DeviceScope none(graph, NoDevice{});
  DeviceScope inner(graph, "/cpu:1");
  const auto reasons = fill(graph, {}, 0).node().request().reasons;
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_EQ(reasons[0].what(), "scope /device:CPU:1");
  EXPECT_EQ(reasons[1].what(), "no device");
  EXPECT_EQ(reasons[1].result.str(), "/device:CPU:1");
}

TEST(DeviceScope, OnCpuAndOnGpuTakeNumbersOfTheRun) {
  Graph graph;
  for (int id = 0; id < 2; ++id) {  // ADCME's @gpu would take the letters "id"
    DeviceScope on = on_gpu(graph, id);
    EXPECT_EQ(placed(graph), cat("/device:GPU:", id));
  }
  DeviceScope host = on_cpu(graph);
  EXPECT_EQ(placed(graph), "/device:CPU:0");
  DeviceScope gpu = on_gpu(graph);
  EXPECT_EQ(placed(graph), "/device:GPU:0");
  EXPECT_THAT(message_of<InvalidArgument>([&] { DeviceScope on = on_gpu(graph, -1); }),
              AllOf(HasSubstr("on_gpu(-1) (scopes_test.cc:"), HasSubstr("0 or more")));
  EXPECT_THROW(DeviceScope on = on_cpu(graph, -7), InvalidArgument);
}

TEST(EnclosingDevice, MergesSpecsUpToWhatSetsThemAside) {
  Graph graph;
  FixedSetter setter("/cpu:9");
  DeviceScope job(graph, "/job:a/gpu:1");
  DeviceScope function(graph, setter);
  DeviceScope task(graph, "/task:2");
  EXPECT_EQ(enclosing_device(graph).str(), "/job:a/task:2/device:GPU:1");
  DeviceScope none(graph, NoDevice{});
  EXPECT_EQ(enclosing_device(graph).str(), "");
  DeviceScope inner(graph, "/cpu:1");
  EXPECT_EQ(enclosing_device(graph).str(), "/device:CPU:1");
  ColocateWith nothing(graph, nullptr);
  EXPECT_EQ(enclosing_device(graph).str(), "");
}

TEST(DeviceScope, EndsWhenAnExceptionLeavesIt) {
  Graph graph;
  try {
    DeviceScope scope(graph, "/cpu:1");
    NameScope names(graph, "a");
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(placed(graph), "");
  EXPECT_EQ(graph.scopes().names(), "");
}

}  // namespace scopes_test
}  // namespace belfry
