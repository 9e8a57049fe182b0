// A loss that is computed with its gradient and accuracy.
#include <functional>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_fuse_loss_test {

Output labels_in(Graph& graph) {
  return constant(graph, Tensor({6}, std::vector<std::int32_t>{0, 3, 1, 1, 2, 3}));
}

// The gradient of a constant, as trainers take it: it does not depend on the loss.
Output gradient_of(Output loss, Output x) {
  const Output one = cast(constant(loss.graph(), Tensor(1.0F)), loss.dtype());
  return gradients(loss, {x}, {.initial = {one}})[0];
}

// Logits [6, 4] of `stored`, which become f32. The gradient is that of `total` of the losses.
struct Net {
  explicit Net(
      const char* device, DType stored = DType::kBF16, int k = 1,
      const std::function<Output(Output)>& total = [](Output losses) {
        return reduce_mean(losses);
      }) {
    const DeviceScope scope(graph, DeviceSpec::local(device, 0));
    x = placeholder(graph, "x", stored, {6, 4});
    const Output logits = x + x * 0.5;
    const Output wide = cast(logits, DType::kF32);
    const Output labels = labels_in(graph);
    correct = top_k_accuracy(wide, labels, k);
    loss = total(sparse_softmax_cross_entropy(wide, labels, {.smoothing = 0.1, .ignored = 2}));
    dx = gradient_of(loss, x);
  }
  std::multiset<std::string> ops(const std::vector<Fetch>& fetches) const {
    Session session(graph, {.device_count = {{"GPU", 1}}, .threads = 1});
    return test::ops_of(*session.prepare(fetches, std::vector{FeedType{x, x.shape()}}).plan());
  }

  Graph graph;
  Output x, correct, loss, dx;
};

TEST(FuseLoss, TakesGradientAndAccuracyOnGpusAlone) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const DType stored : {DType::kBF16, DType::kF32})
    for (const char* device : {"CPU", "GPU"}) {
      const bool gpu = std::string(device) == "GPU";
      const Net net(device, stored);
      const auto ops = net.ops({net.loss, net.correct, net.dx});
      EXPECT_EQ(ops.count("CrossEntropyWithGradient"), gpu ? 1u : 0u) << device;
      for (const char* op : {"SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad",
                             "Accuracy", "BroadcastAlong"})
        EXPECT_EQ(ops.count(op), gpu ? 0u : 1u) << device << " " << op;
      EXPECT_EQ(ops.count("Cast"), gpu || stored == DType::kF32 ? 0u : 2u) << device;
    }
}

TEST(FuseLoss, WritesTheGradientOverTheLogits) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Net net("GPU");
  Session session(net.graph, {.device_count = {{"GPU", 1}}, .threads = 1});
  const auto plan = session
                        .prepare(std::vector<Fetch>{net.loss, net.dx},
                                 std::vector{FeedType{net.x, net.x.shape()}})
                        .plan();
  const auto offset = [&](Value value) { return plan->buffers[plan->buffer(value)].offset; };
  int found = 0;
  for (const NodeIndex n : plan->nodes.indices()) {
    const PlanNode& node = plan->node(n);
    if (node.op != &kCrossEntropyWithGradient) continue;
    ++found;
    EXPECT_EQ(offset({n, 0}), offset(node.inputs[0]));
  }
  EXPECT_EQ(found, 1);
}

TEST(FuseLoss, LeavesAccuracyOfSeveralClasses) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Net net("GPU", DType::kBF16, 2);
  const auto ops = net.ops({net.loss, net.correct, net.dx});
  EXPECT_EQ(ops.count("CrossEntropyWithGradient"), 1u);
  EXPECT_EQ(ops.count("Accuracy"), 1u);
  EXPECT_EQ(ops.count("Cast"), 0u) << "it reads logits as they are stored";
}

// Only the gradient of a mean is the same for all rows, and one that depends on the loss cannot be
// computed with it. Without a gradient there is nothing to take.
TEST(FuseLoss, LeavesLossesWithOtherGradients) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const std::function<Output(Output)> totals[] = {
      [](Output losses) { return reduce_sum(losses); },
      [](Output losses) { return reduce_mean(losses * losses); },
      [](Output losses) {
        const Output mean = reduce_mean(losses);
        return mean * mean;
      }};
  for (const auto& total : totals) {
    const Net net("GPU", DType::kBF16, 1, total);
    const auto ops = net.ops({net.loss, net.correct, net.dx});
    EXPECT_EQ(ops.count("SparseSoftmaxCrossEntropy"), 1u);
    EXPECT_EQ(ops.count("SparseSoftmaxCrossEntropyGrad"), 1u);
    EXPECT_EQ(ops.count("Accuracy"), 1u);
  }
  const Net net("GPU");
  EXPECT_EQ(net.ops({net.loss, net.correct}).count("CrossEntropyWithGradient"), 0u);
}

// In 16 bits the gradient of each loss is rounded before it is used.
TEST(FuseLoss, LeavesLossesOf16Bits) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  const DeviceScope scope(graph, DeviceSpec::local("GPU", 0));
  const Output x = placeholder(graph, "x", DType::kBF16, {6, 4});
  const Output loss = reduce_mean(sparse_softmax_cross_entropy(x * 0.5, labels_in(graph)));
  const Output dx = gradient_of(loss, x);
  test::expect_same_when_fused(graph, x, {loss, dx}, {.device_count = {{"GPU", 1}}, .threads = 1});
}

// Each gradient is made from the other loss: no launch could be the first.
TEST(FuseLoss, LeavesLossesThatAreMultiplied) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  const DeviceScope scope(graph, DeviceSpec::local("GPU", 0));
  const Output x = placeholder(graph, "x", DType::kF32, {6, 4});
  const Output labels = labels_in(graph);
  const auto mean_of = [&](const Output& logits) {
    return reduce_mean(sparse_softmax_cross_entropy(logits, labels));
  };
  const Output dx = gradient_of(mean_of(x * 0.5) * mean_of(x * 0.25), x);
  Session session(graph, {.device_count = {{"GPU", 1}}, .threads = 1});
  const auto ops = test::ops_of(
      *session.prepare(std::vector<Fetch>{dx}, std::vector{FeedType{x, x.shape()}}).plan());
  EXPECT_EQ(ops.count("CrossEntropyWithGradient"), 0u);
  EXPECT_EQ(ops.count("SparseSoftmaxCrossEntropyGrad"), 2u);
}

TEST(FuseLoss, ChangesNoBitAndTakesNoMoreMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const DType stored : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Net net("GPU", stored);
    test::expect_same_when_fused(net.graph, net.x, {net.loss, net.correct, net.dx},
                                 {.device_count = {{"GPU", 1}}, .threads = 1});
  }
}

}  // namespace passes_fuse_loss_test
}  // namespace belfry
