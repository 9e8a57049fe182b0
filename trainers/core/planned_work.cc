#include "belfry/trainers/core/planned_work.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/launch_work.h"
#include "belfry/trainers/core/built_training.h"

namespace belfry {
namespace {

class WorkReader {
 public:
  WorkReader(const Plan& plan, int device)
      : plan_(plan),
        device_(device),
        deps_(launch_deps(plan)),
        after_(plan.nodes.size()),
        parameters_(plan.nodes.size()) {}

  TrainingWorkload read(int batch) {
    for (const NodeIndex n : plan_.nodes.indices()) visit(n);
    TrainingWorkload work{.name = "plan", .sample = "sample", .batch = batch};
    for (const PlanNode& node : plan_.nodes)
      if (node.feed() >= 0 && node.device() == device_)
        work.sample_bytes += static_cast<double>(node.types[0].bytes()) / batch;
    for (const bool after : {false, true})
      for (const Launch& launch : plan_.launches)
        if (plan_.strands[launch.strand].device == device_ && after_[launch.node] == after)
          work.launches.push_back(workload_launch(launch.node));
    return work;
  }

 private:
  static bool is_backward(const PlanNode& node) {
    return phase_of(node) == std::string_view("gradient");
  }
  static bool is_of_tower(const PlanNode& node) {
    return is_backward(node) || phase_of(node) == std::string_view("forward");
  }

  // Nodes come in topological order.
  void visit(NodeIndex n) {
    const PlanNode& node = plan_.node(n);
    if (node.launches() && !is_of_tower(node) && node.fetch() < 0)
      for (const Value& input : node.inputs) take(input, n);
    const auto follows_sums = [&](NodeIndex dep) { return after_[dep]; };
    if (std::ranges::any_of(deps_[n], follows_sums)) after_[n] = true;
  }

  // The launch that computes a gradient completes it, maybe through aliases.
  void take(Value gradient, NodeIndex by) {
    gradient = root_of(plan_, gradient);
    const PlanNode& from = plan_.node(gradient.node);
    if (!from.launches() || !is_backward(from)) return;
    after_[by] = true;
    if (std::ranges::find(gradients_, gradient) != gradients_.end()) return;
    gradients_.push_back(gradient);
    parameters_[gradient.node] += static_cast<double>(plan_.type(gradient).shape.elements());
  }

  WorkloadLaunch workload_launch(NodeIndex n) const {
    const PlanNode& node = plan_.node(n);
    WorkloadLaunch made{
        .name = node.name(), .after_sums = after_[n] != 0, .parameters = parameters_[n]};
    for (int shard = 0; shard < plan_.runs(node); ++shard) {
      const LaunchWork work = work_of(plan_, n, shard);
      made.flops += work.flops;
      made.bytes += static_cast<double>(work.bytes);
    }
    return made;
  }

  const Plan& plan_;
  const int device_;
  NodeLists deps_;
  Indexed<PlanNode, char> after_;
  Indexed<PlanNode, double> parameters_;
  std::vector<Value> gradients_;
};

}  // namespace

std::optional<TrainingWorkload> planned_work(BuiltTraining& built) {
  const std::vector<PlanOfStep> plans = built.plans_of_step();
  if (plans.size() != 1 || plans[0].runs != 1) return {};
  const std::vector<DeviceUse> uses = built.session().device_use();
  const TrainerOptions& options = built.options();
  const auto used = std::ranges::find(uses, options.devices[0], &DeviceUse::device);
  if (used == uses.end()) return {};
  const auto device = static_cast<int>(used - uses.begin());
  TrainingWorkload work =
      WorkReader(*plans[0].plan, device).read(static_cast<int>(options.batch_size));
  work.device_bytes = static_cast<double>(used->peak_bytes);
  return work;
}

}  // namespace belfry
