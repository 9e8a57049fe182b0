// The buckets of gradients in the plan of a training step.
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_graph.h"
#include "belfry/trainers/models/models.h"

namespace belfry {
namespace bucket_test {

// Positions in the global order of a planned step of the MNIST convnet on 4 devices; on GPUs for
// NCCL.
struct Positions {
  int collectives = 0;
  int first_reduction = -1;  // a collective or another node that combines gradients
  int last_backward = -1;
  bool overlaps = false;  // the first reduction leaves its worker backward work
};

Positions positions(const char* strategy, double bucket_mb) {
  Graph graph;
  std::vector<DeviceSpec> devices;
  const char* const type = std::string_view(strategy) == "nccl" ? "GPU" : "CPU";
  for (int k = 0; k < 4; ++k) devices.push_back(DeviceSpec::local(type, k));
  const Dataset::Field fields[] = {{"image", DType::kF32, {28, 28, 1}}, {"label", DType::kI32, {}}};
  // Else sums that are fused with updates wait until all gradients are known to be finite.
  const TrainerOptions options{.model = find_model("mnist").model,
                               .optimizer = sgd(0.1),
                               .devices = devices,
                               .on_nonfinite = OnNonfinite::kContinue};
  const bool spread = std::string_view(strategy) == "colocate";
  const TrainerKind kind{
      .variables = spread ? VariablePolicy::kSpread : VariablePolicy::kReplicated,
      .combine = [&](const TrainerOptions&, const GradientTable& grads, ReduceOptions how) {
        how.packing.bucket_mb = bucket_mb;
        return make_strategy(strategy)->reduce(grads, how);
      }};
  const BatchPlan batches(8, 4, 2, 1);
  const TrainingGraph built = build_training_graph(
      graph, {.kind = kind, .trainer = options, .fields = fields, .forms = batches.forms()});
  std::vector<FeedType> feeds;
  for (const TowerRecord& tower : built.towers)
    for (const Output& input : tower.inputs) feeds.push_back({input, input.shape()});
  Session session(graph, {.device_count = {{type, 4}}, .dry_run = true});
  const std::vector<Fetch> fetches{*built.losses[0].steps[0].train_op};
  const Plan& plan = *session.prepare(fetches, feeds).plan();
  Positions found;
  for (int l = 0; l < static_cast<int>(plan.launches.size()); ++l) {
    const PlanNode& planned = plan.node(plan.launches[at(l)].node);
    const bool carries = planned.op != &planned.node->op();  // a tensor from device to device
    const bool combines = planned.participants() > 0;        // alone, or fused with its updates
    if (combines && (!planned.rank() || planned.rank()->number == 0)) ++found.collectives;
    if ((combines || (!carries && planned.node->origin().eager)) && found.first_reduction < 0)
      found.first_reduction = l;
    if (!carries && planned.node->origin().forward) found.last_backward = l;
  }
  const Indexed<Strand, int> worker = deal_strands(plan, 2);
  const auto worker_of = [&](int l) { return worker[plan.launches[at(l)].strand]; };
  for (int l = found.first_reduction + 1; l <= found.last_backward; ++l)
    found.overlaps |= plan.node(plan.launches[at(l)].node).node->origin().forward &&
                      worker_of(l) == worker_of(found.first_reduction);
  return found;
}

TEST(BucketsInAPlan, TheFirstIsCombinedBeforeTheLastGradientIsComputed) {
  for (const char* strategy : {"collective", "naive", "hierarchical", "colocate", "nccl"}) {
    const Positions found = positions(strategy, 0.05);
    ASSERT_GE(found.first_reduction, 0) << strategy;
    EXPECT_LT(found.first_reduction, found.last_backward) << strategy;
  }
  EXPECT_TRUE(positions("collective", 0.05).overlaps);
}

// fc0/W has 1.5 MiB. The three tensors after it and the four before it have less than 0.1 MiB
// together.
TEST(BucketsInAPlan, AreOneCollectiveEach) {
  for (const char* strategy : {"collective", "nccl"}) {
    EXPECT_EQ(positions(strategy, 0.1).collectives, 3) << strategy;
    const Positions whole = positions(strategy, 4);
    EXPECT_EQ(whole.collectives, 1) << strategy;
    EXPECT_GT(whole.first_reduction, whole.last_backward) << strategy;
  }
}

}  // namespace bucket_test
}  // namespace belfry
