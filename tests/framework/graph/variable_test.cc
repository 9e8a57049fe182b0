#include "belfry/framework/graph/variable.h"

#include <cmath>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace variable_test {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBothLines[] = "variable_test.cc:[0-9]+.*variable_test.cc:[0-9]+";

Variable zeros(Graph& graph, const char* name, Shape shape = {2}, At at = {}) {
  return variable(graph, name, std::move(shape), {.initializer = init::zeros()}, at);
}

TEST(Variable, IsNotCreatedTwice) {
  Graph graph;
  zeros(graph, "w");
  EXPECT_THAT(message_of<InvalidArgument>([&] { zeros(graph, "w"); }),
              AllOf(HasSubstr("variable 'w' already exists"), ContainsRegex(kBothLines)));
}

TEST(Variable, IsFoundWhereTheScopeAllowsReuse) {
  Graph graph;
  Variable w;
  {
    VariableScope scope(graph, "fc");
    w = zeros(graph, "w");
    EXPECT_EQ(w.name(), "fc/w");
  }
  {
    VariableScope scope(graph, "fc", VariableReuse::kMustExist);
    EXPECT_EQ(zeros(graph, "w"), w);
    EXPECT_THAT(message_of<NotFoundError>([&] { zeros(graph, "b"); }),
                AllOf(HasSubstr("variable 'fc/b' does not exist"), HasSubstr("variable_test.cc:")));
  }
  VariableScope scope(graph, "fc", VariableReuse::kCreateOrGet);
  EXPECT_EQ(zeros(graph, "w"), w);
  EXPECT_EQ(zeros(graph, "b").name(), "fc/b");
}

TEST(Variable, ReuseIsInheritedByInnerScopesAndEndsWithTheOuter) {
  Graph graph;
  {
    VariableScope outer(graph, "a", VariableReuse::kCreateOrGet);
    VariableScope inner(graph, "b");
    EXPECT_EQ(zeros(graph, "w"), zeros(graph, "w"));
    EXPECT_EQ(zeros(graph, "w").name(), "a/b/w");
  }
  VariableScope outer(graph, "a");
  EXPECT_THROW(zeros(graph, "b/w"), InvalidArgument);
}

TEST(Variable, OfAnotherTypeIsRefusedWithBothLines) {
  Graph graph;
  VariableScope scope(graph, "fc", VariableReuse::kCreateOrGet);
  zeros(graph, "w", {2});
  EXPECT_THAT(message_of<InvalidArgument>([&] { zeros(graph, "w", {3}); }),
              AllOf(HasSubstr("variable 'fc/w' is f32[2]"), HasSubstr("asks for f32[3]"),
                    ContainsRegex(kBothLines)));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { variable(graph, "w", {2}, {.dtype = DType::kF64}); }),
      HasSubstr("asks for f64[2]"));
}

TEST(Variable, NeedsAKnownShape) {
  Graph graph;
  for (const std::int64_t dim : {kUnknownSize, std::int64_t{-3}})
    EXPECT_THAT(message_of<InvalidArgument>([&] {
                  zeros(graph, "w", {dim, 2});
                }),
                AllOf(HasSubstr("variable 'w' (built at variable_test.cc:"),
                      HasSubstr(cat(Shape{dim, 2}, " must be known, and have no negative"))));
}

TEST(Variable, NamesIgnoreNameScopes) {
  Graph graph;
  NameScope names(graph, "layers");
  VariableScope scope(graph, "fc");
  EXPECT_EQ(zeros(graph, "w").name(), "fc/w");
  EXPECT_EQ(fill(graph, {}, 0, DType::kF32, "x").name(), "layers/fc/x");
  VariableScope same(graph, "");
  EXPECT_EQ(zeros(graph, "b").name(), "fc/b");
}

TEST(Variable, IsCollectedByItsKind) {
  Graph graph;
  const Variable w = zeros(graph, "w");
  const Variable state =
      variable(graph, "s", {}, {.initializer = init::zeros(), .trainable = false});
  const Variable copy =
      variable(graph, "l", {2},
               {.initializer = init::zeros(), .collections = {std::string(kLocalVariables)}});
  EXPECT_THAT(graph.variables(kGlobalVariables), ElementsAre(w, state));
  EXPECT_THAT(graph.variables(kLocalVariables), ElementsAre(copy));
  EXPECT_THAT(graph.variables(kTrainableVariables), ElementsAre(w, copy));
}

struct Recorder final : VariableGetter {
  Recorder(std::vector<std::string>& calls, std::string own) : log(calls), name(std::move(own)) {}
  void request(VariableRequest& request) override {
    log.push_back(cat(name, " ", request.name));
    request.name = cat(name, "_", request.name);
    request.options.trainable = false;
  }
  std::vector<std::string>& log;
  std::string name;
};

