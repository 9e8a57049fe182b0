#include "belfry/framework/core_ops/assign_gathered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace assign_gathered_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Writes elements 2 to 7 of a row to a variable of five ones.
Node& write(AssignGatheredOptions options, Graph& graph) {
  const Variable v = variable(graph, "v", {5}, {.initializer = init::ones()});
  return assign_gathered(v, constant(graph, {10, 11, 12, 13, 14, 15, 16, 17}, {8}),
                         std::move(options));
}

TEST(AssignGathered, LeavesThePartOfItsProcessAlone) {
  Graph first, second, third;
  EXPECT_THAT(evaluate(write({2, 0, {0, 2, 3, 5}}, first).output()).data<float>(),
              ElementsAre(1, 1, 14, 15, 16));
  EXPECT_THAT(evaluate(write({2, 1, {0, 2, 3, 5}}, second).output()).data<float>(),
              ElementsAre(12, 13, 1, 15, 16));
  EXPECT_THAT(evaluate(write({2, 2, {0, 2, 5, 5}}, third).output()).data<float>(),
              ElementsAre(12, 13, 14, 15, 16));
}

TEST(AssignGathered, KeepsTheContractOfUpdates) {
  check_update(
      [](std::span<const Variable> v, Inputs x) -> Node& {
        return assign_gathered(v[0], x[0], {0, 1, {0, 70, 120, 205}});
      },
      {random_values({5, 41})}, {random_values({211}, -2, 2, 9)});
}

TEST(AssignGathered, RefusesARowThatIsTooShortAndPartsOfAnotherTensor) {
  Graph graph;
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                write({4, 0, {0, 2, 5}}, graph);
              }),
              HasSubstr("the variable is elements 4 to 9 of a row"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                Graph other;
                write({0, 0, {0, 2, 6}}, other);
              }),
              HasSubstr("cuts 6 elements, but the variable is f32[5]"));
}

}  // namespace assign_gathered_test
}  // namespace belfry
