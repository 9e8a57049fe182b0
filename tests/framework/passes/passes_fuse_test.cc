// Nodes that pass `fuse` joins, and nodes that it leaves alone.
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_fuse_test {

// Two layers with batch norm, the second with a shortcut around it, and their gradients.
struct Net {
  explicit Net(DType dtype = DType::kF32) {
    x = placeholder(graph, "x", dtype, {6, 4});
    const DType wide = dtype == DType::kF64 ? dtype : DType::kF32;
    gamma = fill(graph, {4}, 2, wide);
    beta = fill(graph, {4}, 0.5, wide);
    first = relu(normalised(x));
    sum = normalised(first * first) + first;
    y = relu(sum);
    dx = gradients(y, std::vector{x, gamma}, {.initial = {y * y}});
  }
  Output normalised(Output in) {
    return cast(batch_norm_train(cast(in, gamma.dtype()), gamma, beta).y, in.dtype());
  }
  Graph graph;
  Output x, gamma, beta, first, sum, y;
  std::vector<Output> dx;
};

TEST(Fuse, BatchNormTakesTheSumAndReluBehindItAndTheirGradientBeforeIt) {
  const Net net;
  Session session(net.graph, {.threads = 1});
  const auto ops =
      test::ops_of(*test::prepared(session, {net.y, net.dx[0], net.dx[1]}, net.x).plan());
  EXPECT_EQ(ops.count("FusedBatchNormTrainRelu"), 2u);
  EXPECT_EQ(ops.count("FusedBatchNormTrainGrad"), 2u);
  for (const char* gone : {"Relu", "ReluGrad", "BatchNormTrain", "BatchNormTrainGrad", "Add"})
    EXPECT_EQ(ops.count(gone), 0u) << gone;
}

TEST(Fuse, OfShardsTakesWhatRunsPerShard) {
  const Net net;
  Session session(net.graph, {.shards_per_device = 3, .threads = 1});
  const auto ops =
      test::ops_of(*test::prepared(session, {net.y, net.dx[0], net.dx[1]}, net.x).plan());
  EXPECT_EQ(ops.count("FusedBatchNormInferenceRelu"), 2u);
  EXPECT_EQ(ops.count("ReluBatchNormSums"), 2u);
  EXPECT_EQ(ops.count("BatchNormInputGrad"), 2u);
  EXPECT_EQ(ops.count("ReluGrad") + ops.count("Relu") + ops.count("BatchNormSums"), 0u);
}

TEST(Fuse, LeavesAPreActivationThatIsFetched) {
  const Net net;
  Session session(net.graph, {.threads = 1});
  const auto ops = test::ops_of(*test::prepared(session, {net.y, net.sum}, net.x).plan());
  EXPECT_EQ(ops.count("FusedBatchNormTrainRelu"), 1u);
  EXPECT_EQ(ops.count("FusedBatchNormTrain"), 1u);  // with the sum
  EXPECT_EQ(ops.count("Relu"), 1u);
}

TEST(Fuse, IsOffWithTheOptionAndWithReferenceKernels) {
  const Net net;
  for (const bool reference : {false, true}) {
    Session session(net.graph, {.fuse = reference, .reference_kernels = reference, .threads = 1});
    EXPECT_EQ(test::ops_of(*test::prepared(session, {net.y}, net.x).plan()).count("BatchNormTrain"),
              2u)
        << reference;
  }
}

// Fused, the read of gamma would wait for the write of `other`, which no other node does.
TEST(Fuse, LeavesWhatComesAfterAWrite) {
  Graph graph;
  const Variable other = variable(graph, "other", {2, 4});
  const Output gamma = fill(graph, {4}, 2, DType::kF32), x = fill(graph, {2, 4}, 3, DType::kF32);
  const Output written = assign(other, x).output();
  const Output y = relu(batch_norm_train(x, gamma, gamma).y + written);
  Session session(graph, {.threads = 1});
  const auto ops = test::ops_of(*session.prepare({y}).plan());
  EXPECT_EQ(ops.count("BatchNormTrain"), 1u);
  EXPECT_EQ(ops.count("Relu"), 1u);
}

TEST(Fuse, LeavesFactorsOf16Bits) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kBF16, {6, 4});
  const Output gamma = fill(graph, {4}, 2, DType::kBF16);
  const Output y = relu(batch_norm_train(x, gamma, gamma).y);
  const Output dx = gradients(y, {x}, {.initial = {x}})[0];
  for (const int shards : {1, 3})
    test::expect_same_when_fused(graph, x, {y, dx}, {.shards_per_device = shards, .threads = 1});
  Session session(graph, {.threads = 1});
  const auto ops = test::ops_of(*test::prepared(session, {y, dx}, x).plan());
  EXPECT_EQ(ops.count("BatchNormTrain"), 1u);
  EXPECT_EQ(ops.count("BatchNormTrainGrad"), 1u);
}

