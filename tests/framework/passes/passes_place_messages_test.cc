// The devices of messages between processes in plans for GPUs.
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace passes_place_messages_test {

using ::testing::ElementsAre;

// "ReduceScatter on the GPU, by its rank" and so on.
std::vector<std::string> places(const Plan& plan) {
  std::vector<std::string> all;
  for (const PlanNode& node : plan.nodes)
    if (node.op->exchange || node.op == &kAddPieces)
      all.push_back(cat(node.op->name, node.device() > 0 ? " on the GPU" : " on the host",
                        node.rank() ? ", by its rank" : ""));
  return all;
}

// The places in the plan of rank 0 for a sum of two processes, each on a GPU.
std::vector<std::string> places_of_sum(const test::StandInGpus& gpus) {
  const test::UseGpus use(gpus);
  std::vector<std::string> found;
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const ProcessPlace place = processes->place();
    Graph graph(1, place);
    const DeviceScope on(graph, DeviceSpec::local("GPU", 0).of_process(place));
    const Output sum = sum_over_processes({{constant(graph, {1, 2, 3}, {3})}}, place, 1, true);
    SessionOptions options = on_gpus({1, 1});
    options.processes = processes;
    options.visible_devices = cat(place.rank);
    Session session(graph, options);
    const Plan& plan = *session.prepare({sum}).plan();
    if (place.rank > 0) return;
    found = places(plan);
    for (const Assignment& assigned : plan.assignments)
      for (const PlanNode& node : plan.nodes) {
        if (!node.op->exchange || node.node != assigned.node) continue;
        EXPECT_EQ(assigned.device, node.device()) << "and so it is printed";
      }
  });
  return found;
}

TEST(PlaceMessages, LeavesThemOnAGpuThatHasNccl) {
  EXPECT_THAT(places_of_sum(test::StandInGpus(2)),
              ElementsAre("ReduceScatter on the GPU, by its rank", "AddPieces on the GPU",
                          "AllGather on the GPU, by its rank"));
}

TEST(PlaceMessages, MovesThemToTheHostWhereThereIsNone) {
  test::StandInGpus gpus(2);
  gpus.set_nccl({.why_not = "NCCL cannot be loaded"});
  EXPECT_THAT(places_of_sum(gpus), ElementsAre("ReduceScatter on the host", "AddPieces on the host",
                                               "AllGather on the host"));
}

}  // namespace passes_place_messages_test
}  // namespace belfry
