// The ops of the framework itself keep the contract of all ops.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace core_ops_test {

TEST(AddN, KeepsItsContract) {
  for (int n = 2; n <= 9; ++n) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < n; ++i)
      inputs.push_back(random_values({3, 41}, -2, 2, static_cast<unsigned>(i)));
    check_op({.build = [](Inputs x) { return add_n(x); }, .inputs = inputs});
  }
}

TEST(AddN, IsABalancedTreeSplitAfterTheLargerHalf) {
  // In f32, (1 + 2^-24) + 2^-24 drops both small terms, while 1 + (2^-24 + 2^-24) keeps them.
  const float tiny = 0x1p-24f;
  const auto sum = [](std::vector<float> values) {
    std::vector<Tensor> inputs(values.begin(), values.end());
    return compute([](Inputs x) { return add_n(x); }, inputs).item<float>();
  };
  EXPECT_EQ(sum({1, tiny, tiny}), 1.f);              // (1 + t) + t
  EXPECT_EQ(sum({1, 0, tiny, tiny}), 1 + 0x1p-23f);  // (1 + 0) + (t + t)
  EXPECT_EQ(sum({tiny, tiny, 1}), 1 + 0x1p-23f);     // (t + t) + 1
  EXPECT_EQ(sum({tiny, 1, tiny, 0, tiny}), 1.f);     // ((t + 1) + t) + (0 + t)
}

TEST(AddN, RefusesUnequalShapesAndTypes) {
  const Builder build = [](Inputs x) { return add_n(x); };
  expect_refused(build, {{{2}, DType::kF32}, {{3}, DType::kF32}}, "AddN");
  expect_refused(build, {{{2}, DType::kF32}, {{2}, DType::kF64}}, "cast");
}

TEST(Identity, KeepsItsContract) {
  check_op({.build = [](Inputs x) { return identity(x[0]); }, .inputs = {random_values({4, 5})}});
}

TEST(Fill, HoldsItsValueInEveryType) {
  Graph graph;
  EXPECT_EQ(evaluate(fill(graph, {2}, -3, DType::kI64)),
            Tensor({2}, std::vector<std::int64_t>{-3, -3}));
  EXPECT_EQ(evaluate(fill(graph, {}, 0.5)), Tensor(0.5f));
  const Output x = constant(graph, Tensor({3}, DType::kF64));
  EXPECT_EQ(evaluate(fill_like(x, 2)), Tensor({3}, std::vector{2., 2., 2.}));
  EXPECT_THROW(fill(graph, {2}, 0.5, DType::kI32), InvalidArgument);
}

TEST(Fill, RoundsTo16Bits) {
  Graph graph;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(evaluate(fill(graph, {3}, 0, dtype)), Tensor({3}, dtype));
    const std::uint16_t one = dtype == DType::kF16 ? 0x3c00 : 0x3f80;
    for (const Output x : {fill(graph, {3}, 1.0001, dtype),
                           fill_like(constant(graph, Tensor({3}, dtype)), 1.0001)}) {
      const Tensor ones = evaluate(x);
      for (int i = 0; i < 3; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, ones.raw() + 2 * i, sizeof bits);
        EXPECT_EQ(bits, one);
      }
    }
  }
}

TEST(Constant, ScalarsOfIntegerTypesMustBeExact) {
  EXPECT_EQ(scalar_tensor(7, DType::kI32), Tensor(std::int32_t{7}));
  EXPECT_THROW(scalar_tensor(7.5, DType::kI32), InvalidArgument);
  EXPECT_EQ(scalar_tensor(0.1, DType::kF32), Tensor(0.1f));  // rounded to the type
}

TEST(Placeholder, CarriesItsTypeAndName) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kU8, {kUnknownSize, 3});
  EXPECT_EQ(x.name(), "x");
  EXPECT_EQ(x.dtype(), DType::kU8);
  EXPECT_EQ(x.shape(), (Shape{kUnknownSize, 3}));
}

TEST(Variable, IsTheStorageAndReadIsItsValue) {
  Graph graph;
  const Variable v = variable(graph, "v", {2}, {.initializer = init::ones()});
  EXPECT_EQ(v.node().op().name, kVariable.name);
  const Output read = v;
  EXPECT_EQ(read.node().op().name, kRead.name);
  EXPECT_EQ(evaluate(read), Tensor({2}, std::vector{1.f, 1.f}));
}

TEST(Assign, WritesAddsAndSubtracts) {
  Graph graph;
  const Variable v = variable(graph, "v", {3}, {.initializer = init::ones()});
  const Output delta = constant(graph, {1, 2, 3}, {3});
  const auto once = [&](Node& write) { return evaluate(write.output()); };
  EXPECT_EQ(once(assign(v, delta)), Tensor({3}, std::vector{1.f, 2.f, 3.f}));
  EXPECT_EQ(once(assign_add(v, delta)), Tensor({3}, std::vector{2.f, 3.f, 4.f}));
  EXPECT_EQ(once(assign_sub(v, delta)), Tensor({3}, std::vector{0.f, -1.f, -2.f}));
  EXPECT_THROW(assign(v, constant(graph, {1, 2}, {2})), InvalidArgument);
}

