// Random requests, colocations, writes and ops without GPU kernels: placing gives a device with a
// kernel to every node, or says clearly why it cannot.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/passes/placer.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/shape_of.h"
#include "belfry/tests/framework/placement_support.h"

namespace belfry {
namespace placer_property_test {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RandomPlacement {
 public:
  explicit RandomPlacement(unsigned seed) : random_(seed) {
    values_.push_back(fill(graph, {2}, 1));
    const int nodes = 1 + draw(random_, 12);
    for (int i = 0; i < nodes; ++i) add_node();
    for (const auto& node : nodes_) fetches.emplace_back(*node);
  }

  Graph graph;
  std::vector<Fetch> fetches;

 private:
  Output any() {
    return values_[static_cast<std::size_t>(draw(random_, static_cast<int>(values_.size())))];
  }

  DeviceSpec request() {
    DeviceSpec spec;
    if (draw(random_, 3) == 0) return spec;
    if (draw(random_, 12) == 0) spec.job = "ps";
    if (draw(random_, 6) == 0) spec.task = 0;
    if (draw(random_, 5) > 0) spec.type = draw(random_, 2) == 0 ? "CPU" : "GPU";
    if (draw(random_, 4) > 0) spec.index = draw(random_, 4);
    return spec;
  }

  void add_node() {
    std::optional<ColocateWith> beside;
    if (draw(random_, 3) == 0) beside.emplace(any());
    DeviceScope scope(graph, request());
    switch (draw(random_, 9)) {
      case 0: return keep(fill(graph, {2}, 1));
      case 1: return keep(host_only(any()));
      case 2: return keep(add_n({any(), any()}));
      case 3: return keep(identity(any()));
      case 4: nodes_.push_back(&shape_of(any()).node()); return;
      case 5: return collective();
      case 6: return keep(graph.add(gpu_only_op(), {}).output());
      default: {
        const std::string name = cat("v", nodes_.size());
        const Variable v = variable(graph, name, {2}, {.initializer = init::zeros()});
        nodes_.push_back(&v.node());
        keep(assign(v, any()).output());
      }
    }
  }

  void collective() {
    const Output parts[] = {any(), any()};
    for (const Output& sum : all_reduce(parts)) keep(sum);
  }

  void keep(const Output& output) {
    values_.push_back(output);
    nodes_.push_back(&output.node());
  }

  std::mt19937 random_;
  std::vector<Output> values_;
  std::vector<Node*> nodes_;
};

bool has_kernel(const Op& op, const Device& device) {
  return device.spec.type == "GPU" ? !op.cpu_only : op.on_host();
}

// What a placement must hold. A collective is where its inputs are, whatever its set.
void check(Plan& plan, Placer& placer, const std::vector<std::unique_ptr<Device>>& devices,
           bool soft) {
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    const PlanNode& planned = plan.nodes[n];
    const Node& node = *planned.node;
    ASSERT_FALSE(planned.devices.empty()) << node.name();
    const Device& device = *devices[at(planned.device())];
    if (planned.op->collective) continue;
    EXPECT_TRUE(has_kernel(*planned.op, device)) << node.describe();
    EXPECT_EQ(placer.colocation().set(static_cast<int>(n)).device, planned.device());
    EXPECT_TRUE(soft || node.device().matches(device.spec)) << node.describe();
    for (int w = 0; w < planned.op->writes; ++w)
      EXPECT_EQ(plan.device(planned.inputs[at(w)]), planned.device()) << node.describe();
    for (const std::string& group : node.colocation())
      for (const PlanNode& other : plan.nodes) {
        const bool together = !soft && other.node->name() == group && !other.op->collective;
        EXPECT_TRUE(!together || other.device() == planned.device())
            << node.describe() << " and " << group;
      }
  }
}

TEST(Placer, NeverAssignsADeviceWithoutAKernel) {
  const std::vector<std::unique_ptr<Device>> machines[] = {
      declared_devices(2, 0), declared_devices(1, 2), declared_devices(3, 3)};
  testing::internal::CaptureStderr();  // variables that soft placement moves are warnings
  int placed = 0, refused = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    RandomPlacement random(seed);
    for (const auto& devices : machines)
      for (const bool soft : {false, true}) {
        Plan plan;
        prune(plan, random.fetches, {});
        const PlanContext context{devices, [](const Node&) { return -1; }, soft};
        try {
          Placer placer(plan, context);
          placer.run();
          ++placed;
          check(plan, placer, devices, soft);
        } catch (const InvalidArgument& error) {
          ++refused;
          EXPECT_THAT(error.what(), AnyOf(StartsWith("Cannot assign a device for operation "),
                                          StartsWith("Cannot colocate nodes "),
                                          StartsWith("Cannot place the graph because "),
                                          StartsWith("Nodes were connected by a reference "),
                                          StartsWith("No OpKernel was registered to support ")));
        }
        ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << ", soft " << soft;
      }
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("without changing the devices of some resources"));
  EXPECT_GT(placed, 3000);
  EXPECT_GT(refused, 3000);
}

}  // namespace placer_property_test
}  // namespace belfry
