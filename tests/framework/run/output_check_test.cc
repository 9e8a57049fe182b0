#include "belfry/framework/run/output_check.h"

#include <cmath>
#include <limits>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/log.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace output_check_test {

class OutputCheckTest : public testing::Test {
 protected:
  // What a run of the sum of both logarithms finds.
  std::optional<BadOutput> origin(const Tensor& value, const Output& of) {
    OutputCheck check;
    CompiledStep& step = session.prepare({sum.node()}, {{x, value.shape(), 100}}, {.fuse = false});
    const Tensor feeds[] = {value};
    step.run(feeds, {.watch = &check});
    return check.origin_of({{of}});
  }

  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Output positive = relu(x), late = log(positive), early = log(x), sum = add(early, late);
  Session session{graph, {.shards_per_device = 2}};
};

const Tensor kGood({4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
const Tensor kBad({4, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, -7, 8});

TEST_F(OutputCheckTest, FindsNothingInFiniteValues) { EXPECT_FALSE(origin(kGood, sum)); }

TEST_F(OutputCheckTest, FindsTheFirstLaunchThatLeadsToTheTensor) {
  EXPECT_FALSE(origin(kBad, positive));
  const auto bad = origin(kBad, late);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->node, &late.node());
  EXPECT_EQ(bad->value.value, "-inf") << "though the other logarithm is nan";
  EXPECT_EQ(bad->row, 103);
  EXPECT_THAT(bad->storage, testing::IsEmpty());
  EXPECT_EQ(bad->device.str(), "/job:localhost/replica:0/task:0/device:CPU:0");
  const auto first = origin(kBad, sum);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->node == &late.node() || first->node == &early.node());
}

TEST_F(OutputCheckTest, NamesWhatWasNotFiniteBefore) {
  const Tensor nan({4, 2}, std::vector<float>{1, 2, 3, std::nanf(""), 5, 6, 7, 8});
  const auto bad = origin(nan, early);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->node, &early.node());
  EXPECT_EQ(bad->row, 101);
  EXPECT_THAT(bad->storage, testing::ElementsAre(&x.node()));
}

// A mask makes the first column infinite. What is NaN in the second one is to blame, and then its
// value, as long as the mask is on purpose.
TEST(OutputCheck, BlamesNoInfinityOnPurpose) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Output mask = constant(graph, Tensor({2}, std::vector<float>{-kInf, 0}));
  const Output masked = add(x, mask), same = reshape(masked, {kUnknownSize, 2});
  const Output bad = sub(same, add(log(x), mask));  // -inf - -inf, too
  Session session(graph);
  const auto origin = [&](const Tensor& value, const Output& of, bool on_purpose) {
    OutputCheck check;
    CompiledStep& step = session.prepare({bad.node()}, {{x, value.shape(), 0}}, {.fuse = false});
    const Tensor feeds[] = {value};
    step.run(feeds, {.watch = &check});
    return check.origin_of({{of}},
                           [&](const Node& node) { return on_purpose && &node == &mask.node(); });
  };
  const Tensor good({2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(origin(good, same, false)->node, &masked.node());
  EXPECT_EQ(origin(good, bad, true)->node, &bad.node()) << "nan is not on purpose";
  EXPECT_EQ(origin(good, same, true)->node, &masked.node()) << "there is nothing else";
  const auto of_log = origin(Tensor({2, 2}, std::vector<float>{1, 2, 3, -4}), bad, true);
  ASSERT_TRUE(of_log);
  EXPECT_EQ(of_log->node->op().name, std::string("Log"));
  EXPECT_EQ(of_log->row, 1);
}

// GPUs share the sum. Its memory holds NaN at first.
TEST(OutputCheck, LooksAtTheShareOfEachGpu) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  constexpr std::int64_t kElements = 100'000;
  Graph graph;
  std::vector<Output> x, tensors;
  std::vector<Fetch> fetches;
  for (int g = 0; g < 2; ++g) {
    const DeviceScope on(graph, gpu(g));
    x.push_back(placeholder(graph, cat("x", g), DType::kF32, {kElements}));
    tensors.push_back(relu(x.back()));
  }
  const std::vector<Output> sums = all_reduce(tensors);
  for (int g = 0; g < 2; ++g) {
    const DeviceScope on(graph, gpu(g));
    fetches.emplace_back(add(log(tensors[at(g)]), sums[at(g)]).node());
  }
  Session session(graph, on_gpus({2, 1}));
  const auto origin = [&](float value) {
    OutputCheck check;
    const std::vector<FeedType> types{{x[0], {kElements}}, {x[1], {kElements}}};
    CompiledStep& step = session.prepare(fetches, types, {.fuse = false});
    std::vector<float> values(kElements, 1);
    values[70'000] = value;
    const Tensor fed({kElements}, values);
    const Tensor feeds[] = {fed, fed};
    step.run(feeds, {.watch = &check});
    return check.origin_of({{sums[0]}});
  };
  EXPECT_FALSE(origin(1));
  const auto bad = origin(3e38f);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->node, &sums[0].node());
  EXPECT_EQ(bad->value.element, 70'000);
}

// The next run of the step looks at nothing.
TEST_F(OutputCheckTest, EndsWithItsRun) {
  OutputCheck check;
  CompiledStep& step = session.prepare({sum.node()}, {{x, kBad.shape(), 100}}, {.fuse = false});
  const Tensor good[] = {kGood}, bad[] = {kBad};
  step.run(good, {.watch = &check});
  step.run(bad);
  EXPECT_FALSE(check.origin_of({{sum}}));
}

}  // namespace output_check_test
}  // namespace belfry