TEST(Variable, GettersNestAndTheInnermostIsAskedFirst) {
  Graph graph;
  std::vector<std::string> log;
  Recorder outer(log, "outer"), inner(log, "inner");
  VariableScope first(graph, outer);
  {
    VariableScope second(graph, inner);
    const Variable w = zeros(graph, "w");
    EXPECT_EQ(w.name(), "outer_inner_w");
    EXPECT_FALSE(w.trainable());
    EXPECT_THAT(log, ElementsAre("inner w", "outer inner_w"));
    // It is stored under the name that was asked for, and getters are not asked again.
    VariableScope reuse(graph, "", VariableReuse::kMustExist);
    EXPECT_EQ(zeros(graph, "w"), w);
    EXPECT_EQ(log.size(), 2u);
  }
  EXPECT_EQ(zeros(graph, "b").name(), "outer_b");
}

TEST(Variable, InitialisersAreBuiltBesideIt) {
  Graph graph;
  DeviceScope on(graph, "/cpu:1");
  const Variable w = variable(graph, "w", {2});
  DeviceScope elsewhere(graph, "/cpu:2");
  const Output initial = w.node().variable().initial;
  // TensorFlow leaves the device open and names the group alone; the placer's result is the same.
  EXPECT_EQ(initial.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(initial.node().request().colocation), ElementsAre("w"));
  EXPECT_EQ(initial.name(), "w/Initializer/RandomUniform");
  EXPECT_THAT(initial.node().origin().site.str(), ::testing::StartsWith("variable_test.cc:"));
}

TEST(Variable, ReadsAreBesideItWhateverTheScopesAtFirstUse) {
  Graph graph;
  Variable w;
  {
    DeviceScope on(graph, "/cpu:1");
    w = zeros(graph, "w");
  }
  DeviceScope elsewhere(graph, "/cpu:2");
  const Output anchor = fill(graph, {}, 0);
  ColocateWith beside(anchor);
  NameScope names(graph, "scope");
  const Output read = w;
  EXPECT_EQ(read.name(), "w/read");
  EXPECT_EQ(read.device().str(), "/device:CPU:1");
  EXPECT_THAT(names_of(read.node().request().colocation), ElementsAre("w"));
  EXPECT_EQ(static_cast<Output>(w), read);  // one for all uses
}

// TensorFlow 1.15.5 prints the same of read_value() (device, other groups), with one difference. A
// read outside all scopes has neither device nor group there.
TEST(Variable, AReadGoesWhereTheScopesInForceSay) {
  Graph graph;
  Variable w;
  {
    DeviceScope on(graph, "/cpu:1");
    w = zeros(graph, "w");
  }
  const auto read = [&] {
    const Output made = w.read();
    return cat(made.device(), " ", join(names_of(made.node().request().colocation)));
  };
  EXPECT_EQ(read(), "/device:CPU:1 w");
  const Output anchor = fill(graph, {}, 0, DType::kF32, "anchor");
  DeviceScope elsewhere(graph, "/cpu:3");
  EXPECT_EQ(read(), "/device:CPU:3 ");
  {
    ColocateWith beside(w.ref());
    EXPECT_EQ(read(), "/device:CPU:1 w");
  }
  {
    ColocateWith beside(anchor);
    EXPECT_EQ(read(), " anchor");
  }
  EXPECT_EQ(static_cast<Output>(w).device().str(), "/device:CPU:1");
}

TEST(Variable, AReadElsewhereIsATransferOfItsValue) {
  Graph graph;
  DeviceScope on(graph, "/cpu:1");
  const Variable w = variable(graph, "w", {2}, {.initializer = init::ones()});
  DeviceScope elsewhere(graph, "/cpu:3");
  const Output read = w.read();
  Session session(graph, {.device_count = {{"CPU", 4}}});
  EXPECT_EQ(session.placement(read), cpu(3));
  EXPECT_EQ(session.run(read), floats({1, 1}));
  const Plan& plan = *session.prepare({read}).plan();
  ASSERT_EQ(plan.transfers.size(), 1u);
  EXPECT_EQ(plan.transfers[0].from, 1);
  EXPECT_EQ(plan.transfers[0].to, 3);
}

TEST(Variable, CachedReadsAreWhereTheCacheIs) {
  Graph graph;
  DeviceScope on(graph, "/cpu:1");
  const Variable w = variable(graph, "w", {2}, {.caching_device = "/cpu:0"});
  EXPECT_EQ(w.device().str(), "/device:CPU:1");
  EXPECT_EQ(static_cast<Output>(w).device().str(), "/device:CPU:0");
  EXPECT_THAT(names_of(static_cast<Output>(w).node().request().colocation), ::testing::IsEmpty());
}

TEST(Variable, RefusesAnInitialiserOfAnotherType) {
  Graph graph;
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                variable(graph, "w", {2}, {.initializer = init::value(floats({1, 2, 3}))});
              }),
              AllOf(HasSubstr("variable 'w'"), HasSubstr("gives f32[3] instead of f32[2]")));
}

