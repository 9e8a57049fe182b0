// Shared by tests of the placer: graphs with requests and colocations, and ops that lack kernels.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {

// CPUs, then GPUs that do not exist.
inline std::vector<std::unique_ptr<Device>> declared_devices(int cpus, int gpus) {
  return make_devices({.device_count = {{"CPU", cpus}, {"GPU", gpus}}, .dry_run = true});
}

// Like Identity, but it computes, and on hosts alone.
inline const Op kHostOnly{.name = "HostOnly",
                          .inputs = 1,
                          .shape = same_as_input,
                          .no_gradient = "it is for tests",
                          .reference = [](KernelPlan& plan) -> KernelRun {
                            const std::int64_t elements = plan.output().shape.elements();
                            return [elements](const KernelPointers& p) {
                              std::copy_n(p.input<float>(0), elements, p.output<float>());
                            };
                          },
                          .cpu_only = "it is for tests"};

// No inputs, one output, and no kernel on hosts.
inline const Op& gpu_only_op() {
  all_ops();  // the registry is complete, and does not ask this one for a kernel
  static const Op op{.name = "GpuOnly",
                     .inputs = 0,
                     .shape =
                         [](const ShapeContext&) {
                           return OutputTypes{{Shape{2}, DType::kF32}};
                         },
                     .no_gradient = "it is for tests"};
  return op;
}

inline Output host_only(Output x, At at = {}) { return x.graph().add(kHostOnly, {x}, at).output(); }

class PlacementTest : public ::testing::Test {
 protected:
  explicit PlacementTest(int cpus = 3, int gpus = 0)
      : devices(gpus > 0 ? declared_devices(cpus, gpus) : cpu_devices(cpus)) {}

  Output on(const char* device, const char* name = "x") {
    DeviceScope scope(graph, device);
    return fill(graph, {2}, 1, DType::kF32, name);
  }
  // A node in the colocation group of `anchor` that asks for a device of its own.
  Output with(Output anchor, const char* device, const char* name) {
    ColocateWith beside(anchor);
    DeviceScope scope(graph, device);
    return fill(graph, {2}, 1, DType::kF32, name);
  }

  PlacementContext known(bool soft = false) const {
    PlacementContext result{devices, soft, false, {}};
    if (fixed) result.memory.emplace(fixed, fixed_device);
    return result;
  }
  Plan placed(const std::vector<Fetch>& fetches, bool soft = false,
              const std::vector<FeedType>& feeds = {}) const {
    Plan plan;
    prune(plan, fetches, feeds);
    place(plan, {devices, std::make_shared<const Placement>(graph, known(soft))});
    return plan;
  }
  // The devices of all outputs, in one plan.
  std::vector<int> devices_of(const std::vector<Output>& outputs, bool soft = false) const {
    std::vector<Fetch> fetches;
    for (const Output& output : outputs) fetches.emplace_back(output.node());
    const Plan plan = placed(fetches, soft);
    std::vector<int> result;
    for (const Output& output : outputs) result.push_back(device_of(plan, output));
    return result;
  }
  int device(const Output& output, bool soft = false) const {
    return devices_of({output}, soft)[0];
  }
  std::string refusal(const std::vector<Output>& outputs, bool soft = false) const {
    return message_of<InvalidArgument>([&] { devices_of(outputs, soft); });
  }

  Graph graph;
  std::vector<std::unique_ptr<Device>> devices;
  const Node* fixed = nullptr;  // a variable that has memory on a device
  int fixed_device = 2;
};

}  // namespace belfry
