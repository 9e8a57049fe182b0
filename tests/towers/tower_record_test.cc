// TowerRecord::get(): tensors of a tower by their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/split.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace tower_record_test {

using testing::AllOf;
using testing::HasSubstr;

std::string at_line(unsigned line) { return cat("tower_record_test.cc:", line); }

TEST(TowerRecord, FindsTensorsByTheirNamesInTheTower) {
  Graph graph;
  Output y, second;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    placeholder(graph, "x", DType::kF32, {2});
    two_variables(tower);
    y = iota(graph, {2}, 0, "block/y");
    second = split(y, 2, 0, "halves")[1];
  });
  const TowerRecord& tower = towers[1];
  EXPECT_EQ(tower.get("x"), tower.inputs[0]);
  EXPECT_EQ(tower.get("x:0"), tower.inputs[0]);
  EXPECT_EQ(tower.get("block/y"), y);
  EXPECT_EQ(tower.get("halves:1"), second);
  EXPECT_EQ(tower.get("fc/W"), Output(tower.variables[0]));
  EXPECT_EQ(towers[0].get("fc/W"), Output(towers[0].variables[0]));
  EXPECT_EQ(towers[0].get("block/y").device(), cpu(0));
  for (const char* name : {"z", "halves:2", "x:1", "x:12", "x:", "tower1/x"})
    EXPECT_THAT(message_of<NotFoundError>([&] { tower.get(name); }),
                HasSubstr(cat("tower 'tower1' has no tensor '", name, "'; ")));
  EXPECT_THAT(message_of<NotFoundError>([&] { tower.get("no such name"); }),
              HasSubstr("; ask for one that it has, such as "));
}

// The results of one tower function in several calls; y has a suffix in all but the first.
struct Models {
  std::vector<TowerRecord> records;
  std::vector<Output> ys;
  unsigned line = 0;
};

template <class Call>
void build_models(Models& models, const Call& call) {
  for (int model = 0; model < 2; ++model)
    models.records.push_back(call([&](Tower& tower) {
      models.line = __LINE__ + 1;
      models.ys.push_back(iota(tower.graph(), {2}, model, "y"));
    }));
}

// tensorpack's handle of the second tower gives the tensor of the first, "tower0/y:0".
TEST(TowerRecord, OfTwoCallsOnOneGraphGivesItsOwnTensorsOrRefuses) {
  Graph graph;
  Models trained, predicted;
  build_models(trained, [&](const std::function<void(Tower&)>& build) {
    return replicate(graph, cpus(1), VariablePolicy::kReplicated, build)[0];
  });
  build_models(predicted, [&](const std::function<void(Tower&)>& build) {
    return predict_tower(graph, {}, build);
  });
  for (const Models& models : {trained, predicted}) {
    EXPECT_EQ(models.records[0].get("y"), models.ys[0]);
    EXPECT_EQ(models.records[1].get("y_1"), models.ys[1]);
    const std::string& tower = models.records[0].name;
    EXPECT_THAT(message_of([&] { models.records[1].get("y"); }),
                AllOf(HasSubstr(cat("Name conflict! Const '", tower, "/y' (built at ")),
                      HasSubstr(at_line(models.line)), HasSubstr("get(\"y_1\")")));
    EXPECT_THAT(message_of([&] { models.records[0].get("y_1"); }),
                HasSubstr(cat("Name conflict! Const '", tower, "/y_1'")));
  }
}

TEST(TowerRecord, KnowsAsItsOwnWhatItsFunctionMakesInReplicaScopes) {
  Graph graph;
  std::vector<TowerRecord> records;
  for (int model = 0; model < 2; ++model)
    records.push_back(replicate(graph, cpus(1), VariablePolicy::kReplicated, [&](Tower& tower) {
      const ReplicaScope again(graph, "tower0/", 0);
      iota(tower.graph(), {2}, 0, "y");
    })[0]);
  EXPECT_EQ(records[1].get("y_1").node().origin().call, records[1].call);
  EXPECT_THAT(message_of([&] { records[0].get("y_1"); }),
              HasSubstr("predict_tower(); ask the TowerRecord of that call for it"));
  EXPECT_THROW(records[1].get("y"), InvalidArgument);
}

TEST(TowerRecord, FindsOutputsByTheirNamesAndSuggestsTheNearest) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    tower.output("logits", iota(graph, {2}, 0, "sum"));
  });
  EXPECT_EQ(towers[1].get("logits").name(), "tower1/sum");
  EXPECT_THAT(message_of<NotFoundError>([&] { towers[1].get("logit"); }),
              HasSubstr("tower 'tower1' has no tensor 'logit'; did you mean 'logits'?"));
}

TEST(TowerRecord, PrefersOutputsToInputsAndNodesOfTheirNames) {
  Graph graph;
  Output doubled, mean;
  const auto towers = replicate(graph, cpus(1), VariablePolicy::kReplicated, [&](Tower& tower) {
    const Output x = placeholder(graph, "x", DType::kF32, {2});
    doubled = x + x;
    mean = reduce_mean(x);
    iota(graph, {2}, 0, "sum");
    tower.output("x", doubled);
    tower.output("sum", doubled);
    tower.metric("average", mean);
  });
  EXPECT_EQ(towers[0].get("x"), doubled);
  EXPECT_EQ(towers[0].get("sum"), doubled);
  EXPECT_EQ(towers[0].get("average"), mean);
}

TEST(TowerRecord, FindsWhatIsMadeBelowItsNameLaterOn) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, two_variables);
  const NameScope again(graph, "tower1/");
  const Output late = iota(graph, {2}, 0, "late");
  EXPECT_EQ(towers[1].get("late"), late);
}

}  // namespace tower_record_test
}  // namespace belfry