Tensor initial_value(std::uint64_t seed, const char* prefix, int replica, const char* name,
                     int device = 0, int nodes_before = 0) {
  Graph graph(seed);
  for (int i = 0; i < nodes_before; ++i) fill(graph, {}, i);
  ReplicaScope tower(graph, prefix, replica);
  DeviceScope on(graph, cpu(device));
  const Variable v = variable(graph, cat(prefix, name), {100});
  Session session(graph, {.device_count = {{"CPU", 2}}});
  session.set_step(static_cast<std::uint64_t>(nodes_before));
  return session.read(v);
}

TEST(Variable, InitialValuesDependOnSeedAndLogicalNameOnly) {
  const Tensor value = initial_value(1, "", 0, "fc/W");
  EXPECT_EQ(initial_value(1, "", 0, "fc/W"), value);
  EXPECT_EQ(initial_value(1, "", 0, "fc/W", 1, 17), value);
  EXPECT_EQ(initial_value(1, "tower3/", 3, "fc/W"), value);
  EXPECT_FALSE(initial_value(2, "", 0, "fc/W") == value);
  EXPECT_FALSE(initial_value(1, "", 0, "fc/V") == value);
}

TEST(Variable, GlorotUniformKeepsItsBounds) {
  Graph graph;
  const Variable dense = variable(graph, "dense", {100, 50});
  const Variable filters = variable(graph, "filters", {8, 5, 5, 4});
  Session session(graph);
  const auto largest = [&](Variable v) {
    float most = 0;
    const Tensor value = session.read(v);
    for (const float x : value.data<float>()) most = std::max(most, std::abs(x));
    return most;
  };
  const float in_dense = std::sqrt(6.f / 150), in_filters = std::sqrt(6.f / (4 * 25 + 8 * 25));
  EXPECT_LE(largest(dense), in_dense);
  EXPECT_GT(largest(dense), 0.99f * in_dense);
  EXPECT_LE(largest(filters), in_filters);
  EXPECT_GT(largest(filters), 0.9f * in_filters);
}

TEST(Variable, HeNormalHasTheVarianceOfItsFanIn) {
  Graph graph;
  const VariableOptions he{.initializer = init::he_normal()};
  const Variable dense = variable(graph, "dense", {400, 250}, he);
  const Variable filters = variable(graph, "filters", {64, 3, 3, 32}, he);
  Session session(graph);
  const auto variance = [&](Variable v) {
    double sum = 0, squares = 0;
    const Tensor value = session.read(v);
    for (const double x : value.data<float>()) sum += x, squares += x * x;
    const auto count = static_cast<double>(v.shape().elements());
    return squares / count - sum / count * sum / count;
  };
  EXPECT_NEAR(variance(dense), 2. / 400, 0.02 * 2. / 400);
  EXPECT_NEAR(variance(filters), 2. / (9 * 32), 0.05 * 2. / (9 * 32));
}

TEST(Variable, InitializersOfStacksOfMatricesTakeTheirLastTwoDimensions) {
  Graph graph;
  const auto initialized = [&](const char* name, Initializer init) {
    return variable(graph, name, {8, 100, 50}, {.initializer = std::move(init)});
  };
  const Variable glorot = initialized("glorot", init::glorot_uniform(WeightAxes::kMatrices));
  const Variable he = initialized("he", init::he_normal(WeightAxes::kMatrices));
  Session session(graph);
  double most = 0, squares = 0;
  const Tensor uniform = session.read(glorot), normal = session.read(he);
  for (const double x : uniform.data<float>()) most = std::max(most, std::abs(x));
  for (const double x : normal.data<float>()) squares += x * x;
  EXPECT_LE(most, std::sqrt(6. / 150));
  EXPECT_GT(most, 0.99 * std::sqrt(6. / 150));
  EXPECT_NEAR(squares / 40'000, 2. / 100, 0.03 * 2. / 100);
}

TEST(Variable, ACopyStartsAsItsOriginalIsNow) {
  Graph graph;
  const Variable original = zeros(graph, "w");
  const Variable copy =
      variable(graph, "tower1/w", {2}, {.initializer = init::ones(), .copy_of = &original.node()});
  Session session(graph);
  EXPECT_EQ(session.read(copy), floats({0, 0}));
  Session other(graph);
  other.write(original, floats({3, 4}));
  EXPECT_EQ(other.read(copy), floats({3, 4}));
  other.write(original, floats({5, 6}));
  EXPECT_EQ(other.read(copy), floats({3, 4}));  // its own from then on
}

TEST(Variable, ItsStorageIsNotAValue) {
  Graph graph;
  const Variable v = zeros(graph, "v");
  EXPECT_THAT(message_of<InternalError>([&] { fill_like(v.ref(), 1); }),
              HasSubstr("input 'v' is a variable's storage; read it"));
  EXPECT_THAT(message_of<InternalError>([&] {
                graph.add(kAssign, {static_cast<Output>(v), constant(graph, 1)});
              }),
              HasSubstr("is not a variable"));
}

}  // namespace variable_test
}  // namespace belfry