TEST(Fuse, TakesCastsOnGpusAlone) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const char* type : {"CPU", "GPU"}) {
    Graph graph;
    DeviceScope scope(graph, DeviceSpec::local(type, 0));
    const Output x = placeholder(graph, "x", DType::kBF16, {6, 4});
    const Output gamma = fill(graph, {4}, 2, DType::kF32);
    const Output y =
        relu(cast(batch_norm_train(cast(x, DType::kF32), gamma, gamma).y, DType::kBF16));
    Session session(graph, {.device_count = {{"GPU", 1}}, .threads = 1});
    const auto ops = test::ops_of(*session.prepare({y}, {FeedType{x, {6, 4}}}).plan());
    const bool gpu = std::string(type) == "GPU";
    EXPECT_EQ(ops.count("FusedBatchNormTrainRelu"), gpu ? 1u : 0u) << type;
    EXPECT_EQ(ops.count("Cast"), gpu ? 0u : 2u) << type;
  }
}

// With ReLU the gradient has the inputs dy, x, gamma, mean, variance and y, then perhaps a gradient
// to add to dy, and beta.
TEST(Fuse, GradientsOfBatchNormOnGpusTakeASumOfTwoAndBeta) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto inputs = [](const char* type, bool has_two_readers, bool keeps_sum) {
    Graph graph;
    DeviceScope scope(graph, DeviceSpec::local(type, 0));
    const Output x = placeholder(graph, "x", DType::kF32, {6, 4});
    const Output gamma = fill(graph, {4}, 2, DType::kF32);
    const Output y = relu(batch_norm_train(x, gamma, gamma).y);
    const Output loss = reduce_sum(has_two_readers ? relu(y) + y : relu(y));
    const std::vector<Output> dx = gradients(loss, std::vector{x, y});
    const std::vector<Fetch> fetched(dx.begin(), dx.begin() + (keeps_sum ? 2 : 1));
    Session session(graph, {.device_count = {{"GPU", 1}}, .threads = 1});
    const auto plan = session.prepare(fetched, std::vector{FeedType{x, {6, 4}}}).plan();
    for (const PlanNode& node : plan->nodes)
      if (node.op == &kFusedBatchNormTrainGrad) return node.inputs.size();
    return std::size_t{0};
  };
  EXPECT_EQ(inputs("CPU", true, false), 6u);
  EXPECT_EQ(inputs("GPU", false, false), 7u) << "beta";
  EXPECT_EQ(inputs("GPU", true, false), 8u) << "a gradient to add, and beta";
  EXPECT_EQ(inputs("GPU", true, true), 7u) << "the sum is fetched, too";
}

TEST(Fuse, ChangesNoBitAndTakesNoMoreMemory) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const int shards : {1, 3}) {
      const Net net(dtype);
      test::expect_same_when_fused(net.graph, net.x, {net.y, net.dx[0], net.dx[1]},
                                   {.shards_per_device = shards, .threads = 1});
    }
}

}  // namespace passes_fuse_test
}  // namespace belfry
