// Activations that pass `rematerialise` makes again for the backward pass, and when.
#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_rematerialise_test {

// Layers of batch norm and ReLU, with their gradients. Each layer reads the square of the one
// before. Layers from `shortcuts` on also add the one before.
struct Net {
  explicit Net(int layers, int shortcuts = 100, std::string_view device = "") {
    const DeviceScope scope(graph, device);
    x = placeholder(graph, "x", DType::kF32, {6, 4});
    const Output gamma = variable(graph, "gamma", {4}, {.initializer = init::constant(2)});
    const Output beta = variable(graph, "beta", {4}, {.initializer = init::constant(0.5)});
    Output y = x;
    for (int i = 0; i < layers; ++i) {
      const Output normal = batch_norm_train(y * y, gamma, beta).y;
      y = relu(i < shortcuts ? normal : normal + y);
    }
    fetches = {y};
    for (const Output gradient : gradients(y, std::vector{x, gamma}, {.initial = {y}}))
      fetches.emplace_back(gradient);
  }

  CompiledStep& prepare(Session& session) const {
    return session.prepare(fetches, std::vector{FeedType{x, x.shape(), 0}});
  }

  Graph graph;
  Output x;
  std::vector<Fetch> fetches;
};

std::vector<NodeIndex> rematerialised_in(const Plan& plan) {
  std::vector<NodeIndex> found;
  for (const NodeIndex n : plan.nodes.indices())
    if (plan.node(n).is_rematerialised()) found.push_back(n);
  return found;
}

std::int64_t arena_bytes(const Plan& plan) {
  return std::accumulate(plan.arena_bytes.begin(), plan.arena_bytes.end(), std::int64_t{0});
}

TEST(Rematerialise, GivesTheSameBitsInLessMemory) {
  for (const int shortcuts : {100, 2})
    for (const int shards : {1, 3}) {
      const Net net(6, shortcuts);
      Tensor x({6, 4}, DType::kF32);
      for (float i = 0; float& value : x.mutable_data<float>()) value = std::fmod(i += 7, 12) / 8;
      std::vector<Tensor> results[2];
      std::int64_t bytes[2];
      for (const bool on : {false, true}) {
        Session session(net.graph, {.shards_per_device = shards, .fuse = on, .threads = 1});
        CompiledStep& step = net.prepare(session);
        EXPECT_EQ(rematerialised_in(*step.plan()).empty(), !on);
        step.run(std::vector{x});
        for (std::size_t i = 0; i < net.fetches.size(); ++i)
          results[on].push_back(step.fetched(i)), results[on].back().mutable_raw();
        bytes[on] = arena_bytes(*step.plan());
      }
      for (std::size_t i = 0; i < net.fetches.size(); ++i)
        EXPECT_TRUE(results[0][i] == results[1][i]) << shards << " shards, fetch " << i;
      EXPECT_LT(bytes[1], bytes[0]) << shards << " shards";
    }
}

// Activations are made again from the last layer to the first, each just before the backward pass
// reads it.
TEST(Rematerialise, ComesJustBeforeItsFirstReader) {
  const Net net(5);
  Session session(net.graph, {.threads = 1});
  const Plan& plan = *net.prepare(session).plan();
  const std::vector<NodeIndex> rematerialised = rematerialised_in(plan);
  ASSERT_EQ(rematerialised.size(), 5u) << "what the gradient starts from is read there, too";
  for (const NodeIndex n : rematerialised) {
    const auto& next = plan.node(NodeIndex(n.value() + 1)).inputs;
    EXPECT_TRUE(std::ranges::any_of(next, [&](const Value& v) { return v.node == n; }))
        << plan.node(n).name();
  }
  for (std::size_t i = 1; i < rematerialised.size(); ++i)
    EXPECT_GT(plan.node(rematerialised[i - 1]).node->id(), plan.node(rematerialised[i]).node->id());
}

// Each of a row of sums would need the one before it.
TEST(Rematerialise, LeavesWhatIsMadeOfSomethingRematerialised) {
  const Net net(6, 1);
  Session session(net.graph, {.threads = 1});
  EXPECT_EQ(rematerialised_in(*net.prepare(session).plan()).size(), 3u);
}

TEST(Rematerialise, IsOffOnGpusAndWithReferenceKernels) {
  const Net net(3);
  Session session(net.graph, {.reference_kernels = true, .threads = 1});
  EXPECT_THAT(rematerialised_in(*net.prepare(session).plan()), testing::IsEmpty());
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const Net on_gpu(3, 100, "/gpu:0");
  Session gpu_session(on_gpu.graph, {.device_count = {{"CPU", 1}, {"GPU", 1}}, .threads = 1});
  EXPECT_THAT(rematerialised_in(*on_gpu.prepare(gpu_session).plan()), testing::IsEmpty());
}

// Without a backward pass nothing is kept for one.
TEST(Rematerialise, LeavesPredictionsAlone) {
  Net net(3);
  net.fetches.erase(net.fetches.begin() + 1, net.fetches.end());
  Session session(net.graph, {.threads = 1});
  EXPECT_THAT(rematerialised_in(*net.prepare(session).plan()), testing::IsEmpty());
}

}  // namespace passes_rematerialise_test
}  // namespace belfry
