#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "belfry/framework/log.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Nodes that must share a device, as a union-find forest over plan nodes.
class Groups {
 public:
  explicit Groups(std::size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int root(int node) {
    int& parent = parent_[at(node)];
    if (parent != node) parent = root(parent);
    return parent;
  }
  // The smaller index stays the root, so that a group is named after its first node.
  void join(int a, int b) {
    a = root(a), b = root(b);
    parent_[at(std::max(a, b))] = std::min(a, b);
  }

 private:
  std::vector<int> parent_;
};

class Placer {
 public:
  Placer(Plan& plan, const PlanContext& context)
      : plan_(plan), context_(context), groups_(plan.nodes.size()) {}

  void run() {
    colocate();
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) settle(static_cast<int>(n));
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) narrow(static_cast<int>(n));
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) assign(static_cast<int>(n));
    if (context_.log_device_placement) print();
  }

 private:
  void colocate() {
    std::map<std::string_view, int> by_name;
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (plan_.nodes[n].fetch < 0) by_name.emplace(node(n).name(), static_cast<int>(n));
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      const PlanNode& planned = plan_.nodes[n];
      if (planned.fetch >= 0) continue;
      // An anchor that is not in the plan still holds its group together.
      for (const std::string& anchor : planned.node->colocation())
        groups_.join(static_cast<int>(n),
                     by_name.emplace(anchor, static_cast<int>(n)).first->second);
      for (int i = 0; i < planned.op->writes; ++i)
        groups_.join(static_cast<int>(n), planned.inputs[at(i)].node);
    }
  }

  // A variable that has memory stays where it is, and its group with it.
  void settle(int n) {
    const PlanNode& planned = plan_.node(n);
    if (!planned.node->is_variable() || !planned.op->storage) return;
    const int fixed = context_.variable_device(*planned.node);
    if (fixed >= 0) candidates_[groups_.root(n)] = {fixed};
  }

  // Leaves the devices to the group of a node that fit what the node asks for.
  void narrow(int n) {
    const PlanNode& planned = plan_.node(n);
    const DeviceSpec& request = planned.node->device();
    if (planned.fetch >= 0 || request.empty()) return;
    std::vector<int> fitting = find(request, *planned.node);
    if (fitting.empty()) return;  // soft placement let the request go
    std::vector<int>& candidates = candidates_[groups_.root(n)];
    if (candidates.empty()) {
      candidates = std::move(fitting);
      return;
    }
    const int required = candidates.front();
    std::erase_if(fitting,
                  [&](int d) { return std::ranges::find(candidates, d) == candidates.end(); });
    if (!fitting.empty()) {
      candidates = std::move(fitting);
      return;
    }
    require(context_.allow_soft_placement, "Cannot assign a device for operation ",
            planned.node->name(), ": Could not satisfy explicit device specification '",
            request.str(), "' because the node ", planned.node->name(), " (defined at ",
            planned.node->site().str(),
            ") was colocated with a group of nodes that required incompatible device '",
            spec(required).str(), "'. All available devices ", list_devices(context_.devices), ".");
  }

  // The devices that fit, in numeric order; none if soft placement drops the request.
  std::vector<int> find(const DeviceSpec& request, const Node& asking) const {
    std::vector<int> fitting;
    for (std::size_t d = 0; d < context_.devices.size(); ++d)
      if (request.matches(spec(static_cast<int>(d)))) fitting.push_back(static_cast<int>(d));
    if (!fitting.empty()) return fitting;
    require(context_.allow_soft_placement, "Cannot assign a device for operation ", asking.name(),
            ": node ", asking.name(), " (defined at ", asking.site().str(),
            ") was explicitly assigned to ", request.str(), " but available devices are ",
            list_devices(context_.devices),
            ". Make sure the device specification refers to a valid device.",
            request.type == "GPU"
                ? " The requested device appears to be a GPU, but this build has none."
                : "");
    log_info("soft placement: ", asking.describe(), " asked for ", request.str(),
             ", which does not exist");
    return fitting;
  }

  // The first candidate; without any, the first device, or for aliases, which cost nothing there,
  // that of their input. The first node decides for its group.
  void assign(int n) {
    PlanNode& planned = plan_.nodes[at(n)];
    std::vector<int>& candidates = candidates_[groups_.root(n)];
    if (planned.fetch >= 0)
      candidates = {plan_.device(planned.inputs[0])};  // copied where the value is
    else if (candidates.empty())
      candidates = {planned.op->alias ? plan_.device(planned.inputs[0]) : 0};
    planned.devices.assign(std::max<std::size_t>(1, planned.types.size()), candidates.front());
    if (!planned.op->collective) return;
    for (std::size_t i = 0; i < planned.types.size(); ++i)
      planned.devices[i] = plan_.device(planned.inputs[i]);
  }

  void print() const {
    log_info("Devices: ", list_devices(context_.devices));
    for (const PlanNode& planned : plan_.nodes) {
      if (planned.fetch >= 0) continue;
      const std::size_t lines = planned.op->collective ? planned.devices.size() : 1;
      for (std::size_t i = 0; i < lines; ++i)
        log_info(planned.node->name(), ": (", planned.op->name,
                 "): ", spec(planned.devices[i]).str());
    }
  }

  const Node& node(std::size_t n) const { return *plan_.nodes[n].node; }
  const DeviceSpec& spec(int device) const { return context_.devices[at(device)]->spec; }

  Plan& plan_;
  const PlanContext& context_;
  Groups groups_;
  std::map<int, std::vector<int>> candidates_;  // devices, by root of a group; none yet: all
};

}  // namespace

void place(Plan& plan, const PlanContext& context) { Placer(plan, context).run(); }

}  // namespace belfry
