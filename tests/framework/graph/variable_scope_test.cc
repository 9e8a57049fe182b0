#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"

// Where a comment says "TensorFlow", version 1.15.5 printed it.
namespace belfry {
namespace variable_scope_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Variable zeros(Graph& graph, const char* name, Shape shape = {2}) {
  return variable(graph, name, std::move(shape), {.initializer = init::zeros()});
}

std::string added(Graph& graph, const char* name) {
  return fill(graph, {}, 0, DType::kF32, name).name();
}

// The path of a scope with a default name, opened and left.
std::string opened(Graph& graph, const char* default_name) {
  VariableScope scope(graph, "", {.default_name = default_name});
  return scope.path();
}

TEST(VariableScope, OpensANameScopeMadeUnique) {
  Graph graph;
  {
    VariableScope x(graph, "x");
    EXPECT_EQ(zeros(graph, "v").name(), "x/v");
    EXPECT_EQ(added(graph, "n"), "x/n");
  }
  VariableScope x(graph, "x");
  EXPECT_EQ(x.path(), "x");
  EXPECT_EQ(zeros(graph, "v2").name(), "x/v2");
  EXPECT_EQ(added(graph, "n"), "x_1/n");
}

TEST(VariableScope, MayLeaveTheNameScopeAlone) {
  Graph graph;
  VariableScope z(graph, "z", {.auxiliary_name_scope = false});
  EXPECT_EQ(zeros(graph, "v").name(), "z/v");
  EXPECT_EQ(added(graph, "n"), "n");
}

TEST(VariableScope, WithoutANameChangesNoNames) {
  Graph graph;
  NameScope names(graph, "names");
  VariableScope a(graph, "a");
  VariableScope same(graph, "", VariableReuse::kCreateOrGet);
  EXPECT_EQ(zeros(graph, "v").name(), "a/v");  // TensorFlow: a//v
  EXPECT_EQ(added(graph, "n"), "names/a/n");
  EXPECT_EQ(zeros(graph, "v"), zeros(graph, "v"));
}

TEST(VariableScope, RefusesNamesThatCouldNotBeKeys) {
  Graph graph;
  for (const char* name : {"a b", "_a", "a/", "a:0"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { VariableScope scope(graph, name); }),
                HasSubstr("is not a valid scope name"));
  EXPECT_EQ(graph.scopes().frames().size(), 0u);
  EXPECT_THROW(zeros(graph, ""), InvalidArgument);
  EXPECT_THROW(zeros(graph, "a b"), InvalidArgument);
}

TEST(VariableScope, DefaultNamesAreMadeUnique) {
  Graph graph;
  EXPECT_EQ(opened(graph, "d"), "d");
  EXPECT_EQ(opened(graph, "d"), "d_1");
  { VariableScope scope(graph, "e"); }
  EXPECT_EQ(opened(graph, "e"), "e_1");  // names given count, too
  VariableScope named(graph, "named", {.default_name = "d"});
  EXPECT_EQ(named.path(), "named");
}

TEST(VariableScope, ReenteringResetsDefaultNames) {
  Graph graph;
  {
    VariableScope a(graph, "a");
    EXPECT_EQ(opened(graph, "d"), "a/d");
    EXPECT_EQ(opened(graph, "d"), "a/d_1");
  }
  VariableScope a(graph, "a");
  EXPECT_EQ(opened(graph, "d"), "a/d");
  { VariableScope by_name(graph, "d_1"); }
  EXPECT_EQ(opened(graph, "d"), "a/d_2");  // TensorFlow: a/d, a/d_1, a/d_2
}

TEST(VariableScope, ReenteringTheCurrentScopeCountsForItself) {
  Graph graph;
  VariableScope a(graph, "a");
  EXPECT_EQ(opened(graph, "d"), "a/d");
  for (int i = 0; i < 2; ++i) {
    VariableScope again(graph, "", VariableReuse::kCreateOrGet);
    EXPECT_EQ(opened(graph, "d"), "a/d_1");
    EXPECT_EQ(opened(graph, "d"), "a/d_2");
  }
  EXPECT_EQ(opened(graph, "d"), "a/d_1");
}

TEST(VariableScope, DefaultNamesOpenNameScopesOfTheirOwn) {
  Graph graph;
  added(graph, "d");
  VariableScope scope(graph, "", {.default_name = "d"});
  EXPECT_EQ(zeros(graph, "v").name(), "d/v");
  EXPECT_EQ(added(graph, "n"), "d_1/n");
}

TEST(VariableScope, DefaultNamesCannotBeReusedUnlessThatIsInherited) {
  Graph graph;
  for (const VariableReuse reuse : {VariableReuse::kMustExist, VariableReuse::kCreateOrGet})
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { VariableScope scope(graph, "", {.default_name = "d", .reuse = reuse}); }),
                HasSubstr("reuse=True cannot be used without a name_or_scope"));
  VariableScope outer(graph, "r", VariableReuse::kCreateOrGet);
  EXPECT_EQ(opened(graph, "d"), "r/d");
}

TEST(VariableScope, InnerReuseReplacesOuter) {
  Graph graph;
  VariableScope outer(graph, "r", VariableReuse::kMustExist);
  {
    VariableScope inherits(graph, "i");
    EXPECT_THROW(zeros(graph, "v"), NotFoundError);
  }
  VariableScope inner(graph, "i", VariableReuse::kCreateOrGet);
  EXPECT_EQ(zeros(graph, "v").name(), "r/i/v");
}

