#include "belfry/trainers/core/training_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace training_graph_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The error of building for two fields of these names.
std::string built(const std::string& first, const std::string& second) {
  Graph graph;
  const Dataset::Field fields[] = {{first, DType::kF64, {4}}, {second, DType::kF64, {1}}};
  const BatchPlan batches(2, 1, 2, 1);
  const TrainerOptions options{.model = smooth_model, .devices = {"/cpu:0"}};
  const TrainerKind kind{
      .update = [&](const TrainerOptions&, const GradientTable&,
                    const UpdateOptions&) -> UpdateNodes { return {.update = &group(graph, {})}; }};
  try {
    build_training_graph(
        graph, {.kind = kind, .trainer = options, .fields = fields, .forms = batches.forms()});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "built";
}

TEST(TrainingGraph, NamesPlaceholdersAfterTheFieldsOfTheData) {
  EXPECT_EQ(built("x", "y"), "built");
  EXPECT_THAT(built("x", "x"), HasSubstr("two fields called 'x'"));
  for (const char* name : {"", "a:0", "a/b", "a b"})
    EXPECT_THAT(built("x", name), HasSubstr(cat("a field called '", name, "'")));
}

// The plans of a model's forms, which share one copy of the variables.
std::vector<std::string> plan_texts(Uneven uneven, const ModelFunction& model = smooth_model) {
  Graph graph;
  const TrainerOptions options{
      .model = model, .optimizer = sgd(0.1), .devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}};
  const TrainerKind kind{.combine = [](const TrainerOptions&, const GradientTable& gradients,
                                       const ReduceOptions& how) {
    return make_strategy("colocate")->reduce(gradients, how);
  }};
  const std::vector<Dataset::Field> fields{{"x", DType::kF64, {4}}, {"y", DType::kF64, {1}}};
  const BatchPlan batches(11, 4, 2, 1, {.uneven = uneven});  // 8 and 3
  const TrainingGraph built = build_training_graph(
      graph, {.kind = kind, .trainer = options, .fields = fields, .forms = batches.forms()});
  Session session(graph, {.device_count = {{"CPU", 4}}});
  std::vector<std::string> texts;
  for (const StepNodes& nodes : built.losses[0].steps) {
    std::vector<FeedType> feeds;
    for (std::size_t t = 0; t < 4; ++t)
      for (const Output& input : built.towers[t].inputs) {
        feeds.push_back({input, input.shape()});
        feeds.back().shape[0] = nodes.batch.rows[t];
      }
    for (const FeedType& zero : nodes.zero_feeds()) feeds.push_back(zero);
    const Fetch train[] = {*nodes.train_op};
    const CompiledStep& step = session.prepare(train, feeds);
    texts.emplace_back();
    for (const PlanNode& node : step.plan()->nodes)
      texts.back() += cat(node.name(), " (", node.op->name, ")\n");
  }
  return texts;
}

TEST(TrainingGraph, RunsNoKernelOfATowerWithoutSamples) {
  const std::vector<std::string> weight = plan_texts(Uneven::kWeight);
  ASSERT_EQ(weight.size(), 2U);
  EXPECT_THAT(weight[0], HasSubstr("tower3/"));
  EXPECT_THAT(weight[0], Not(HasSubstr("(Weigh)")));
  EXPECT_THAT(weight[1], AllOf(HasSubstr("tower2/"), HasSubstr("(Weigh)"), HasSubstr("(Unweigh)")));
  EXPECT_THAT(weight[1], Not(HasSubstr("tower3/")));
  const auto normalised = [](Tower& tower, Output x, Output y) {
    const Output h = dense(tower, "first", x, {.units = 3});
    return smooth_model(tower, batch_norm(tower, "bn", h, {.synchronised = true}), y);
  };
  const std::string joint = plan_texts(Uneven::kWeight, ModelFunction(normalised))[1];
  EXPECT_THAT(joint, AllOf(HasSubstr("(BatchStatisticsGrad)"), Not(HasSubstr("(Weigh)"))));
  // Zeros are fed in place of tower 3's contribution.
  EXPECT_THAT(joint, HasSubstr("tower3/first/Add (Placeholder)"));
  EXPECT_THAT(joint, HasSubstr("tower3/bn/weight (Placeholder)"));
  EXPECT_THAT(joint, Not(HasSubstr("tower3/first/MatMul")));
  // Towers with samples that do not count run like the others.
  EXPECT_THAT(plan_texts(Uneven::kPad)[1], AllOf(HasSubstr("tower3/"), HasSubstr("(Weigh)")));
}

// The line of the user's program, not that of the library.
TEST(TrainingGraph, GivesGradientsTheLinesOfTheModel) {
  const auto data = smooth_data(16);
  for (const int devices : {1, 2})
    for (const bool synchronised : {false, true}) {
      const auto model = [&](Tower& tower, Output x, Output y) {
        return smooth_model(tower, batch_norm(tower, "bn", x, {.synchronised = synchronised}), y);
      };
      Trainer trainer(find_trainer("replicated"),
                      {.model = ModelFunction(model),
                       .optimizer = sgd(0.1),
                       .devices = cpus(devices),
                       .batch_size = 4},
                      *data);
      const Graph& graph = trainer.graph();
      int gradients = 0;
      for (std::size_t id = 0; id < graph.size(); ++id) {
        const NodeOrigin& origin = graph.node(id).origin();
        if (!origin.forward) continue;
        ++gradients;
        EXPECT_EQ(origin.site, origin.forward->origin().site) << graph.node(id).describe();
        EXPECT_THAT(std::string(origin.site.file_name()),
                    testing::AnyOf("small_problem.h", "training_graph_test.cc"))
            << graph.node(id).describe();
      }
      EXPECT_GE(gradients, 14);
    }
}

}  // namespace training_graph_test
}  // namespace belfry
