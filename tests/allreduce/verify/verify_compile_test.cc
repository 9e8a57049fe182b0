#include <algorithm>

#include "belfry/allreduce/gradient_packer.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/allreduce/verify/two_variables.h"

namespace belfry {
namespace verify_compile_test {

Output total(const GradientTable& g, int v) { return add_n(g.values(v)); }

Way step(std::string name, std::function<void(TwoVariables&, const GradientTable&)> compile,
         std::vector<std::string> says, const char* strategy = "collective") {
  return {std::move(name),
          [compile, strategy] {
            TwoVariables model(3);
            compile(model, model.reduce(strategy));
          },
          std::move(says)};
}

std::vector<Way> wrong_feeds() {
  return {
      step("OneGradientIsFed",
           [](auto& m, auto& g) { m.compile(m.updates(g), {m.rows[1][0].value}); },
           {"a feed replaces the gradient of variable 'w'", "model.cc:41", "tower 1", "grad.cc:51",
            "tower 0", "grad.cc:50"}),
      step(
          "OneGradientOfASumIsFed",
          [](auto& m, auto& g) { m.compile(m.updates(g), {m.rows[2][1].value}); },
          {"a feed replaces the gradient of variable 'b'", "model.cc:42", "tower 2", "grad.cc:62",
           "tower 0", "grad.cc:60"},
          "naive"),
      {"OneParticipantOfAnyCollectiveIsFed",
       [] {
         const TwoVariables model(2);
         const std::vector<Output> xs = model.table().values(0);
         model.compile({all_reduce(xs, {}, SourceLine{"sync.cc", 7})[0]}, {xs[1]});
       },
       {"AllReduce", "sync.cc:7", "a feed replaces input 1", "tower1/w_grad", "input 0",
        "tower0/w_grad"}},
      {"ATensorTakesPartTwiceInAnyCollective",
       [] {
         const TwoVariables model(3);
         std::vector<Output> xs = model.table().values(0);
         xs[2] = xs[1];
         model.compile({all_reduce(xs, {}, SourceLine{"sync.cc", 7})[0]});
       },
       {"AllReduce", "sync.cc:7", "tower1/w_grad", "grad.cc:51", "inputs 1 and 2"}},
      {"TowersTakePartInAnotherOrderInAnyCollective",
       [] {
         const TwoVariables model(3);
         std::vector<std::vector<Output>> xs{model.table().values(0), model.table().values(1)};
         std::swap(xs[1][0], xs[1][1]);
         model.compile({all_reduce_bucket(xs, {}, SourceLine{"sync.cc", 7})[0][0]});
       },
       {"AllReduce", "sync.cc:7", "tower0/b_grad", "grad.cc:60", "tower1/b_grad", "grad.cc:61",
        "order of towers"}},
      step("OneResultIsFed", [](auto& m, auto& g) { m.compile(m.updates(g), {g.at(2, 1).value}); },
           {"a feed replaces the combined gradient of variable 'b'", "model.cc:42", "tower 2",
            "reduce.cc:70", "tower 0"}),
      {"APartOfASumIsFed",
       [] {
         TwoVariables model(4);
         const GradientTable g = model.reduce("hierarchical");
         const Output group = model.graph.find("AllReduceGradsHierarchical/group0_agg").output();
         model.compile(model.updates(g), {group});
       },
       {"a feed replaces AddN", "group0_agg", "reduce.cc:70", "variable 'w'", "model.cc:41"}},
      step("RealShapesDiffer",
           [](auto& m, auto& g) {
             m.elements = {4, 4, 4, 3};
             m.compile(m.updates(g));
           },
           {"towers disagree on variable 'b'", "model.cc:42", "tower 1", "grad.cc:61", "f32[3]",
            "f32[4]"}),
      {"ASumHasAnotherRealShape",
       [] {
         TwoVariables model(2);
         model.elements = {1, 4};
         const GradientTable g = model.reduce([&](const GradientTable& t) {
           const Output wide = total(t, 0) * model.inputs[1];
           return Values(2, {wide, total(t, 1)});
         });
         model.compile({g.at(0, 0).value});
       },
       {"combined gradient of variable 'w'", "model.cc:41", "tower 0", "reduce.cc:70", "f32[4]",
        "f32[1]"}},
      {"RealShapesAreBroadcast",
       [] {
         TwoVariables model(2);
         model.elements = {1, 4, 4, 4};
         const GradientTable g = model.reduce([](const GradientTable& t) {
           return Values(2, {t.at(0, 0).value + t.at(1, 0).value, total(t, 1)});
         });
         model.compile({g.at(0, 0).value});
       },
       {"towers disagree on variable 'w'", "model.cc:41", "tower 1", "grad.cc:51", "f32[4]",
        "f32[1]"}},
      {"SomeTowersShareADevice",
       [] {
         TwoVariables model(3);
         const NoDevice nowhere;
         for (int v = 0; v < 2; ++v) {
           DeviceScope on(model.graph, nowhere);
           ReplicaScope replica(model.graph, "tower1/", 1);
           NameScope names(model.graph, "tower1/");
           model.rows[1][v].value =
               square(model.inputs[static_cast<std::size_t>(2 + v)], SourceLine{"grad.cc", 98});
         }
         model.compile({model.reduce("naive").at(0, 0).value});
       },
       {"tower 1's gradient of variable 'w'", "model.cc:41", "grad.cc:98", "tower 0",
        "grad.cc:50"}},
  };
}

// A step with a table that was packed and combined.
Way packed_step(std::string name, std::function<void(TwoVariables&, const GradientTable&)> compile,
                std::vector<std::string> says) {
  return {std::move(name),
          [compile] {
            TwoVariables model(3, DType::kF32, 1024);
            compile(model, model.reduce_packed());
          },
          std::move(says)};
}

std::vector<Way> wrong_updates() {
  return {
      {"ATowerIsNotInTheTable",
       [] {
         TwoVariables model(3);
         model.rows.pop_back();
         const GradientTable g = model.reduce("collective");
         std::vector<Fetch> updates = model.updates(g);
         model.rows.push_back(model.rows[0]);  // a device for each tower
         model.compile(updates);
       },
       {"updates variable 'w'", "model.cc:41", "of 2 towers", "update.cc:80", "'tower2/w'",
        "takes no part"}},
      step("OneTowerIsNotUpdated",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates = m.updates(g);
             updates.erase(updates.begin() + 4);  // w on tower 2
             m.compile(updates);
           },
           {"updates variable 'w'", "model.cc:41", "2 of 3 towers", "update.cc:80",
            "its copy on tower 2", "tower2/w"}),
      step(
          "OnlyOneTowerIsUpdated",
          [](auto& m, auto& g) { m.compile({m.update(1, g.at(1, 1).variable, g.at(1, 1).value)}); },
          {"updates variable 'b'", "model.cc:42", "1 of 3 towers", "update.cc:81", "tower 0"},
          "naive"),
      step(
          "AnotherTowersSumIsApplied",
          [](auto& m, auto& g) { m.compile({m.update(0, g.at(0, 0).variable, g.at(1, 0).value)}); },
          {"update.cc:80", "updates variable 'w'", "model.cc:41", "of tower 0",
           "combined gradient of variable 'w'", "of tower 1", "reduce.cc:70"}),
      step(
          "AnotherVariablesSumIsApplied",
          [](auto& m, auto& g) { m.compile({m.update(2, g.at(2, 0).variable, g.at(2, 1).value)}); },
          {"update.cc:82", "updates variable 'w'", "model.cc:41", "of tower 2",
           "combined gradient of variable 'b'", "model.cc:42", "reduce.cc:70"}),
      step("ASumIsAppliedThroughOtherNodes",
           [](auto& m, auto& g) {
             const Output scaled = g.at(2, 1).value * 0.5;
             m.compile({m.update(2, g.at(2, 0).variable, identity(scaled))});
           },
           {"update.cc:82", "updates variable 'w'", "combined gradient of variable 'b'"}),
      step("ATowersOwnGradientIsApplied",
           [](auto& m, auto&) {
             m.compile({m.update(1, m.rows[1][0].variable, m.rows[1][0].value)});
           },
           {"update.cc:81", "updates variable 'w'", "model.cc:41", "gradient of tower 1 alone",
            "grad.cc:51", "apply what reduce() returns"}),
      step("ASumIsAppliedTwice",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates = m.updates(g);
             ControlDependencies after(m.graph, {updates[2].node});
             updates.emplace_back(m.update(1, g.at(1, 0).variable, g.at(1, 0).value));
             m.compile(updates);
           },
           {"variable 'w'", "model.cc:41", "of tower 1 is applied twice", "update.cc:81"}),
      step("OneTowerAddsItsOwnGradient",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates = m.updates(g);
             updates[2] =
                 m.update(1, g.at(1, 0).variable, g.at(1, 0).value + m.rows[1][0].value * 0.1);
             m.compile(updates);
           },
           {"update.cc:81", "updates variable 'w'", "model.cc:41", "of tower 1", "grad.cc:51",
            "update.cc:80", "tower 0 does not"}),
      step("EachTowerAddsItsOwnGradient",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates;
             for (int t = 0; t < 3; ++t)
               updates.emplace_back(
                   m.update(t, g.at(t, 0).variable, g.at(t, 0).value + m.rows[at(t)][0].value));
             m.compile(updates);
           },
           {"update.cc:80", "updates variable 'w'", "model.cc:41", "of tower 0", "grad.cc:50",
            "update.cc:81", "tower 1 does not"}),
      step("TowersClipByTheirOwnNorms",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates;
             for (int t = 0; t < 3; ++t)
               updates.emplace_back(
                   m.update(t, g.at(t, 0).variable,
                            g.at(t, 0).value / reduce_sum(square(m.rows[at(t)][1].value))));
             m.compile(updates);
           },
           {"update.cc:80", "updates variable 'w'", "model.cc:41", "gradient of variable 'b'",
            "grad.cc:60", "update.cc:81", "tower 1 does not"}),
      step("OneTowerClipsNot",
           [](auto& m, auto& g) {
             const Output norm = reduce_sum(square(g.at(0, 1).value));
             std::vector<Fetch> updates;
             for (int t = 0; t < 3; ++t)
               updates.emplace_back(m.update(t, g.at(t, 0).variable,
                                             t == 1 ? g.at(t, 0).value : g.at(t, 0).value / norm));
             m.compile(updates);
           },
           {"update.cc:80", "updates variable 'w'", "model.cc:41", "gradient of variable 'b'",
            "reduce.cc:70", "update.cc:81", "tower 1 does not"}),
      step("OneTowerHasAnotherRate",
           [](auto& m, auto& g) {
             std::vector<Fetch> updates = m.updates(g);
             updates[4] =
                 sgd_update(g.at(2, 0).variable, g.at(2, 0).value,
                            constant(m.graph, 0.5, DType::kF32), {}, SourceLine{"update.cc", 99});
             m.compile(updates);
           },
           {"update.cc:99", "updates variable 'w'", "model.cc:41", "tower 2", "update.cc:80",
            "another value of input 2"}),
      step(
          "OneTowerHasAnotherOptimizer",
          [](auto& m, auto& g) {
            std::vector<Fetch> updates = m.updates(g);
            updates[2] = assign(g.at(1, 0).variable, g.at(1, 0).value, SourceLine{"update.cc", 99});
            m.compile(updates);
          },
          {"update.cc:99", "updates variable 'w'", "model.cc:41", "tower 1", "update.cc:80",
           "another op"}),
      {"OneTowerHasOtherOptions",
       [] {
         TwoVariables m(2);
         const GradientTable g = m.reduce("collective");
         std::vector<Fetch> updates;
         for (int t = 0; t < 2; ++t) {
           ColocateWith beside(g.at(t, 0).variable.ref());
           const Variable slot = variable(m.graph, cat("slot", t), {4});
           updates.emplace_back(momentum_update(
               g.at(t, 0).variable, slot, g.at(t, 0).value, constant(m.graph, 1.0, DType::kF32),
               {.momentum = t == 0 ? 0.9 : 0.8},
               SourceLine{"update.cc", 80 + static_cast<unsigned>(t)}));
         }
         m.compile(updates);
       },
       {"update.cc:81", "updates variable 'w'", "model.cc:41", "tower 1", "update.cc:80",
        "other options"}},
      {"ASharedVariableIsUpdatedByEachTower",
       [] {
         TwoVariables model(2);
         for (int v = 0; v < 2; ++v) model.rows[1][v].variable = model.rows[0][v].variable;
         const GradientTable g = model.reduce("naive");
         Node& first = model.update(0, g.at(0, 0).variable, g.at(0, 0).value);
         ControlDependencies after(model.graph, {&first});
         model.compile({first, model.update(1, g.at(1, 0).variable, g.at(1, 0).value)});
       },
       {"variable 'w'", "model.cc:41", "is applied twice", "update.cc:80", "update.cc:81"}},
  };
}

