#include "belfry/trainers/core/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"

namespace belfry {
namespace model_test {

using testing::AllOf;
using testing::HasSubstr;

Output sum_of_both(Tower&, Output x, Output y) { return reduce_sum(x + y); }

struct Scaled {
  double factor = 2;
  Output operator()(Tower&, Output x) const { return reduce_sum(x * factor); }
};

class ModelTest : public testing::Test {
 protected:
  Output input(const char* name) { return placeholder(graph_, name, DType::kF32, {3}); }

  std::string error_of(const ModelFunction& model, std::vector<Output> inputs) {
    Tower tower(graph_);
    try {
      model(tower, inputs);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(accepted)";
  }

  Graph graph_;
};

TEST_F(ModelTest, WrapsFunctionsLambdasAndObjectsOfAnyArity) {
  EXPECT_EQ(ModelFunction(sum_of_both).arities(), std::vector<std::size_t>{2});
  EXPECT_EQ(ModelFunction(Scaled{}).arities(), std::vector<std::size_t>{1});
  const ModelFunction none([](Tower& t) { return constant(t.graph(), 1.0); });
  EXPECT_EQ(none.arities(), std::vector<std::size_t>{0});
  const ModelFunction three([](Tower&, Output x, Output, Output) { return reduce_sum(x); });
  EXPECT_EQ(three.arities(), std::vector<std::size_t>{3});
  EXPECT_FALSE(static_cast<bool>(ModelFunction()));
  EXPECT_TRUE(static_cast<bool>(three));
}

TEST_F(ModelTest, PassesInputsInOrder) {
  const Output x = input("x"), y = input("y");
  std::vector<Output> seen;
  const ModelFunction model([&](Tower&, Output a, Output b) {
    seen = {a, b};
    return reduce_sum(a);
  });
  EXPECT_EQ(error_of(model, {x, y}), "(accepted)");
  EXPECT_EQ(seen, (std::vector{x, y}));
}

TEST_F(ModelTest, TakesManyInputs) {
  std::vector<Output> inputs, seen;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"})
    inputs.push_back(input(name));
  const ModelFunction model([&](Tower&, Output a, Output b, Output c, Output d, Output e, Output f,
                                Output g, Output h, Output i, Output j, Output k) {
    seen = {a, b, c, d, e, f, g, h, i, j, k};
    return reduce_sum(a);
  });
  EXPECT_EQ(model.arities(), std::vector<std::size_t>{11});
  EXPECT_EQ(error_of(model, inputs), "(accepted)");
  EXPECT_EQ(seen, inputs);
}

TEST_F(ModelTest, RefusesAnotherNumberOfInputsNamingThem) {
  EXPECT_THAT(error_of(sum_of_both, {input("image")}),
              AllOf(HasSubstr("takes 2 inputs"), HasSubstr("1 fields: image f32[3]")));
  EXPECT_THAT(error_of(ModelFunction(), {}), HasSubstr("no model"));
}

TEST_F(ModelTest, RefusesLossesThatAreNoFloatingScalars) {
  const ModelFunction vector([](Tower&, Output x) { return x + 1; });
  EXPECT_THAT(error_of(vector, {input("x")}),
              AllOf(HasSubstr("f32[3]"), HasSubstr("model_test.cc"), HasSubstr("reduce_mean")));
  EXPECT_THAT(error_of(ModelFunction([](Tower&) { return Output(); }), {}),
              HasSubstr("empty Output"));
  const ModelFunction integer([](Tower& t) { return constant(t.graph(), 1, DType::kI32); });
  EXPECT_THAT(error_of(integer, {}), HasSubstr("i32"));
}

}  // namespace model_test
}  // namespace belfry
