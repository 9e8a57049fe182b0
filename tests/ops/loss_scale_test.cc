#include "belfry/ops/loss_scale.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/all_finite.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace loss_scale_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

bool finite(const std::vector<Tensor>& tensors, AllFiniteOptions options = {}) {
  const Builder build = [&](Inputs x) { return all_finite(x, options); };
  const bool result = compute(build, tensors).item<bool>();
  Graph graph;
  std::vector<Output> xs;
  for (const Tensor& tensor : tensors) xs.push_back(constant(graph, tensor));
  EXPECT_EQ(evaluate(all_finite(xs, options), {}, {.reference = true}).item<bool>(), result);
  return result;
}

TEST(AllFinite, FindsNaNAndInfinityWhereverTheyAre) {
  for (const std::int64_t size : {1, 7, 4097, 12345}) {
    const Tensor good = random_values({size});
    EXPECT_TRUE(finite({good, Tensor({2, 3}, DType::kF64), Tensor({0}, DType::kF32)}));
    for (const float bad : {kInfinity, -kInfinity, kNaN})
      for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
        Tensor x = good;
        x.mutable_data<float>()[static_cast<std::size_t>(at)] = bad;
        EXPECT_FALSE(finite({x})) << bad << " at " << at << " of " << size;
        EXPECT_FALSE(finite({good, x, good})) << bad << " at " << at << " of " << size;
      }
  }
}

TEST(AllFinite, CountsWhatIsBeyondTheLimitAsInfinite) {
  EXPECT_TRUE(finite({Tensor(kMost), Tensor(-kMost)}));
  EXPECT_TRUE(finite({Tensor(-2.0f)}, {.limit = 2}));
  EXPECT_FALSE(finite({Tensor(-2.001f)}, {.limit = 2}));
  EXPECT_FALSE(finite({Tensor(1e300)}));
}

TEST(AllFinite, RefusesIntegers) {
  expect_refused([](Inputs x) { return all_finite(x); }, {{{2}}, {{2}, DType::kI32}},
                 "input 1 is i32, but a floating-point type is needed");
}

TEST(Unscale, IsTheInverseOr0WhereOneTowerIsNotFinite) {
  for (const bool other : {true, false}) {
    Graph graph;
    const Output flags[] = {constant(graph, Tensor(true)), constant(graph, Tensor(other))};
    const Unscaling by = unscale(constant(graph, Tensor(1024.0f)), flags);
    EXPECT_EQ(evaluate(by.factor), Tensor(other ? 0x1p-10f : 0.0f));
    EXPECT_EQ(evaluate(by.applied), Tensor(std::int64_t{other}));
  }
}

TEST(Unscale, RefusesAScaleThatIsNoScalar) {
  expect_refused([](Inputs x) { return unscale(x[0], x.subspan(1)).factor; },
                 {{{2}}, {{}, DType::kBool}}, "the scale is f32[2], but a scalar f32 is needed");
}

// scale, good steps.
std::vector<double> after(float scale, std::int64_t good, bool applied) {
  const UpdateBuilder build = [](std::span<const Variable> v, Inputs x) -> Node& {
    return update_loss_scale(v[0], v[1], x[0], {.growth_steps = 3});
  };
  std::vector<double> values;
  for (const Tensor& tensor :
       update(build, {Tensor(scale), Tensor(good)}, {Tensor(std::int64_t{applied})}))
    values.push_back(doubles(tensor)[0]);
  return values;
}

TEST(LossScaleUpdate, DoublesAfterGoodStepsAndHalvesAfterABadOne) {
  using Values = std::vector<double>;
  EXPECT_EQ(after(8, 0, true), (Values{8, 1}));
  EXPECT_EQ(after(8, 1, true), (Values{8, 2}));
  EXPECT_EQ(after(8, 2, true), (Values{16, 0}));
  EXPECT_EQ(after(8, 2, false), (Values{4, 0}));
}

TEST(LossScaleUpdate, KeepsTheScaleAndItsInverseExact) {
  EXPECT_EQ(after(0x1p-126f, 0, false)[0], 0x1p-126);
  EXPECT_EQ(after(0x1p126f, 2, true)[0], 0x1p126);
}

TEST(LossScaleUpdate, RefusesToGrowWithoutGoodSteps) {
  Graph graph;
  const auto scalar = [&](const char* name, DType dtype) {
    return variable(graph, name, {}, {.dtype = dtype, .initializer = init::zeros()});
  };
  EXPECT_THROW(update_loss_scale(scalar("scale", DType::kF32), scalar("good", DType::kI64),
                                 constant(graph, 1, DType::kI64), {.growth_steps = 0}),
               InvalidArgument);
}

}  // namespace loss_scale_test
}  // namespace belfry
