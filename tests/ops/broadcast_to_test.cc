#include "belfry/ops/broadcast_to.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace broadcast_to_test {

Output repeated(Inputs x) { return broadcast_to(x[0], x[1]); }
Builder along(std::vector<int> axes, BroadcastValues values) {
  return [=](Inputs x) { return broadcast_along(x[0], x[1], axes, values); };
}

const Tensor& like() {
  static const Tensor tensor({2, 3}, DType::kF32);
  return tensor;
}

TEST(BroadcastTo, RepeatsByNumpysRules) {
  EXPECT_EQ(compute(repeated, {Tensor({3}, std::vector<float>{1, 2, 3}), like()}),
            Tensor({2, 3}, std::vector<float>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(compute(repeated, {Tensor({2, 1}, std::vector<float>{1, 2}), like()}),
            Tensor({2, 3}, std::vector<float>{1, 1, 1, 2, 2, 2}));
}

TEST(BroadcastTo, KeepsItsContract) {
  const Tensor target = random_values({4, 3, 5});
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 1}, Shape{4, 1, 5}, Shape{4, 3, 5}})
    check_op({.build = repeated, .inputs = {random_values(shape), target}, .nan = false});
}

TEST(BroadcastTo, RefusesWhatIsLarger) {
  expect_refused(repeated, {{{4, 3}}, {{3}}}, "[4,3] cannot be repeated to [3]");
  expect_refused(repeated, {{{2}}, {{3}}}, "do not fit");
}

TEST(BroadcastAlong, RepeatsOrSharesAlongAxes) {
  const Tensor x({2}, std::vector<float>{3, 6});
  EXPECT_EQ(compute(along({1}, BroadcastValues::kRepeat), {x, like()}),
            Tensor({2, 3}, std::vector<float>{3, 3, 3, 6, 6, 6}));
  EXPECT_EQ(compute(along({1}, BroadcastValues::kShare), {x, like()}),
            Tensor({2, 3}, std::vector<float>{1, 1, 1, 2, 2, 2}));
}

TEST(BroadcastAlong, KeepsItsContract) {
  const Tensor target = random_values({4, 3, 5});
  for (const BroadcastValues values : {BroadcastValues::kRepeat, BroadcastValues::kShare}) {
    check_op(
        {.build = along({1}, values), .inputs = {random_values({4, 5}), target}, .nan = false});
    check_op(
        {.build = along({0, 2}, values), .inputs = {random_values({3}), target}, .nan = false});
    check_op(
        {.build = along({0, 1, 2}, values), .inputs = {random_values({}), target}, .nan = false});
    check_op(
        {.build = along({2}, values), .inputs = {random_values({4, 3, 1}), target}, .nan = false});
  }
}

TEST(BroadcastAlong, RefusesWhatDoesNotFit) {
  expect_refused(along({1}, BroadcastValues::kRepeat), {{{3}}, {{2, 3}}}, "along axes [1]");
}

}  // namespace broadcast_to_test
}  // namespace belfry
