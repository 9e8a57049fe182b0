#include "belfry/trainers/training_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/no_op.h"
#include "belfry/tests/trainers/small_problem.h"

namespace belfry {
namespace {

using testing::HasSubstr;

// What building for two fields of these names says.
std::string built(const std::string& first, const std::string& second) {
  Graph graph;
  const Model model = smooth_model;
  const DeviceSpec devices[] = {"/cpu:0"};
  const Dataset::Field fields[] = {{first, DType::kF64, {4}}, {second, DType::kF64, {1}}};
  try {
    build_training_graph(
        graph, {.model = model,
                .devices = devices,
                .variables = VariablePolicy::kOnOneDevice,
                .fields = fields,
                .batch_size = 2,
                .update = [&](const GradientTable&) -> Node& { return group(graph, {}); }});
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

}  // namespace
}  // namespace belfry
