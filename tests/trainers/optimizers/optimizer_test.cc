// Nodes that an optimizer adds to a graph: slots, updates, counters, their names and devices.
#include "belfry/trainers/optimizers/optimizer.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/trainers/optimizers/optimizer_support.h"
#include "belfry/towers/least_loaded_device_setter.h"

namespace belfry {
namespace optimizer_test {

using optimizer_support::gradient;
using optimizer_support::sequence;
using optimizer_support::weight;
using testing::AllOf;
using testing::HasSubstr;

bool has_node_below(const Graph& graph, std::string_view prefix) {
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (graph.node(id).name().starts_with(prefix)) return true;
  return false;
}

std::string error_of(const Optimizer& optimizer, std::vector<Gradient> gradients) {
  try {
    optimizer.apply(gradients);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Optimizer, NamesSlotsAfterVariableAndSlotAndDoesNotTrainThem) {
  Graph graph;
  const Variable w = weight(graph, "conv0/W"), b = weight(graph, "conv0/b");
  const Gradient both[] = {gradient(w, 1), gradient(b, 1)};
  momentum(0.1).apply(both);
  adam(0.1).apply(both);
  adamw(0.1).apply(both);
  rms_prop(0.1).apply(both);
  for (const char* name :
       {"conv0/W/AdamW", "conv0/W/AdamW_1", "AdamW/step", "conv0/W/RMSProp", "conv0/W/RMSProp_1",
        "conv0/W/Momentum", "conv0/b/Momentum", "conv0/W/Adam", "conv0/W/Adam_1", "conv0/b/Adam",
        "conv0/b/Adam_1", "Adam/step"}) {
    const Variable slot = graph.stored_variable(name);
    ASSERT_TRUE(slot) << name;
    EXPECT_FALSE(slot.trainable()) << name;
    EXPECT_EQ(slot.logical_name(), name);
    EXPECT_FALSE(slot.node().variable().local);
  }
  EXPECT_EQ(graph.variables(kTrainableVariables).size(), 2u);
  EXPECT_EQ(graph.stored_variable("conv0/W/Adam").shape(), Shape{2});
  EXPECT_EQ(graph.stored_variable("conv0/W/Adam").dtype(), DType::kF64);
  EXPECT_EQ(graph.stored_variable("Adam/step").dtype(), DType::kI64);
}

TEST(Optimizer, CountsStepsOncePerApplyWhateverTheNumberOfVariables) {
  Graph graph;
  const Variable w = weight(graph, "w"), b = weight(graph, "b"), c = weight(graph, "c");
  const Gradient all[] = {gradient(w, 1), gradient(b, 1), gradient(c, 1)};
  Node& step = adam(0.1).apply(all);
  Session session(graph);
  for (int i = 1; i <= 3; ++i) {
    session.run({step});
    EXPECT_EQ(session.read(graph.stored_variable("Adam/step")).item<std::int64_t>(), i);
  }
  EXPECT_EQ(graph.variables(kGlobalVariables).size(), 3u + 6 + 1);
}

// Two updates in one run, each by the gradient 0.5, equal two runs with one.
TEST(Optimizer, AppliesRowsOneByOneAsRunsOfTheirOwn) {
  for (const Optimizer& optimizer : {sgd(0.1), momentum(0.1), adam(0.1)}) {
    Graph graph;
    const Variable w = weight(graph, "w");
    const std::vector<Gradient> row{gradient(w, 0.5)};
    const std::vector<Gradient> rows[] = {row, row};
    const std::vector<Node*> updates = optimizer.apply_each(rows, UpdateOrder::kOneByOne);
    ASSERT_EQ(updates.size(), 2u);
    Session session(graph);
    const std::vector<double> expected = sequence(optimizer, 4);
    for (const std::size_t runs : {1, 2}) {
      session.run({*updates[1]});  // this runs the first one, too
      EXPECT_EQ(session.read(w).data<double>()[0], expected[2 * runs - 1]);
    }
    if (const Variable counter = graph.stored_variable("Adam/step")) {
      EXPECT_EQ(session.read(counter).item<std::int64_t>(), 4);
    }
  }
}

TEST(Optimizer, AppliesFreeRowsWithOneSetOfSlots) {
  Graph graph;
  const Variable w = weight(graph, "w");
  const std::vector<Gradient> rows[] = {{gradient(w, 0.5)}, {gradient(w, 0.5)}};
  const std::vector<Node*> updates = adam(0.1).apply_each(rows, UpdateOrder::kFree);
  Session session(graph);
  const std::vector<double> expected = sequence(adam(0.1), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    session.run({*updates[i % 2]});
    EXPECT_EQ(session.read(w).data<double>()[0], expected[i]);
  }
  EXPECT_EQ(session.read(graph.stored_variable("Adam/step")).item<std::int64_t>(), 3);
  EXPECT_EQ(graph.variables().size(), 4u);
}

// w -= rate * (g + w): each update reads the result of the update before it.
TEST(Optimizer, RulesThatReadTheVariableSeeTheUpdateBefore) {
  const Optimizer decays(
      {.name = "Decay", .rate = 0.5, .update = [](const Optimizer::Update& u) -> Node& {
         return assign_sub(u.variable, (u.gradient + u.variable.read()) * u.rate, u.at);
       }});
  Graph graph;
  const Variable w = weight(graph, "w", 8);
  const std::vector<Gradient> row{gradient(w, 0)};
  const std::vector<Gradient> rows[] = {row, row, row};
  Session session(graph);
  session.run({*decays.apply_each(rows, UpdateOrder::kOneByOne)[2]});
  EXPECT_EQ(session.read(w).data<double>()[0], 1);
}

TEST(Optimizer, PutsSlotsAndUpdatesBesideTheVariable) {
  Graph graph;
  Variable w;
  {
    const DeviceScope on(graph, "/cpu:3");
    w = weight(graph, "w");
  }
  const Gradient g = gradient(w, 1);
  const DeviceScope elsewhere(graph, "/cpu:1");
  momentum(0.1).apply({&g, 1});
  EXPECT_EQ(graph.stored_variable("w/Momentum").device().str(), "/device:CPU:3");
  int updates = 0;
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const Node& node = graph.node(i);
    if (node.op().writes == 0) continue;
    ++updates;
    EXPECT_EQ(node.device().str(), "/device:CPU:3") << node.name();
  }
  EXPECT_EQ(updates, 1);
}

TEST(Optimizer, AddsNoLoadToDeviceSetters) {
  Graph graph;
  LeastLoadedDeviceSetter setter("/cpu:0", {"/cpu:0", "/cpu:1"});
  const DeviceScope on(graph, setter);
  const Variable w = weight(graph, "w");
  const Gradient g = gradient(w, 1);
  const std::vector<std::int64_t> before = setter.loads();
  adam(0.1).apply({&g, 1});
  EXPECT_EQ(setter.loads(), before);
}

TEST(Optimizer, PlacesTheLearningRateAloneByTheScopesOfTheCall) {
  Graph graph;
  Variable w;
  {
    const DeviceScope on(graph, "/cpu:3");
    w = weight(graph, "w");
  }
  const Gradient g = gradient(w, 1);
  const DeviceScope elsewhere(graph, "/cpu:1");
  adam(0.1).apply({&g, 1});
  EXPECT_EQ(graph.find("apply_gradients/learning_rate").device().str(), "/device:CPU:1");
}

// In TensorFlow slots then take the scope's device, and the variable must follow.
TEST(Optimizer, LeavesVariablesWithoutADeviceToThePlacer) {
  Graph graph;
  const Variable w = weight(graph, "w");
  const Gradient g = gradient(w, 1);
  {
    const DeviceScope elsewhere(graph, "/cpu:1");
    momentum(0.1).apply({&g, 1});
  }
  const Variable slot = graph.stored_variable("w/Momentum");
  EXPECT_TRUE(slot.device().empty());
  EXPECT_EQ(slot.node().request().colocation[0]->name(), "w");
}

TEST(Optimizer, MakesSlotsOutsideControlDependenciesAndVariableScopes) {
  Graph graph;
  const Variable w = weight(graph, "sc/v");
  const Gradient g = gradient(w, 1);
  const ControlDependencies after(graph, {&g.value.node()});
  const VariableScope scope(graph, "cur");
  adam(0.1).apply({&g, 1});
  const Variable slot = graph.stored_variable("sc/v/Adam");  // TensorFlow: cur/sc/v/Adam
  ASSERT_TRUE(slot);
  EXPECT_EQ(slot.name(), "sc/v/Adam");
  EXPECT_TRUE(slot.node().control_inputs().empty());
  EXPECT_TRUE(slot.node().variable().initial.node().control_inputs().empty());
}

TEST(Optimizer, BuildsEachUpdateBesideItsVariableInAScopeOfItsName) {
  Graph graph;
  Variable w;
  {
    const DeviceScope on(graph, "/cpu:3");
    w = weight(graph, "fc/W");
  }
  const Gradient g = gradient(w, 1);
  const DeviceScope elsewhere(graph, "/cpu:1");
  const Optimizer halves(
      {.name = "Halves", .rate = 0.1, .update = [](const Optimizer::Update& u) -> Node& {
         const Output half = u.gradient * 0.5;
         EXPECT_EQ(half.device().str(), "/device:CPU:3");
         EXPECT_THAT(half.name(), testing::StartsWith("apply_gradients/update_fc/W/"));
         return assign_sub(u.variable, half);
       }});
  halves.apply({&g, 1});
}

TEST(Optimizer, SkipsVariablesWithoutAGradient) {
  Graph graph;
  const Variable w = weight(graph, "w"), unused = weight(graph, "unused");
  const Gradient both[] = {{Output(), unused}, gradient(w, 0.5)};
  Node& step = momentum(0.1).apply(both);
  EXPECT_FALSE(graph.stored_variable("unused/Momentum"));
  Session session(graph);
  session.run({step});
  EXPECT_EQ(session.read(w).data<double>()[0], 0.95);
  EXPECT_EQ(session.read(unused).data<double>()[0], 1);
}

TEST(Optimizer, RefusesToApplyNothing) {
  Graph graph;
  const Variable w = weight(graph, "w"), v = weight(graph, "v");
  EXPECT_THAT(error_of(sgd(0.1), {{Output(), w}, {Output(), v}}),
              AllOf(HasSubstr("No gradients provided for any variable: ['w', 'v']. "),
                    HasSubstr("optimizer_test.cc:")));
  EXPECT_THAT(error_of(sgd(0.1), {}),
              AllOf(HasSubstr("No variables provided. "), HasSubstr("optimizer_test.cc:")));
  EXPECT_THAT(error_of(sgd(0.1), {{constant(graph, 1.0), Variable()}}),
              HasSubstr("has no variable"));
}

TEST(Optimizer, ListsItsLastNodeInTheCollectionTrainOp) {
  Graph graph;
  const Variable w = weight(graph, "w"), v = weight(graph, "v");
  const Gradient gw = gradient(w, 1), gv = gradient(v, 1);
  Node& first = sgd(0.1).apply({&gw, 1});
  Node& second = sgd(0.1).apply({&gv, 1});
  EXPECT_THAT(graph.nodes("train_op"), testing::ElementsAre(&first, &second));
}

// TensorFlow 1.15.5: opt.apply_gradients(gv, name="train_op").name is 'train_op', the second time
// 'train_op_1', in name scope sc 'sc/train_op', with name="a/b" 'a/b'. Parts are 'T/update_w/...'.
TEST(Optimizer, GivesItsNodeTheNameThatIsAskedFor) {
  const Optimizer rules[] = {sgd(0.1), momentum(0.1), adam(0.1)};
  for (const Optimizer& optimizer : rules) {
    Graph graph;
    const Variable w = weight(graph, "w"), v = weight(graph, "v");
    const Gradient both[] = {gradient(w, 1), gradient(v, 1)};
    Node& step = optimizer.apply(both, "train_op");
    EXPECT_EQ(step.name(), "train_op");
    EXPECT_EQ(&graph.find("train_op"), &step);
    for (const char* part : {"train_op/learning_rate", "train_op/update_w/"})
      EXPECT_TRUE(has_node_below(graph, part)) << part;
    EXPECT_EQ(optimizer.apply(both, "train_op", OptimizerSlots::kReuse).name(), "train_op_1");
    EXPECT_EQ(optimizer.apply(both, "a/b", OptimizerSlots::kReuse).name(), "a/b");
    const NameScope scope(graph, "sc");
    EXPECT_EQ(optimizer.apply(both, "train_op", OptimizerSlots::kReuse).name(), "sc/train_op");
    EXPECT_EQ(optimizer.apply(both, {}, OptimizerSlots::kReuse).name(), "sc/apply_gradients");
  }
}

TEST(Optimizer, GivesItsNodeTheNameThatIsAskedForOnSeveralDevices) {
  Graph graph;
  std::vector<Gradient> gradients;
  for (int i = 0; i < 3; ++i) {
    const DeviceScope on(graph, cat("/cpu:", i % 2));
    gradients.push_back(gradient(weight(graph, cat("w", i)), 1));
  }
  EXPECT_EQ(adam(0.1).apply(gradients, "T").name(), "T");
}

// Upstream, one Adam for K towers moves its bias correction up to K times a step.
TEST(ApplyGradients, MoveTheBiasCorrectionOncePerStepForAnyNumberOfTowers) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows;
  Variable main;
  for (int t = 0; t < 4; ++t) {
    const std::string prefix = t == 0 ? "" : cat("tower", t, "/");
    const ReplicaScope replica(graph, prefix, t);
    VariableOptions options{.dtype = DType::kF64, .initializer = init::ones()};
    if (t > 0) {
      options.collections = {std::string(kLocalVariables)};
      options.copy_of = &main.node();
    }
    const Variable w = variable(graph, prefix + "w", {2}, options);
    if (t == 0) main = w;
    rows.push_back({gradient(w, 0.5)});
  }
  Node& step = apply_gradients(adam({.rate = 0.01}), GradientTable(rows));
  Session session(graph);
  const std::vector<double> alone = sequence(adam({.rate = 0.01}), 3);
  for (int i = 1; i <= 3; ++i) {
    session.run({step});
    for (const std::vector<Gradient>& row : rows)
      EXPECT_EQ(session.read(row[0].variable).data<double>()[0],
                alone[static_cast<std::size_t>(i - 1)]);
    for (const char* name : {"Adam/step", "tower3/Adam/step"})
      EXPECT_EQ(session.read(graph.stored_variable(name)).item<std::int64_t>(), i);
  }
}

TEST(Optimizer, RefusesASecondSetOfSlotsOfOneNameWithTheLines) {
  Graph graph;
  const Variable w = weight(graph, "w"), v = weight(graph, "v");
  EXPECT_EQ(error_of(adam(0.1), {gradient(w, 1)}), "(accepted)");
  EXPECT_THAT(
      error_of(adam(0.1), {gradient(v, 1)}),
      AllOf(HasSubstr("'Adam/step'"), HasSubstr("another name"), HasSubstr("optimizer_test.cc")));
  EXPECT_EQ(error_of(adam({.rate = 0.1, .name = "adam_v"}), {gradient(v, 1)}), "(accepted)");
  EXPECT_TRUE(graph.stored_variable("v/adam_v_1"));
}

TEST(Optimizer, RefusesRatesThatAreNegativeOrNotFinite) {
  Graph graph;
  const Variable w = weight(graph, "w");
  for (const double rate : {std::nan(""), std::numeric_limits<double>::infinity(), -0.1})
    EXPECT_THAT(error_of(sgd(rate), {gradient(w, 1)}), HasSubstr("learning rate"));
  EXPECT_THAT(error_of(Optimizer(), {gradient(w, 1)}), HasSubstr("no optimizer"));
  EXPECT_THROW(sgd(0.1).apply({}), InvalidArgument);
}

// The error for a row with the parts of a single process: all of each variable.
std::string parts_error_of(const Optimizer& optimizer, const std::vector<Gradient>& gradients,
                           std::size_t parts, const Unscaling& unscaling = {}) {
  UpdatedParts of;
  of.parts.resize(parts, {.whole = {2}, .cuts = {0, 2}});
  of.gather = [](std::span<Node* const> updates) {
    return std::vector<Node*>(updates.begin(), updates.end());
  };
  try {
    optimizer.apply_parts(gradients, of, {}, OptimizerSlots::kMake, unscaling);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Optimizer, RefusesForPartsWhatItRefusesForWholeVariables) {
  Graph graph;
  const Variable w = weight(graph, "w"), v = weight(graph, "v");
  const Unscaling clipped{.factor = constant(graph, 0.5, DType::kF32)};
  Optimizer::Rule rule{.name = "Own", .rate = 0.1, .takes_parts = true};
  EXPECT_THAT(parts_error_of(Optimizer(rule), {gradient(w, 1)}, 1), HasSubstr("no optimizer"));
  rule.update = [](const Optimizer::Update& u) -> Node& {
    return assign_sub(u.variable, u.gradient, u.at);
  };
  const Optimizer own(rule);
  EXPECT_EQ(parts_error_of(own, {gradient(w, 1)}, 1), "(accepted)");
  EXPECT_THAT(parts_error_of(own, {gradient(w, 1)}, 1, clipped),
              AllOf(HasSubstr("Own"), HasSubstr("takes_loss_scale")));
  EXPECT_THAT(parts_error_of(own, {}, 0), HasSubstr("No variables provided. "));
  EXPECT_THAT(parts_error_of(own, {{Output(), w}}, 1), HasSubstr("No gradients provided"));
  EXPECT_THAT(parts_error_of(own, {gradient(w, 1), {Output(), v}}, 2),
              HasSubstr("1 gradients for parts of 2 variables"));
  rule.takes_parts = false;
  EXPECT_THAT(parts_error_of(Optimizer(rule), {gradient(w, 1)}, 1), HasSubstr("takes_parts"));
}

TEST(Schedule, ReachesAllTowersThroughOnePlaceholder) {
  Graph graph;
  const Variable w = weight(graph, "w"), v = weight(graph, "v");
  const Optimizer optimizer = sgd([](const StepInfo&) { return 0.5; });
  const Gradient gw = gradient(w, 1), gv = gradient(v, 1);
  Node& first = optimizer.apply({&gw, 1});
  Node& second = optimizer.apply({&gv, 1});
  ASSERT_EQ(graph.nodes(kLearningRates).size(), 1u);
  const Output rate = graph.nodes(kLearningRates)[0]->output();
  EXPECT_EQ(rate.dtype(), DType::kF64);
  Session session(graph);
  session.run({first, second}, {{rate, Tensor(0.25)}});
  EXPECT_EQ(session.read(w).data<double>()[0], 0.75);
  EXPECT_EQ(session.read(v).data<double>()[0], 0.75);
}

// Two towers; the second one has replicas.
struct TwoTowers {
  TwoTowers() {
    w = weight(graph, "fc/W");
    const ReplicaScope replica(graph, "tower1/", 1);
    copy = variable(graph, "tower1/fc/W", {2},
                    {.dtype = DType::kF64,
                     .initializer = init::ones(),
                     .collections = {std::string(kLocalVariables)},
                     .copy_of = &w.node()});
  }
  Graph graph;
  Variable w, copy;
};

TEST(ApplyGradients, GivesReplicasLocalSlotsThatCopyTowerZeros) {
  TwoTowers t;
  Node& step =
      apply_gradients(adam(0.1), GradientTable({{gradient(t.w, 1)}, {gradient(t.copy, 1)}}));
  for (const char* name : {"fc/W/Adam", "fc/W/Adam_1", "Adam/step"}) {
    const Variable main = t.graph.stored_variable(name);
    const Variable slot = t.graph.stored_variable(std::string("tower1/") + name);
    ASSERT_TRUE(main && slot) << name;
    EXPECT_EQ(slot.logical_name(), name);
    EXPECT_TRUE(slot.node().variable().local);
    EXPECT_EQ(slot.node().variable().copy_of, &main.node());
    EXPECT_EQ(slot.node().origin().replica, 1);
  }
  Session session(t.graph);
  session.run({step});
  EXPECT_EQ(session.read(t.graph.stored_variable("Adam/step")).item<std::int64_t>(), 1);
  EXPECT_EQ(session.read(t.graph.stored_variable("tower1/Adam/step")).item<std::int64_t>(), 1);
  EXPECT_EQ(session.read(t.w), session.read(t.copy));
}

TEST(ApplyGradients, GiveTheirNodeTheNameThatIsAskedFor) {
  for (const bool shared : {true, false}) {
    TwoTowers t;
    const GradientTable table({{gradient(t.w, 1)}, {gradient(shared ? t.w : t.copy, 1)}});
    EXPECT_EQ(apply_gradients(momentum(0.1), table, "T").name(), "T");
    EXPECT_EQ(apply_gradients(momentum(0.1), table, {}, OptimizerSlots::kReuse).name(), "train_op");
    EXPECT_TRUE(has_node_below(t.graph, "T/"));
    EXPECT_EQ(has_node_below(t.graph, "tower1/T/apply_gradients/"), !shared);
    Session session(t.graph);
    session.run({t.graph.find("T")});
    EXPECT_NEAR(session.read(t.w).data<double>()[0], 0.9, 1e-15);
  }
}

TEST(ApplyGradients, UpdatesSharedVariablesOnce) {
  Graph graph;
  const Variable w = weight(graph, "w");
  Node& step = apply_gradients(sgd(0.1), GradientTable({{gradient(w, 1)}, {gradient(w, 1)}}));
  Session session(graph);
  session.run({step});
  EXPECT_NEAR(session.read(w).data<double>()[0], 0.9, 1e-15);
}

TEST(ApplyGradients, NamesNodesOfTowersAfterTheTower) {
  TwoTowers t;
  apply_gradients(sgd(0.1), GradientTable({{gradient(t.w, 1)}, {gradient(t.copy, 1)}}));
  std::vector<std::string> updates;
  for (std::size_t i = 0; i < t.graph.size(); ++i) {
    const Node& node = t.graph.node(i);
    if (node.op().writes == 0) continue;
    updates.emplace_back(node.logical_name());
    EXPECT_EQ(node.origin().replica, updates.size() == 1 ? 0 : 1);
  }
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0], updates[1]);
}

}  // namespace optimizer_test
}  // namespace belfry
