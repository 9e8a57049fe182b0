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
  const Builder gradient = [](Inputs x) { return x[0].graph().add(kGatherGrad, x).output(); };
  const TensorType ids_of{{2, 4}, DType::kI32}, of_table{{3, 5}};
  expect_refused(gradient, {{{2, 4, 6}}, ids_of, of_table},
                 "the gradient of rows is f32[2,4,6], but they are f32[2,4,5]");
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