TEST(VariableScope, FieldsAreInherited) {
  Graph graph;
  VariableScope s(graph, "s", {.initializer = init::ones(), .dtype = DType::kF64});
  VariableScope i(graph, "i");
  const Variable v = variable(graph, "v", {2}),
                 w = variable(graph, "w", {2}, {.dtype = DType::kF32});
  const Variable x = variable(graph, "x", {2}, {.initializer = init::zeros()});
  EXPECT_EQ(v.dtype(), DType::kF64);
  EXPECT_EQ(w.dtype(), DType::kF32);
  EXPECT_EQ(variable(graph, "outside", {}).dtype(), DType::kF64);
  Session session(graph);
  EXPECT_EQ(session.read(v), Tensor({2}, std::vector<double>{1, 1}));
  EXPECT_EQ(session.read(w), floats({1, 1}));
  EXPECT_EQ(session.read(x), Tensor({2}, std::vector<double>{0, 0}));
}

TEST(VariableScope, FieldsEndWithTheScope) {
  Graph graph;
  { VariableScope s(graph, "s", {.dtype = DType::kF64, .caching_device = "/cpu:1"}); }
  const Variable v = variable(graph, "v", {2});
  EXPECT_EQ(v.dtype(), DType::kF32);
  EXPECT_THAT(names_of(static_cast<Output>(v).node().request().colocation), ElementsAre("v"));
}

TEST(VariableScope, IntegersStartAtZeroByDefault) {
  Graph graph;
  const Variable v = variable(graph, "i", {2}, {.dtype = DType::kI64});
  Session session(graph);
  EXPECT_EQ(session.read(v), Tensor({2}, std::vector<std::int64_t>{0, 0}));
}

std::string read_device(Variable v) { return static_cast<Output>(v).device().str(); }

TEST(VariableScope, CachingDevicesAreInherited) {
  Graph graph;
  VariableScope s(graph, "s", {.caching_device = "/cpu:3"});
  EXPECT_EQ(read_device(zeros(graph, "v")), "/device:CPU:3");
  {
    VariableScope i(graph, "i");
    EXPECT_EQ(read_device(zeros(graph, "v")), "/device:CPU:3");
    VariableScope other(graph, "other", {.caching_device = "/cpu:5"});
    EXPECT_EQ(read_device(zeros(graph, "v")), "/device:CPU:5");
  }
  const Variable own = variable(graph, "own", {2}, {.caching_device = "/cpu:4"});
  EXPECT_EQ(read_device(own), "/device:CPU:4");
}

TEST(VariableScope, CachingDevicesAreFilledInBySpecsWhereTheVariableIsMade) {
  Graph graph;
  Variable v, w;
  {
    DeviceScope scope(graph, "/job:ps/cpu:1");
    v = variable(graph, "v", {}, {.caching_device = "/gpu:0"});
    w = zeros(graph, "w");
  }
  DeviceScope elsewhere(graph, "/job:worker/cpu:7");
  EXPECT_EQ(read_device(v), "/job:ps/device:GPU:0");
  EXPECT_THAT(names_of(static_cast<Output>(v).node().request().colocation), IsEmpty());
  EXPECT_EQ(read_device(w), "/job:ps/device:CPU:1");
  EXPECT_THAT(names_of(static_cast<Output>(w).node().request().colocation), ElementsAre("w"));
  // In TensorFlow a function around moves the cached read: '/cpu:5'. Here it stays.
  DeviceScope function(graph, [](const Node&) { return DeviceSpec("/cpu:5"); });
  EXPECT_EQ(read_device(variable(graph, "fn", {}, {.caching_device = "/job:a/gpu:0"})),
            "/job:a/device:GPU:0");
}

struct Renamer final : VariableGetter {
  void request(VariableRequest& request) override {
    devices.push_back(request.options.caching_device.str());
    request.name += "_r";
    request.options.caching_device = "/cpu:6";
  }
  std::vector<std::string> devices;
};

TEST(VariableScope, GettersSeeInheritedFieldsAndDecide) {
  Graph graph;
  Renamer inner;
  VariableScope s(graph, "s", {.caching_device = "/cpu:1"});
  VariableScope i(graph, "i", {.getter = &inner});
  const Variable w = zeros(graph, "w");
  EXPECT_EQ(w.name(), "s/i/w_r");
  EXPECT_EQ(read_device(w), "/device:CPU:6");
  EXPECT_THAT(inner.devices, ElementsAre("/device:CPU:1"));
  VariableScope reuse(graph, "", VariableReuse::kMustExist);
  EXPECT_EQ(zeros(graph, "w"), w);
}

TEST(Variable, GetsASuffixWhereANodeHasItsNameButKeepsItsKey) {
  Graph graph;
  added(graph, "v");
  const Variable v = zeros(graph, "v");
  EXPECT_EQ(v.name(), "v_1");
  EXPECT_EQ(graph.stored_variable("v"), v);
  EXPECT_FALSE(graph.stored_variable("v_1"));
  VariableScope reuse(graph, "", VariableReuse::kMustExist);
  EXPECT_EQ(zeros(graph, "v"), v);
}

TEST(NewVariable, IsNamedLikeANode) {
  Graph graph;
  const auto add = [&](const char* name) {
    return new_variable(graph, name, {}, {.initializer = init::zeros()});
  };
  {
    NameScope ns(graph, "ns");
    EXPECT_EQ(add("v").name(), "ns/v");
    EXPECT_EQ(add("v").name(), "ns/v_1");
    EXPECT_EQ(zeros(graph, "q").name(), "q");
  }
  for (const char* name : {"x/u", "x_1/u"}) {
    VariableScope x(graph, "x");
    EXPECT_EQ(add("u").name(), name);
  }
  EXPECT_FALSE(graph.stored_variable("x/u"));
  EXPECT_EQ(graph.variables(kTrainableVariables, "x").size(), 2u);
}

}  // namespace variable_scope_test
}  // namespace belfry
