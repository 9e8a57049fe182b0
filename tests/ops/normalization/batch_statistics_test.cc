#include "belfry/ops/normalization/batch_statistics.h"

#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace batch_statistics_test {

const Builder kBuild = [](Inputs x) {
  const Moments all = batch_statistics(x);
  return Built({all.mean, all.variance});
};

std::vector<double> result(std::size_t i, const std::vector<Tensor>& parts) {
  return doubles(compute([i](Inputs in) { return kBuild(in)[i]; }, parts));
}

TEST(BatchStatistics, AreThoseOfThePopulationOfAllParts) {
  const Tensor a({2, 1, 2}, std::vector<double>{1, 8, 3, 12}), b({1, 2}, std::vector<double>{8, 1});
  const Tensor none({0, 2}, DType::kF64);
  EXPECT_EQ(result(0, {a, none, b}), (std::vector<double>{4, 7}));
  EXPECT_EQ(result(1, {a, none, b}), (std::vector<double>{26. / 3, 62. / 3}));
}

TEST(BatchStatistics, KeepTheirContract) {
  for (const std::size_t parts : {1, 3}) {
    std::vector<Tensor> inputs;
    for (unsigned k = 0; k < parts; ++k)
      inputs.push_back(random_values({2 + k, 3, 5}, -1, 2, k + 1));
    check_op({.build = kBuild, .inputs = inputs, .f32 = 2e-6, .f64 = 1e-12, .nan = false});
  }
}

// Normalises parts of unequal size by their common moments.
TEST(BatchStatistics, OfPartsGiveTheBatchNormOfTheWholeAndItsGradients) {
  const Builder in_parts = [](Inputs x) {
    const std::int64_t begins[] = {0, 1, 5, 7};
    std::vector<Output> parts, result;
    for (std::size_t k = 0; k < 3; ++k)
      parts.push_back(slice(x[0], {begins[k], 0}, {begins[k + 1] - begins[k], 3}));
    const Moments all = batch_statistics(parts);
    for (const Output& part : parts)
      result.push_back(batch_norm_inference(part, x[1], x[2], all.mean, all.variance));
    return Built(result);
  };
  const std::vector<Tensor> inputs = {to(random_values({7, 3}), DType::kF64),
                                      to(random_values({3}, 0.5, 2, 2), DType::kF64),
                                      to(random_values({3}, -1, 1, 3), DType::kF64)};
  const std::vector<double> whole =
      doubles(compute([](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; }, inputs));
  std::vector<double> joined;
  for (std::size_t k = 0; k < 3; ++k)
    for (const double value : doubles(compute([&](Inputs x) { return in_parts(x)[k]; }, inputs)))
      joined.push_back(value);
  ASSERT_EQ(joined.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(joined[i], whole[i], 1e-13);
  check_op({.build = in_parts,
            .inputs = {random_values({7, 3}), random_values({3}, 0.5, 2, 2),
                       random_values({3}, -1, 1, 3)},
            .f32 = 4e-6,
            .f64 = 1e-12,
            .nan = false,
            .unknown = false});
}

// The parts of two devices and their shards are leaves of one tree.
TEST(BatchStatistics, CombineTheMomentsOfEveryShardOnce) {
  Graph graph;
  std::vector<Output> parts;
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    const DeviceScope on(graph, DeviceSpec(device));
    parts.push_back(placeholder(graph, "x", DType::kF32, {kUnknownSize, 3}));
  }
  const Moments all = batch_statistics(parts);
  const std::vector<Output> grads = gradients(all.variance, parts);
  Session session(graph, {.device_count = {{"CPU", 2}}, .shards_per_device = 4});
  CompiledStep& step =
      session.prepare({all.mean, grads[0].node(), grads[1].node()},
                      {FeedType{parts[0], {8, 3}, 0}, FeedType{parts[1], {8, 3}, 8}});
  std::map<const Op*, int> runs;
  std::vector<int> devices;
  for (const PlanNode& node : step.plan()->nodes) {
    runs[node.op] += step.plan()->runs(node);
    if (node.op == &kBatchStatisticsGrad) devices.push_back(node.device());
  }
  EXPECT_EQ(runs[&kBatchMoments], 8);
  EXPECT_EQ(runs[&kCombineMoments], 1);
  EXPECT_EQ(runs[&kBatchStatisticsGrad], 8);
  EXPECT_FALSE(runs.contains(&kBatchStatistics));
  EXPECT_EQ(devices, (std::vector{0, 1}));  // beside the parts
}

TEST(BatchStatistics, RefusePartsOfOtherChannels) {
  expect_refused(kBuild, {{{8, 3}}, {{8, 4}}}, "parts 0 and 1 have 3 and 4 channels");
  expect_refused(kBuild, {{{8}}}, "needs images or rows");
}

}  // namespace batch_statistics_test
}  // namespace belfry
