// Attention whose queries, keys and values are columns of one tensor.
#include <functional>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/split.h"
#include "belfry/tests/framework/passes/fused_plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_fuse_attention_test {

using Parts = std::vector<Output>;

// x [3, 5, 24] has q, k and v of two heads.
struct Net {
  explicit Net(
      const char* device, DType dtype = DType::kF32,
      const std::function<Parts(Parts)>& change = [](Parts parts) { return parts; }) {
    const DeviceScope scope(graph, DeviceSpec::local(device, 0));
    x = placeholder(graph, "x", dtype, {3, 5, 24});
    parts = split(x, 3, 2);
    const Parts qkv = change(parts);
    y = causal_attention(qkv[0], qkv[1], qkv[2], {.heads = 2});
    wanted.insert(wanted.end(), parts.begin(), parts.end());
    wanted.insert(wanted.begin(), x);
    grads = gradients(y, wanted, {.initial = {y * y}});
  }
  std::multiset<std::string> ops(const std::vector<Fetch>& fetches) const {
    Session session(graph, {.device_count = {{"GPU", 1}}, .threads = 1});
    return test::ops_of(*session.prepare(fetches, std::vector{FeedType{x, x.shape()}}).plan());
  }

  Graph graph;
  Output x, y;
  Parts parts, wanted, grads;  // grads: of x, and of its parts
};

TEST(FuseAttention, ReadsPartsOfOneTensorOnGpusAlone) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const char* device : {"CPU", "GPU"}) {
    const bool gpu = std::string(device) == "GPU";
    const Net net(device);
    const auto ops = net.ops({net.y, net.grads[0]});
    for (const char* op : {"JoinedAttention", "JoinedAttentionGrad"})
      EXPECT_EQ(ops.count(op), gpu ? 1u : 0u) << device << " " << op;
    for (const char* op : {"Split", "Concat", "Attention", "AttentionGrad"})
      EXPECT_EQ(ops.count(op), gpu ? 0u : 1u) << device << " " << op;
  }
}

TEST(FuseAttention, KeepsGradientsApartThatOthersRead) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Net net("GPU");
  const auto ops = net.ops({net.y, net.grads[0], net.grads[2]});
  EXPECT_EQ(ops.count("JoinedAttention"), 1u);
  EXPECT_EQ(ops.count("AttentionGrad"), 1u);
  EXPECT_EQ(ops.count("Split"), 1u);
  EXPECT_EQ(ops.count("Concat"), 1u);
}

TEST(FuseAttention, LeavesPartsThatAreChangedOrInAnotherOrder) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const std::function<Parts(Parts)> changes[] = {[](Parts parts) {
                                                   return Parts{parts[0] * 2, parts[1], parts[2]};
                                                 },
                                                 [](Parts parts) {
                                                   return Parts{parts[1], parts[0], parts[2]};
                                                 },
                                                 [](Parts parts) {
                                                   return Parts{parts[0], parts[1], parts[1]};
                                                 }};
  for (const auto& change : changes) {
    const Net net("GPU", DType::kF32, change);
    const auto ops = net.ops({net.y, net.grads[0]});
    EXPECT_EQ(ops.count("Attention"), 1u);
    EXPECT_EQ(ops.count("AttentionGrad"), 1u);
  }
}

TEST(FuseAttention, ChangesNoBitAndTakesNoMoreMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Net net("GPU", dtype);
    test::expect_same_when_fused(net.graph, net.x, {net.y, net.grads[0]},
                                 {.device_count = {{"GPU", 1}}, .threads = 1});
  }
}

}  // namespace passes_fuse_attention_test
}  // namespace belfry