std::vector<Way> wrong_packed_updates() {
  return {
      packed_step("ATowersOwnGradientIsApplied",
                  [](auto& m, auto&) {
                    m.compile({m.update(1, m.rows[1][0].variable, m.rows[1][0].value)});
                  },
                  {"update.cc:81", "updates variable 'w'", "model.cc:41",
                   "gradient of tower 1 alone", "grad.cc:51"}),
      packed_step(
          "OnlyOneTowerIsUpdated",
          [](auto& m, auto& g) { m.compile({m.update(0, g.at(0, 1).variable, g.at(0, 1).value)}); },
          {"updates variable 'b'", "model.cc:42", "1 of 3 towers", "update.cc:80", "tower 1"}),
      {"WhatWasPackedIsCombinedAgain",
       [] {
         const TwoVariables model(2, DType::kF32, 1024);
         make_strategy("naive")->reduce(model.reduce_packed());
       },
       {"gradients of variable 'w'", "model.cc:41", "were combined before"}},
  };
}

class VerifierAtCompile : public testing::TestWithParam<Way> {};

TEST_P(VerifierAtCompile, RefusesNamingTheVariableAndTheLine) { expect_refused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Feeds, VerifierAtCompile, testing::ValuesIn(wrong_feeds()), name_of_way);
INSTANTIATE_TEST_SUITE_P(Updates, VerifierAtCompile, testing::ValuesIn(wrong_updates()),
                         name_of_way);
