#include "belfry/ops/gather.h"

#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
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

// As in text, where one id has many of the rows.
TEST(Gather, AddsManyRowsOfOneIdInOrder) {
  std::vector<std::int32_t> most(150, 2);
  for (std::size_t i = 0; i < most.size(); i += 7) most[i] = static_cast<std::int32_t>(i % 5);
  check_op({.build = gathered, .inputs = {random_values({5, 3}), ids({150}, std::move(most))}});
}

Builder gathered_along(GatherOptions options) {
  return [options](Inputs x) { return gather(x[0], x[1], options); };
}

TEST(Gather, TakesColumns) {
  EXPECT_EQ(compute(gathered_along({.axis = 1}), {table(), ids({3}, {1, 0, 1})}),
            Tensor({3, 3}, std::vector<float>{2, 1, 2, 4, 3, 4, 6, 5, 6}));
  EXPECT_EQ(compute(gathered_along({.axis = -1}), {table(), ids({}, {1})}),
            Tensor({3}, std::vector<float>{2, 4, 6}));
}

// Each sample has its own ids.
TEST(Gather, TakesOtherRowsOfEachSample) {
  const Tensor x({2, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compute(gathered_along({.axis = 1, .batch_dims = 1}), {x, ids({2, 2}, {2, 0, 1, 1})}),
            Tensor({2, 2, 1}, std::vector<float>{3, 1, 5, 5}));
  EXPECT_EQ(compute(gathered_along({.axis = 2, .batch_dims = 1}),
                    {Tensor({2, 1, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}), ids({2}, {2, 0})}),
            Tensor({2, 1}, std::vector<float>{3, 4}));
}

TEST(Gather, KeepsItsContractAlongAllAxes) {
  const Tensor x = random_values({3, 4, 5}), one = ids({4}, {3, 0, 3, 2});
  for (const int axis : {0, 1, 2, -1}) {
    const Tensor at = axis == 0 ? ids({4}, {2, 0, 2, 1}) : one;
    check_op({.build = gathered_along({.axis = axis}), .inputs = {x, at}});
  }
  check_op({.build = gathered_along({.axis = 1}), .inputs = {x, ids({}, {2})}});
  check_op({.build = gathered_along({.axis = 2}), .inputs = {x, ids({2, 2}, {0, 4, 4, 1})}});
}

TEST(Gather, KeepsItsContractWithIdsForEachSample) {
  const Tensor x = random_values({3, 4, 5}), two = ids({3, 2}, {3, 0, 2, 2, 0, 1});
  for (const int axis : {1, 2})
    check_op({.build = gathered_along({.axis = axis, .batch_dims = 1}), .inputs = {x, two}});
  check_op(
      {.build = gathered_along({.axis = 1, .batch_dims = 1}), .inputs = {x, ids({3}, {3, 0, 1})}});
  check_op({.build = gathered_along({.axis = 2, .batch_dims = 2}),
            .inputs = {x, ids({3, 4, 1}, {0, 1, 2, 3, 4, 3, 2, 1, 0, 1, 2, 3})}});
}

TEST(Gather, RefusesWrongAxesAndBatchDimensions) {
  const TensorType of_ids{{3, 4}, DType::kI32};
  expect_refused(gathered_along({.axis = 3}), {{{3, 4, 5}}, of_ids}, "there is no axis 3");
  expect_refused(
      gathered_along({.axis = 1, .batch_dims = 2}), {{{3, 4, 5}}, of_ids},
      "batch_dims is 2, but must be from 0 to the axis, 1, and to the rank of the ids, 2");
  expect_refused(gathered_along({.axis = 1, .batch_dims = 1}), {{{2, 4, 5}}, of_ids},
                 "dimension 0 of [2,4,5] and of the ids [3,4] must be the same");
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

TEST(GatherGrad, AnIdOutsideTheTableIsAnErrorWithTheOpAndTheId) {
  const Builder gradient = [](Inputs x) {
    return gradients(gather(x[0], x[1]), {x[0]}, {.initial = {x[2]}})[0];
  };
  for (const std::int32_t id : {3, -1}) try {
      compute(gradient, {table(), ids({3}, {0, id, 2}), random_values({3, 2})});
      FAIL() << "no error";
    } catch (const InvalidArgument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("Gather_grad/GatherGrad' (built at"), std::string::npos) << text;
      EXPECT_NE(text.find(cat("id ", id, " is not in [0, 3)")), std::string::npos) << text;
    }
}

TEST(Gather, RefusesFloatingIds) {
  expect_refused(gathered, {{{3, 2}}, {{4}, DType::kF32}}, "the ids are f32");
  expect_refused(gathered, {{Shape{}}, {{4}, DType::kI32}}, "the table is a scalar");
}

TEST(GatherGrad, RefusesGradientsThatAreNotOfTheRows) {
  const Builder gradient = [](Inputs x) { return gather_grad(x[0], x[1], x[2]); };
  const TensorType ids_of{{2, 4}, DType::kI32}, of_table{{3, 5}};
  expect_refused(gradient, {{{2, 4, 6}}, ids_of, of_table},
                 "what is added to rows is f32[2,4,6], but they are f32[2,4,5]");
  expect_refused(gradient, {{{2, 4, 5}, DType::kF64}, ids_of, of_table}, "is f64[2,4,5]");
  expect_refused(gradient, {{{2, 4, 5}}, {{2, 4}}, of_table}, "the ids are f32");
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

// The ids are the samples of a batch, so that each shard has some of them.
TEST(GatherGrad, KeepsItsContractForABatchOfIds) {
  const Builder gradient = [](Inputs x) {
    return gradients(gather(x[1], x[0]), {x[1]}, {.initial = {x[2]}})[0];
  };
  for (const Shape& of_sample : {Shape{}, Shape{3}}) {
    std::vector<std::int64_t> dims = of_sample.dims();
    dims.insert(dims.begin(), 6);
    Tensor batch(Shape(dims), DType::kI32);
    for (std::int32_t i = 0; std::int32_t & id : batch.mutable_data<std::int32_t>())
      id = i++ * 3 % 5;
    dims.push_back(33);
    check_op({.build = gradient,
              .inputs = {batch, random_values({5, 33}), random_values(Shape(dims), -1, 1, 2)},
              .nan = false});
  }
}

TEST(GatherGrad, OfABatchInShardsIsTheirSum) {
  Graph graph;
  const Output x = placeholder(graph, "ids", DType::kI32, {kUnknownSize, 2});
  const Output rows = constant(graph, table());
  const Output dtable = gradients(gather(rows, x), {rows})[0];
  Session session(graph, {.shards_per_device = 4, .threads = 1});
  CompiledStep& step = session.prepare({dtable}, {FeedType{x, {4, 2}, 0}});
  std::map<const Op*, int> runs;
  for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
  EXPECT_EQ(runs.at(&kGatherGrad), 4);
  EXPECT_FALSE(runs.contains(&kGatherShards));
  step.run(std::vector{ids({4, 2}, {0, 0, 2, 0, 1, 2, 0, 0})});
  EXPECT_EQ(step.fetched(0), Tensor({3, 2}, std::vector<float>{5, 5, 1, 1, 2, 2}));
}

}  // namespace gather_test
}  // namespace belfry
