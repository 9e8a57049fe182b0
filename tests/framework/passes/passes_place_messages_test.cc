// Where messages between processes are, in plans for GPUs.
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"

namespace belfry {
namespace passes_place_messages_test {

// A sum of rank 0 of two processes, made on a GPU.
struct SumOnGpu {
  SumOnGpu() {
    const ProcessPlace place = graph.process();
    const DeviceScope on(graph, DeviceSpec::local("GPU", 0).of_process(place));
    sum = sum_over_processes({{constant(graph, {1, 2, 3}, {3})}}, place, 1, true);
  }

  Plan plan(const test::StandInGpus& gpus) {
    const test::UseGpus use(gpus);
    SessionOptions options = on_gpus({1, 1});
    options.dry_run = true;
    options.planned_place = graph.process();
    Session session(graph, options);
    return *session.prepare({sum}).plan();
  }

  Graph graph{1, {0, 2}};
  Output sum;
};

// "ScatterPieces on GPU:0, rank" and so on.
std::vector<std::string> places(const Plan& plan) {
  std::vector<std::string> all;
  for (const PlanNode& node : plan.nodes)
    if (node.op->exchange || node.op == &kAddPieces)
      all.push_back(cat(node.op->name, node.device() > 0 ? " on the GPU" : " on the host",
                        node.rank() ? ", by its rank" : ""));
  return all;
}

TEST(PlaceMessages, LeavesThemOnAGpuThatHasNccl) {
  EXPECT_THAT(places(SumOnGpu().plan(test::StandInGpus(1))),
              testing::ElementsAre("ScatterPieces on the GPU, by its rank", "AddPieces on the GPU",
                                   "GatherPieces on the GPU, by its rank"));
}

TEST(PlaceMessages, MovesThemToTheHostWhereThereIsNone) {
  test::StandInGpus gpus(1);
  gpus.set_nccl({.why_not = "NCCL cannot be loaded"});
  const Plan plan = SumOnGpu().plan(gpus);
  EXPECT_THAT(places(plan),
              testing::ElementsAre("ScatterPieces on the host", "AddPieces on the host",
                                   "GatherPieces on the host"));
  for (const Assignment& assigned : plan.assignments)
    if (assigned.node->op().exchange) {
      EXPECT_EQ(assigned.device, 0) << "and so it is printed";
    }
}

}  // namespace passes_place_messages_test
}  // namespace belfry