INSTANTIATE_TEST_SUITE_P(PackedUpdates, VerifierAtCompile,
                         testing::ValuesIn(wrong_packed_updates()), name_of_way);

TEST(Verified, StepsOfWhatWasPackedAreCompiled) {
  for (const int towers : {1, 2, 3}) {
    TwoVariables model(towers, DType::kF32, 1024);
    EXPECT_NO_THROW(model.compile(model.updates(model.reduce_packed())));
  }
}

TEST(Verified, PackingAloneCombinesNothing) {
  TwoVariables model(2, DType::kF32, 1024);
  const GradientTable table = model.table();
  GradientPacker packer(2);
  ASSERT_TRUE(packer.prepare(table.row(0)));
  const OutputRows same = packer.unpack(packer.pack(table));
  EXPECT_NO_THROW(model.compile({model.update(0, table.at(0, 0).variable, table.at(0, 0).value)}));
  EXPECT_NO_THROW(model.compile({model.update(1, table.at(1, 1).variable, same[1][1])}));
}

TEST(Verified, StepsOfEveryStrategyAreCompiled) {
  for (const char* name : {"collective", "naive", "hierarchical", "colocate"}) {
    SCOPED_TRACE(name);
    TwoVariables model(4);
    EXPECT_NO_THROW(model.compile(model.updates(model.reduce(name))));
  }
}

