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
  std::vector<std::vector<Output>> values(2);
  for (std::size_t t = 0; t < 2; ++t)
    for (const Gradient& gradient : gradients.rows[t]) values[t].push_back(gradient.value);
  EXPECT_EQ(gradients.table().with(values).at(1, 2).value, gradients.rows[1][2].value);
  values[1].pop_back();
  EXPECT_THROW(gradients.table().with(values), InvalidArgument);
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
