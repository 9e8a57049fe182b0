#include "belfry/allreduce/verify/gradient_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace gradient_table_test {

using testing::HasSubstr;

std::string refusal(const std::vector<std::vector<Gradient>>& rows) {
  try {
    GradientTable table(rows);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A gradient of variable `name` on tower t, of a given type; its line is the caller's.
Gradient gradient(Graph& graph, int t, const std::string& name, Shape shape,
                  DType dtype = DType::kF32, At at = {}) {
  DeviceScope on(graph, cpu(t));
  ReplicaScope replica(graph, t == 0 ? "" : cat("tower", t, "/"), t);
  const Variable v = variable(graph, t == 0 ? name : cat("tower", t, "/", name), shape,
                              {.dtype = dtype, .initializer = init::zeros()}, at);
  return {constant(graph, Tensor(shape, dtype), at), v};
}

std::string at_line(unsigned line) { return cat("gradient_table_test.cc:", line); }

TEST(GradientTable, GivesGradientsByTowerAndVariable) {
  TestGradients gradients(3, {{2}, {3, 4}});
  const GradientTable table = gradients.table();
  EXPECT_EQ(table.towers(), 3);
  EXPECT_EQ(table.variables(), 2);
  EXPECT_EQ(table.at(2, 1).value, gradients.rows[2][1].value);
  EXPECT_EQ(table.row(1)[0].variable.name(), "tower1/v0");
  EXPECT_EQ(table.row(1)[0].variable.logical_name(), "v0");
  EXPECT_EQ(table.values(1)[2], gradients.rows[2][1].value);
  EXPECT_EQ(table.device(2), cpu(2));
  EXPECT_EQ(&table.graph(), &gradients.graph);
}

TEST(GradientTable, KnowsWhetherTowersShareVariables) {
  TestGradients gradients(3, {{4}, {2}});
  EXPECT_FALSE(gradients.table().shares_variables());
  EXPECT_TRUE(GradientTable({gradients.rows[0]}).shares_variables());
  for (int t = 1; t < 3; ++t)
    for (std::size_t v = 0; v < 2; ++v)
      gradients.rows[static_cast<std::size_t>(t)][v].variable = gradients.rows[0][v].variable;
  EXPECT_TRUE(gradients.table().shares_variables());
}

TEST(GradientTable, TakesOtherValuesOfTheSameLayout) {
  TestGradients gradients(2, {{2}});
  const GradientTable table = gradients.table();
  const Output other = gradients.rows[1][0].value;
  const GradientTable changed = table.with({{other}, {other}});
  EXPECT_EQ(changed.at(0, 0).value, other);
  EXPECT_EQ(changed.at(0, 0).variable, table.at(0, 0).variable);
  EXPECT_EQ(changed.device(0), cpu(0)) << "towers stay where they are";
  EXPECT_THROW(table.with({{other}}), InvalidArgument);
  EXPECT_THROW(table.with({{other}, {Output()}}), InvalidArgument);
}

TEST(GradientTable, RefusesOtherValuesOfAnotherNumber) {
  TestGradients gradients(2, {{2}, {3, 4}, {}});
  auto [values, variables] = split_grad_list(gradients.rows);
  EXPECT_EQ(gradients.table().with(values).at(1, 2).value, gradients.rows[1][2].value);
  values[1].pop_back();
  EXPECT_THROW(gradients.table().with(values), InvalidArgument);
}

// In tensorpack 0.11, split_grad_list([[(1,'a'),(2,'b')],[(3,'c'),(4,'d')]]) is ([[1, 2], [3, 4]],
// [['a', 'b'], ['c', 'd']]). merge_grad_list turns these into the first list again.
TEST(GradLists, AreSplitIntoGradientsAndVariablesAndMergedAgain) {
  TestGradients gradients(2, {{2}, {3, 4}, {}});
  const SplitGradients parts = split_grad_list(gradients.rows);
  const std::vector<std::vector<Gradient>> merged =
      merge_grad_list(parts.gradients, parts.variables);
  ASSERT_EQ(merged.size(), 2u);
  for (std::size_t t = 0; t < 2; ++t) {
    ASSERT_EQ(merged[t].size(), 3u);
    for (std::size_t v = 0; v < 3; ++v) {
      const Gradient& g = gradients.rows[t][v];
      EXPECT_EQ(parts.gradients[t][v], g.value);
      EXPECT_EQ(parts.variables[t][v], g.variable);
      EXPECT_EQ(merged[t][v].value, g.value);
      EXPECT_EQ(merged[t][v].variable, g.variable);
    }
  }
}

// split_grad_list([]) is ([], []), of [[]] ([[]], [[]]), of [[(1,'a')],[(3,'c'),(4,'d')]]
// ([[1], [3, 4]], [['a'], ['c', 'd']]), of [[(None,'a')]] ([[None]], [['a']]).
TEST(GradLists, MayBeEmptyOrOfSeveralLengths) {
  EXPECT_TRUE(split_grad_list({}).gradients.empty());
  const std::vector<std::vector<Gradient>> nothing(1);
  EXPECT_EQ(split_grad_list(nothing).variables.size(), 1u);
  TestGradients gradients(2, {{2}, {3, 4}});
  gradients.rows[0].pop_back();
  gradients.rows[0][0].value = {};
  const SplitGradients parts = split_grad_list(gradients.rows);
  ASSERT_EQ(parts.gradients[0].size(), 1u);
  EXPECT_FALSE(parts.gradients[0][0]);
  EXPECT_EQ(parts.variables[0][0], gradients.rows[0][0].variable);
  EXPECT_EQ(parts.variables[1].size(), 2u);
}

// merge_grad_list([[1,2],[3]], [['a','b'],['c','d']]) is [[(1, 'a'), (2, 'b')], [(3, 'c')]], and
// merge_grad_list([[1,2]], [['a','b'],['c','d']]) is [[(1, 'a'), (2, 'b')]].
TEST(GradLists, AreCutToTheShorterWithAWarning) {
  TestGradients gradients(2, {{2}, {3, 4}});
  SplitGradients parts = split_grad_list(gradients.rows);
  parts.gradients[1].pop_back();
  ::testing::internal::CaptureStderr();
  auto merged = merge_grad_list(parts.gradients, parts.variables);
  EXPECT_EQ(merged[0].size(), 2u);
  EXPECT_EQ(merged[1].size(), 1u);
  parts.gradients.pop_back();
  EXPECT_EQ(merge_grad_list(parts.gradients, parts.variables).size(), 1u);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("tower 1 has 1 gradients, but 2 variables"));
  EXPECT_THAT(warnings, HasSubstr("gradients of 1 towers, but variables of 2"));
}

TEST(GradientTable, RefusesAVariableThatOneTowerLacks) {
  Graph graph;
  const Gradient w0 = gradient(graph, 0, "fc/W", {2});
  const Gradient w1 = gradient(graph, 1, "fc/W", {2});
  const unsigned line = __LINE__ + 1;
  const Gradient b0 = gradient(graph, 0, "fc/b", {2});
  const std::string message = refusal({{w0, b0}, {w1}});
  EXPECT_THAT(message, HasSubstr("tower 0 has a gradient of variable 'fc/b'"));
  EXPECT_THAT(message, HasSubstr(at_line(line)));
  EXPECT_THAT(message, HasSubstr("tower 1"));
  EXPECT_THAT(message, HasSubstr(at_line(line - 2)));
}

TEST(GradientTable, RefusesTwoVariablesOfEqualNumberButOtherNames) {
  Graph graph;
  const std::string message =
      refusal({{gradient(graph, 0, "a", {2})}, {gradient(graph, 1, "b", {2})}});
  EXPECT_THAT(message, HasSubstr("variable 'a'"));
}

TEST(GradientTable, RefusesAnotherOrder) {
  Graph graph;
  const Gradient a0 = gradient(graph, 0, "a", {2}), b0 = gradient(graph, 0, "b", {2});
  const Gradient b1 = gradient(graph, 1, "b", {2}), a1 = gradient(graph, 1, "a", {2});
  EXPECT_THAT(refusal({{a0, b0}, {b1, a1}}), HasSubstr("order of gradients: number 0"));
}

TEST(GradientTable, RefusesAnotherShapeNamingBothLines) {
  Graph graph;
  const unsigned line = __LINE__ + 1;
  const Gradient w0 = gradient(graph, 0, "fc/W", {4, 3});
  const Gradient w1 = gradient(graph, 1, "fc/W", {4, 2});
  const std::string message = refusal({{w0}, {w1}});
  EXPECT_THAT(message, HasSubstr("variable 'fc/W'"));
  EXPECT_THAT(message, HasSubstr("f32[4,3]"));
  EXPECT_THAT(message, HasSubstr("f32[4,2]"));
  EXPECT_THAT(message, HasSubstr(at_line(line)));
  EXPECT_THAT(message, HasSubstr(at_line(line + 1)));
}

TEST(GradientTable, RefusesAnotherDType) {
  Graph graph;
  const std::string message =
      refusal({{gradient(graph, 0, "w", {4})}, {gradient(graph, 1, "w", {4}, DType::kF64)}});
  EXPECT_THAT(message, HasSubstr("f32[4]"));
  EXPECT_THAT(message, HasSubstr("f64[4]"));
}

TEST(GradientTable, RefusesEmptyRowsAndGradients) {
  Graph graph;
  EXPECT_THAT(refusal({}), HasSubstr("at least one tower"));
  EXPECT_THAT(refusal({{}}), HasSubstr("tower 0 has no gradients"));
  const Gradient w = gradient(graph, 0, "w", {4});
  EXPECT_THAT(refusal({{{Output(), w.variable}}}), HasSubstr("empty gradient of variable 'w'"));
}

TEST(GradientTable, RefusesGradientsOfTwoGraphs) {
  Graph one, other;
  EXPECT_THAT(refusal({{gradient(one, 0, "w", {4})}, {gradient(other, 1, "w", {4})}}),
              HasSubstr("another graph"));
}

}  // namespace gradient_table_test
}  // namespace belfry