TEST(Assign, KeepsTheContractOfUpdates) {
  for (Node& (*write)(Variable, Output, At) : {&assign, &assign_add, &assign_sub})
    check_update(
        [=](std::span<const Variable> v, Inputs x) -> Node& { return write(v[0], x[0], {}); },
        {random_values({5, 41})}, {random_values({5, 41}, -2, 2, 9)});
}

TEST(Assign, IntegersWrap) {
  Graph graph;
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const Variable v =
      variable(graph, "v", {}, {.dtype = DType::kI32, .initializer = init::value(Tensor(most))});
  const Tensor wrapped = evaluate(assign_add(v, constant(graph, Tensor(std::int32_t{1}))).output());
  EXPECT_EQ(wrapped, Tensor(std::numeric_limits<std::int32_t>::min()));
}

TEST(Assign, GoesWhereItsVariableIs) {
  Graph graph;
  Variable v;
  {
    DeviceScope on(graph, "/cpu:1");
    v = variable(graph, "v", {}, {.initializer = init::ones()});
  }
  DeviceScope on(graph, "/cpu:3");
  const Node& write = assign(v, constant(graph, 2));
  EXPECT_EQ(write.device(), DeviceSpec("/cpu:1"));
  ASSERT_EQ(write.request().colocation.size(), 1u);
  EXPECT_EQ(write.request().colocation[0]->name(), "v");
}

// Element counts, means and variances of a large sample; five standard errors are allowed.
void expect_moments(const Tensor& sample, double mean, double variance) {
  double sum = 0, squares = 0;
  for (const double x : doubles(sample)) sum += x, squares += x * x;
  const auto n = static_cast<double>(sample.elements());
  EXPECT_NEAR(sum / n, mean, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n - sum / n * (sum / n), variance, 0.02 * variance);
}

TEST(RandomUniform, HasItsMomentsAndBounds) {
  Graph graph;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor sample = evaluate(random_uniform(graph, {100'000}, -1, 3, dtype));
    expect_moments(sample, 1, 16. / 12);
    for (const double x : doubles(sample)) ASSERT_TRUE(x >= -1 && x <= 3) << x;
  }
}

TEST(RandomNormal, HasItsMoments) {
  Graph graph;
  expect_moments(evaluate(random_normal(graph, {100'000}, 2)), 0, 4);
  expect_moments(evaluate(random_normal(graph, {100'000}, 0.5, DType::kF64)), 0, 0.25);
}

TEST(SourcesOfTensors, DoNotDependOnTheDivisionOfTheWork) {
  Graph graph;
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Output& x :
         {random_normal(graph, {1001}, 1, dtype), random_uniform(graph, {1001}, 0, 1, dtype),
          fill(graph, {1001}, 3, dtype), fill_like(constant(graph, Tensor({1001}, dtype)), 3)}) {
      const Tensor whole = evaluate(x);
      for (const int parts : {2, 3}) EXPECT_EQ(evaluate(x, {}, {.parts = parts}), whole);
      for (const int shift : {1, 7, 31})
        EXPECT_EQ(evaluate(x, {}, {.parts = 2, .shift = shift}), whole);
    }
}

TEST(SourcesOfTensors, RefuseShapesThatAreNotKnown) {
  Graph graph;
  EXPECT_THROW(fill(graph, {kUnknownSize}, 1), InvalidArgument);
  EXPECT_THROW(random_uniform(graph, {kUnknownSize}), InvalidArgument);
  EXPECT_THROW(random_normal(graph, {kUnknownSize}), InvalidArgument);
  EXPECT_THROW(random_normal(graph, {2}, 1, DType::kI32), InvalidArgument);
}

TEST(RandomUniform, IsAFunctionOfSeedLogicalNameReplicaAndStep) {
  const auto draw = [](std::uint64_t seed, const char* name, int replica, std::uint64_t step) {
    Graph graph(seed);
    const std::string prefix = cat("tower", replica, "/");
    NameScope names(graph, prefix);
    ReplicaScope scope(graph, prefix, replica);
    return evaluate(random_uniform(graph, {8}, 0, 1, DType::kF64, name), {}, {.step = step});
  };
  const Tensor first = draw(1, "noise", 0, 0);
  EXPECT_EQ(draw(1, "noise", 0, 0), first);
  EXPECT_FALSE(draw(2, "noise", 0, 0) == first);
  EXPECT_FALSE(draw(1, "other", 0, 0) == first);
  EXPECT_FALSE(draw(1, "noise", 1, 0) == first);
  EXPECT_FALSE(draw(1, "noise", 0, 1) == first);
}

}  // namespace core_ops_test
}  // namespace belfry
