// The bodies of fused updates, as passes and kernels read them.
#include "belfry/framework/plan/fused_update.h"

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/tests/framework/run/replicas_test_support.h"

namespace belfry {
namespace fused_update_test {

using Source = FusedUpdate::Source;
using testing::ElementsAre;

constexpr int kInput = Source::kInput;

// An all-reduce of two towers, and the momentum update of each tower's variables w and m.
class FusedUpdateTest : public ::testing::Test {
 protected:
  FusedUpdateTest() {
    PlanContext context = plan_context(devices_, made_.graph);
    context.options.share_replicas = false;
    const Fetch step(*made_.step);
    plan_ = compile({&step, 1}, made_.feed_types(), context);
  }

  const PlanNode& node() const { return plan_.node(planned(plan_, kFusedUpdate)); }
  const FusedUpdate& fused_update() const { return *node().fused_update(); }

  Replicas made_{2};
  std::vector<std::unique_ptr<Device>> devices_ = cpu_devices(2);
  Plan plan_;
};

TEST_F(FusedUpdateTest, MembersTakeInputsOfTheNodeAndOutputsOfEarlierMembers) {
  ASSERT_EQ(fused_update().body.size(), 3u);
  const FusedUpdate::Member &sum = fused_update().body[0], &second = fused_update().body[2];
  EXPECT_EQ(sum.op, &kAllReduce);
  EXPECT_EQ(sum.node, &made_.means[0].node());
  EXPECT_THAT(sum.inputs, ElementsAre(Source{kInput, 4}, Source{kInput, 5}));
  EXPECT_THAT(sum.devices, ElementsAre(0, 1));
  EXPECT_EQ(second.op, &kMomentumUpdate);
  EXPECT_EQ(second.node, made_.updates[1]);
  EXPECT_THAT(second.inputs,
              ElementsAre(Source{kInput, 2}, Source{kInput, 3}, Source{0, 1}, Source{kInput, 7}));
  EXPECT_THAT(second.devices, ElementsAre(1, 1));
}

TEST_F(FusedUpdateTest, OutputsOfTheNodeAreThoseOfItsUpdates) {
  EXPECT_THAT(fused_update().outputs,
              ElementsAre(Source{1, 0}, Source{1, 1}, Source{2, 0}, Source{2, 1}));
  EXPECT_EQ(node().writes(), 4);
  EXPECT_EQ(plan_.PlanGraph::name({planned(plan_, kFusedUpdate), 3}),
            made_.updates[1]->output(1).name());
}

TEST_F(FusedUpdateTest, ReadersAreByInputOfTheNode) {
  const std::vector<FusedReader> readers = readers_of(fused_update());
  ASSERT_EQ(readers.size(), node().inputs.size());
  const auto expect = [&](std::size_t input, std::size_t member, std::size_t of_member) {
    EXPECT_EQ(readers[input].member, &fused_update().body[member]) << input;
    EXPECT_EQ(readers[input].input, of_member) << input;
  };
  expect(0, 1, 0);
  expect(3, 2, 1);
  expect(5, 0, 1);
  expect(7, 2, 3);
}

TEST_F(FusedUpdateTest, TheCollectiveInABodyReadsTheInputsOfTheNode) {
  EXPECT_EQ(node().participants(), 2);
  const auto collective = collective_of(node());
  ASSERT_TRUE(collective);
  EXPECT_EQ(collective->node, &made_.means[0].node());
  EXPECT_THAT(collective->inputs, ElementsAre(node().inputs[4], node().inputs[5]));
  EXPECT_THAT(collective->devices, ElementsAre(0, 1));
  EXPECT_EQ(collective->types[1], fused_update().body[0].types[1]);
}

TEST_F(FusedUpdateTest, TensorsHaveTheUpdatesThatApplyThem) {
  const FusedTensors fused = tensors_of(fused_update());
  EXPECT_EQ(fused.collective, &fused_update().body[0]);
  EXPECT_EQ(fused.participants, 2u);
  ASSERT_EQ(fused.tensors.size(), 1u);
  const FusedTensors::Tensor& tensor = fused.tensors[0];
  EXPECT_EQ(tensor.first_input, 4u);
  EXPECT_EQ(fused.elements(), tensor.type.shape.elements());
  ASSERT_EQ(tensor.updates.size(), 2u);
  EXPECT_EQ(tensor.updates[1].member, &fused_update().body[2]);
  EXPECT_THAT(tensor.updates[1].inputs, ElementsAre(2, 3, FusedTensors::kCombined, 7));
  EXPECT_EQ(tensor.updates[1].first_output, 2u);
}

// Two updates y = w - rate * g of different lengths, without a collective.
TEST(FusedTensors, WithoutACollectiveEachUpdateHasATensor) {
  const TensorType small{{3}, DType::kF32}, large{{5}, DType::kF32};
  const FusedUpdate update{
      .body = {{&kAssign, nullptr, {{kInput, 0}, {kInput, 2}}, {small}, {0}},
               {&kAssign, nullptr, {{kInput, 1}, {kInput, 3}}, {large}, {0}}},
      .outputs = {{0, 0}, {1, 0}},
  };
  EXPECT_EQ(collective_in(update), nullptr);
  const FusedTensors fused = tensors_of(update);
  EXPECT_EQ(fused.collective, nullptr);
  EXPECT_EQ(fused.participants, 1u);
  EXPECT_EQ(fused.elements(), 8);
  ASSERT_EQ(fused.tensors.size(), 2u);
  EXPECT_EQ(fused.tensors[1].first_input, 3u);
  ASSERT_EQ(fused.tensors[1].updates.size(), 1u);
  EXPECT_THAT(fused.tensors[1].updates[0].inputs, ElementsAre(1, 3));
  EXPECT_EQ(fused.tensors[1].updates[0].first_output, 1u);
}

}  // namespace fused_update_test
}  // namespace belfry
