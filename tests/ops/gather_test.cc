#include "belfry/ops/gather.h"

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace gather_test {

Output gathered(Inputs x) { return gather(x[0], x[1]); }

Tensor ids(Shape shape, std::vector<std::int32_t> values) { return {shape, values}; }

const Tensor& table() {
  static const Tensor tensor({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  return tensor;
}

TEST(Gather, TakesRows) {
  EXPECT_EQ(compute(gathered, {table(), ids({3}, {2, 0, 2})}),
            Tensor({3, 2}, std::vector<float>{5, 6, 1, 2, 5, 6}));
  EXPECT_EQ(compute(gathered, {table(), Tensor(std::int64_t{1})}),
            Tensor({2}, std::vector<float>{3, 4}));
}

TEST(Gather, KeepsItsContract) {
  check_op({.build = gathered, .inputs = {random_values({5, 3}), ids({2, 3}, {4, 0, 1, 4, 4, 2})}});
  check_op({.build = gathered, .inputs = {random_values({5, 3}), ids({}, {2})}});
  check_op({.build = gathered, .inputs = {random_values({5}), ids({4}, {2, 2, 0, 1})}});
}

TEST(Gather, AnIdOutsideTheTableIsAnErrorWithTheOpAndTheId) {
  for (const std::int32_t id : {3, -1}) try {
      compute(gathered, {table(), ids({2}, {0, id})});
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("Gather 'Gather' (built at gather_test.cc"), std::string::npos) << text;
      EXPECT_NE(text.find(cat("id ", id, " is not in [0, 3)")), std::string::npos) << text;
    }
}

TEST(Gather, RefusesFloatingIds) {
  expect_refused(gathered, {{{3, 2}}, {{4}, DType::kF32}}, "the ids are f32");
  expect_refused(gathered, {{Shape{}}, {{4}, DType::kI32}}, "the table is a scalar");
}

// Rows with an id that appears several times get the sum of their gradients.
TEST(GatherGrad, AddsUpRowsThatWereTakenOften) {
  const Builder gradient = [](Inputs x) {
    return gradients(gather(x[0], x[1]), {x[0]}, {.initial = {x[2]}})[0];
  };
  const Tensor dy({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compute(gradient, {table(), ids({3}, {2, 0, 2}), dy}),
            Tensor({3, 2}, std::vector<float>{3, 4, 0, 0, 6, 8}));
  check_op({.build = gradient,
            .inputs = {random_values({5, 3}), ids({4}, {4, 0, 1, 4}), random_values({4, 3})},
            .nan = false});
}

}  // namespace gather_test
}  // namespace belfry