// Collectives in groups; one after the other; of several tensors per tower; of tensors that no
// tower computed.
TEST(Verified, CollectivesMayBeOfWhatTheirUserLikes) {
  TwoVariables model(4);
  const auto of = [&](int t, int v) { return model.rows[at(t)][at(v)].value; };
  const std::vector<Output> low = all_reduce(std::vector{of(0, 0), of(1, 0)}),
                            high = all_reduce(std::vector{of(2, 0), of(3, 0)});
  const Output some = all_reduce(std::vector{of(0, 1), of(2, 1)})[1];
  const Output steps = all_reduce(std::vector{of(0, 0), of(1, 0), of(0, 1), of(1, 1)})[0];
  const Output mine = all_reduce(std::vector{of(0, 0), of(0, 1), of(1, 0), of(1, 1)})[3];
  const Output others = all_reduce(std::vector{identity(of(1, 0)), identity(of(0, 0))})[0];
  EXPECT_NO_THROW(model.compile(
      {low[0] + high[1], all_reduce(std::vector{high[0], low[0]})[0], some, steps, mine, others}));
}

TEST(Verified, TheGradientOfACollectiveMayHaveOneTensorTwice) {
  TwoVariables model(2);
  const std::vector<Output> sums = all_reduce(model.table().values(0));
  const Output loss = [&] {
    ReplicaScope replica(model.graph, "tower1/", 1);
    NameScope names(model.graph, "tower1/");
    return reduce_sum(square(sums[0] + sums[1]));
  }();
  const std::vector<Output> gs = gradients(loss, model.inputs);
  EXPECT_NO_THROW(model.compile({gs[0], gs[2]}));
}

