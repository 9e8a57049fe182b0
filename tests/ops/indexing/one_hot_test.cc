#include "belfry/ops/indexing/one_hot.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace one_hot_test {

Tensor labels(Shape shape, std::vector<std::int32_t> values) { return {std::move(shape), values}; }

Builder of_depth(std::int64_t depth, DType dtype = DType::kF32) {
  return [=](Inputs x) { return one_hot(x[0], depth, dtype); };
}

TEST(OneHot, Has1AtTheLabel) {
  EXPECT_EQ(compute(of_depth(3), {labels({2}, {2, 0})}),
            Tensor({2, 3}, std::vector<float>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(compute(of_depth(2, DType::kI64), {Tensor(std::int64_t{1})}),
            Tensor({2}, std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(doubles(compute(of_depth(2, DType::kBF16), {labels({1, 2}, {1, 0})})),
            (std::vector<double>{0, 1, 1, 0}));
}

TEST(OneHot, KeepsItsContract) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBool})
    check_op({.build = of_depth(5, dtype),
              .inputs = {labels({7}, {4, 0, 1, 1, 2, 3, 4})},
              .gradient = -1,
              .nan = false});
  check_op({.build = of_depth(4),
            .inputs = {labels({3, 2}, {3, 0, 1, 1, 2, 3})},
            .gradient = -1,
            .nan = false});
}

TEST(OneHot, ALabelOutsideTheDepthIsAnErrorWithTheRow) {
  for (const std::int32_t label : {3, -1}) try {
      compute(of_depth(3), {labels({2, 2}, {0, 1, 2, label})});
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("OneHot 'OneHot' (built at one_hot_test.cc"), std::string::npos) << text;
      EXPECT_NE(text.find("in row 1 is not one of the 3 classes [0, 3)"), std::string::npos)
          << text;
    }
}

TEST(OneHot, RefusesOtherLabelsAndDepths) {
  expect_refused(of_depth(3), {{{2}}}, "labels are i32 or i64, not f32");
  expect_refused(of_depth(0), {{{2}, DType::kI32}}, "the depth must be positive, not 0");
}

}  // namespace one_hot_test
}  // namespace belfry
