// Rows of logits in 16 bits are padded on GPUs, from one product to the next.
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/output_check.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_pad_rows_test {

// The head of a language model: x [2, 3, 16] and embeddings w [classes, 16] -> loss, gradients.
struct Head {
  explicit Head(const char* device = "GPU", DType dtype = DType::kBF16, std::int64_t classes = 65) {
    const DeviceScope scope(graph, DeviceSpec::local(device, 0));
    x = placeholder(graph, "x", dtype, {2, 3, 16});
    w = placeholder(graph, "w", dtype, {classes, 16});
    logits = matmul(x, w, {.transpose_b = true});
    const Output wide = cast(reshape(logits, {6, classes}), DType::kF32);
    const Output labels = constant(graph, Tensor({6}, std::vector<std::int32_t>{0, 3, 1, 1, 2, 3}));
    correct = top_k_accuracy(wide, labels, 1);
    loss = reduce_mean(sparse_softmax_cross_entropy(wide, labels, {.ignored = 2}));
    const Output one = constant(graph, Tensor(1.0F));
    const std::vector<Output> grads = gradients(loss, {x, w}, {.initial = {one}});
    dx = grads[0];
    dw = grads[1];
  }
  std::vector<Fetch> fetches() const { return {loss, correct, dx, dw}; }
  std::vector<FeedType> feeds() const { return {{x, x.shape()}, {w, w.shape()}}; }
  std::vector<Tensor> values() const {
    std::vector<Tensor> all;
    for (const Output& of : {x, w}) {
      Tensor wide(of.shape(), DType::kF32);
      int next = 0;
      for (float& value : wide.mutable_data<float>())
        value = static_cast<float>(next++ * 7 % 24) / 8 - 1;
      all.push_back(test::with_dtype(wide, of.dtype()));
    }
    return all;
  }

  Graph graph;
  Output x, w, logits, correct, loss, dx, dw;
};

const SessionOptions kOneGpu{.device_count = {{"GPU", 1}}, .threads = 1};

// The pitches of a plan, by op.
std::multimap<std::string, std::int64_t> pitches(const Plan& plan) {
  std::multimap<std::string, std::int64_t> all;
  for (const auto& [value, pitch] : plan.pitches)
    all.emplace(plan.node(value.node).op->name, pitch);
  return all;
}

std::multimap<std::string, std::int64_t> pitches(const Graph& graph,
                                                 const std::vector<Fetch>& fetches,
                                                 const std::vector<FeedType>& feeds) {
  Session session(graph, kOneGpu);
  return pitches(*session.prepare(fetches, feeds).plan());
}

TEST(PadRows, GivesLogitsAndTheirGradientWholePacks) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Head head;
  Session session(head.graph, kOneGpu);
  const auto plan = session.prepare(head.fetches(), head.feeds()).plan();
  const auto padded = pitches(*plan);
  EXPECT_EQ(padded.count("MatMul"), 1u);
  EXPECT_EQ(padded.count("CrossEntropyWithGradient"), 1u);
  EXPECT_EQ(padded.size() - padded.count("Reshape"), 2u);
  for (const auto& [op, pitch] : padded) EXPECT_EQ(pitch, 72) << op;
  for (const NodeIndex n : plan->nodes.indices()) {
    const PlanNode& node = plan->node(n);
    if (node.op != &kCrossEntropyWithGradient) continue;
    EXPECT_EQ(plan->buffer({n, 0}), plan->buffer(node.inputs[0]));
    EXPECT_EQ(plan->buffers[plan->buffer({n, 0})].bytes, 6 * 72 * 2);
    EXPECT_EQ(plan->pitches_of(n), (std::vector<std::int64_t>{72, 0, 0, 72, 0, 0}));
  }
}

TEST(PadRows, ChangesNoBit) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<Tensor> results[2];
    for (const bool pads : {false, true}) {
      test::StandInGpus gpus(1);
      if (!pads) gpus.refuse_pitches();
      const test::UseGpus use(gpus);
      const Head head("GPU", dtype);
      Session session(head.graph, kOneGpu);
      CompiledStep& step = session.prepare(head.fetches(), head.feeds());
      EXPECT_EQ(step.plan()->pitches.empty(), !pads);
      for (int run = 0; run < 3; ++run) step.run(head.values());
      for (std::size_t i = 0; i < 4; ++i) {
        results[pads].push_back(step.fetched(i));
        results[pads].back().mutable_raw();  // gets memory of its own
      }
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(results[0][i] == results[1][i]) << i;
  }
}

// The stand-in's memory is NaN before it is written.
TEST(PadRows, HidesPaddingFromThoseWhoLookAtOutputs) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Head head;
  Session session(head.graph, kOneGpu);
  OutputCheck check;
  session.prepare(head.fetches(), head.feeds()).run(head.values(), {.watch = &check});
  const Output tensors[] = {head.loss, head.dx, head.dw, head.logits};
  EXPECT_FALSE(check.origin_of(tensors, {}));
}

TEST(PadRows, LeavesOtherTensors) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto of = [](const Head& head) {
    return pitches(head.graph, head.fetches(), head.feeds());
  };
  EXPECT_TRUE(of(Head("CPU")).empty());
  EXPECT_TRUE(of(Head("GPU", DType::kF32)).empty());
  EXPECT_TRUE(of(Head("GPU", DType::kBF16, 64)).empty()) << "whole packs";
  EXPECT_TRUE(of(Head("GPU", DType::kBF16, 17)).empty()) << "few columns";
  EXPECT_FALSE(of(Head("GPU", DType::kBF16, 57)).empty());
}

TEST(PadRows, LeavesTensorsThatOthersRead) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Head fetched;
  EXPECT_TRUE(
      pitches(fetched.graph, {fetched.loss, fetched.dx, fetched.logits}, fetched.feeds()).empty());
  Head read;
  Output other;
  {
    const DeviceScope scope(read.graph, DeviceSpec::local("GPU", 0));
    other = reduce_sum(relu(read.logits));
  }
  EXPECT_TRUE(pitches(read.graph, {read.loss, read.dx, other}, read.feeds()).empty());
}

// Rows of other lengths do not begin where padded ones do, though both have a pitch of 72.
TEST(PadRows, FollowsOnlyAliasesThatKeepRows) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Graph graph;
  const DeviceScope scope(graph, DeviceSpec::local("GPU", 0));
  const Output x = placeholder(graph, "x", DType::kBF16, {66, 8});
  const Output w = placeholder(graph, "w", DType::kBF16, {8, 65});
  const Output y = matmul(x, w);
  const Output square = matmul(reshape(y, {65, 66}), y),
               kept = matmul(reshape(y, {2, 33, 65}), w, {.transpose_b = true});
  const std::vector<FeedType> feeds{{x, x.shape()}, {w, w.shape()}};
  EXPECT_TRUE(pitches(graph, {square}, feeds).empty());
  EXPECT_GE(pitches(graph, {kept}, feeds).size(), 2u);
}

TEST(PadRows, IgnoresAliasesOfScalars) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  Head head;
  Output one;
  {
    const DeviceScope scope(head.graph, DeviceSpec::local("GPU", 0));
    one = reshape(head.loss, {1});
  }
  EXPECT_FALSE(pitches(head.graph, {one, head.dx}, head.feeds()).empty());
}

}  // namespace passes_pad_rows_test
}  // namespace belfry