TEST(Verified, OneTowersResultMayBeFetchedAlone) {
  TwoVariables model(3);
  const GradientTable combined = model.reduce("collective");
  EXPECT_NO_THROW(model.compile({combined.at(1, 0).value}));
}

TEST(Verified, AllGradientsOrAllResultsMayBeFed) {
  for (const char* name : {"collective", "naive"}) {
    SCOPED_TRACE(name);
    TwoVariables model(3);
    const GradientTable combined = model.reduce(name);
    EXPECT_NO_THROW(model.compile(model.updates(combined), model.table().values(0)));
    std::vector<Output> results = combined.values(1);
    if (results[0] == results[1]) results.resize(1);
    EXPECT_NO_THROW(model.compile(model.updates(combined), results));
  }
}

TEST(Verified, GradientsMayBeClippedByTheNormOfAll) {
  TwoVariables model(2);
  const GradientTable combined = model.reduce("collective");
  std::vector<Fetch> updates;
  for (int t = 0; t < 2; ++t) {
    std::vector<Output> squares;
    for (const Gradient& g : combined.row(t)) squares.push_back(reduce_sum(square(g.value)));
    const Output norm = sqrt(add_n(squares));
    for (const Gradient& g : combined.row(t))
      updates.emplace_back(model.update(t, g.variable, g.value / norm));
  }
  EXPECT_NO_THROW(model.compile(updates));
}

// All towers clip by one norm, made of gradients of all towers.
TEST(Verified, GradientsMayBeClippedByOneNorm) {
  for (const bool raw : {false, true}) {
    TwoVariables model(3);
    const GradientTable combined = model.reduce("collective");
    std::vector<Output> squares;
    for (int t = 0; t < 3; ++t)
      squares.push_back(
          reduce_sum(square(raw ? model.rows[at(t)][0].value : combined.at(0, t % 2).value)));
    const Output norm = sqrt(add_n(squares));
    std::vector<Fetch> updates;
    for (int t = 0; t < 3; ++t)
      for (const Gradient& g : combined.row(t))
        updates.emplace_back(model.update(t, g.variable, g.value / norm));
    EXPECT_NO_THROW(model.compile(updates));
  }
}

TEST(Verified, ASharedVariableMayTakeOneTowersGradientBesides) {
  TwoVariables model(2);
  for (int v = 0; v < 2; ++v) model.rows[1][v].variable = model.rows[0][v].variable;
  const GradientTable combined = model.reduce("colocate");
  EXPECT_NO_THROW(model.compile({model.update(0, combined.at(0, 0).variable,
                                              combined.at(0, 0).value + model.rows[1][0].value)}));
}

TEST(Verified, CopiesMayBeSetFromTheOneThatWasUpdated) {
  TwoVariables model(3);
  const GradientTable combined = model.reduce("naive");
  std::vector<Fetch> updates{model.update(0, combined.at(0, 0).variable, combined.at(0, 0).value)};
  for (int t = 1; t < 3; ++t)
    updates.emplace_back(assign(combined.at(t, 0).variable, updates[0].node->output()));
  EXPECT_NO_THROW(model.compile(updates));
}

TEST(Verified, AStrategyMayScaleByWhatItLikes) {
  TwoVariables model(2);
  const GradientTable combined = model.reduce([](const GradientTable& g) {
    const Output scale = reduce_sum(add_n({g.at(0, 0).value, g.at(0, 1).value}));
    return Values(2, {total(g, 0) * scale, total(g, 1) * scale});
  });
  EXPECT_NO_THROW(model.compile(model.updates(combined)));
}

TEST(Verified, AnUpdateMayBeFollowedByAnotherWrite) {
  TwoVariables model(2);
  const GradientTable combined = model.reduce("collective");
  std::vector<Fetch> updates = model.updates(combined);
  for (int t = 0; t < 2; ++t) {
    const Output updated = updates[static_cast<std::size_t>(2 * t)].node->output();
    updates.emplace_back(assign(combined.at(t, 0).variable, updated * 0.5));
  }
  EXPECT_NO_THROW(model.compile(updates));
}

TEST(Verified, OtherVariablesMayHoldWhatIsMadeOfGradients) {
  TwoVariables model(2);
  const GradientTable combined = model.reduce("naive");
  const Variable norm = variable(model.graph, "norm", {}, {.initializer = init::zeros()});
  EXPECT_NO_THROW(model.compile({assign(norm, reduce_sum(model.rows[0][0].value))}));
  EXPECT_NO_THROW(model.compile({assign(norm, reduce_sum(combined.at(0, 0).value))}));
}

TEST(Verified, ASharedVariableIsUpdatedOnce) {
  TwoVariables model(2);
  for (int v = 0; v < 2; ++v) model.rows[1][v].variable = model.rows[0][v].variable;
  const GradientTable combined = model.reduce("colocate");
  EXPECT_NO_THROW(
      model.compile({model.update(0, combined.at(0, 0).variable, combined.at(0, 0).value)}));
}

TEST(Verified, TwoTablesOfOneModelAreIndependent) {
  TwoVariables model(2);
  Rows first, second;
  for (const auto& row : model.rows) {
    first.push_back({row[0]});
    second.push_back({row[1]});
  }
  const GradientTable w = make_strategy("collective")->reduce(GradientTable(first));
  const GradientTable b = make_strategy("naive")->reduce(GradientTable(second));
  std::vector<Fetch> updates = model.updates(w);
  EXPECT_NO_THROW(model.compile(updates));
  for (const Fetch& fetch : model.updates(b)) updates.push_back(fetch);
  EXPECT_NO_THROW(model.compile(updates));
}

// `own`: each tower asks only for its own gradients.
std::vector<Fetch> updates_if_finite(TwoVariables& model, const GradientTable& combined, bool own) {
  const Output scale = constant(model.graph, 1.0);
  std::vector<Output> finite;
  for (const auto& row : model.rows) finite.push_back(all_finite({{row[0].value, row[1].value}}));
  std::vector<Fetch> updates;
  for (int t = 0; t < combined.towers(); ++t)
    for (const Gradient& g : combined.row(t)) {
      const ColocateWith beside(g.variable.ref());
      const Output one = finite[static_cast<std::size_t>(t)];
      const Unscaling by = unscale(scale, own ? std::vector{one} : finite);
      updates.emplace_back(
          sgd_update(g.variable, {g.value, by.factor}, constant(model.graph, 1.0)));
    }
  return updates;
}

TEST(Verified, AllTowersSkipAnUpdateOrNone) {
  TwoVariables model(2);
  const GradientTable combined = model.reduce("collective");
  EXPECT_NO_THROW(model.compile(updates_if_finite(model, combined, false)));
  EXPECT_THAT([&] { model.compile(updates_if_finite(model, combined, true)); },
              testing::ThrowsMessage<InvalidArgument>(
                  testing::AllOf(testing::HasSubstr("by the result of AllFinite"),
                                 testing::HasSubstr("the copies would differ from then on"))));
}

TEST(Verified, SoftPlacementMayPutTowersTogether) {
  TwoVariables model(3);
  const GradientTable combined = model.reduce("naive");
  Session session(model.graph, {.device_count = {{"CPU", 2}}, .allow_soft_placement = true});
  std::vector<FeedType> feeds;
  for (const Output& input : model.inputs) feeds.push_back({input, {4}});
  EXPECT_NO_THROW(session.prepare(model.updates(combined), feeds));
}

}  // namespace verify_compile_test
}  // namespace belfry
