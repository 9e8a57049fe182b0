// The texts of the placer's refusals.
#include <set>

#include "belfry/framework/base/text.h"
#include "belfry/framework/placement/colocation_sets.h"

namespace belfry {
namespace {

std::string type_names(DeviceTypes types, std::string_view between) {
  std::vector<std::string> names;
  if ((types & kGpu) != 0) names.emplace_back("GPU");
  if ((types & kCpu) != 0) names.emplace_back("CPU");
  return join(names, between);
}

// {{node n}}.
std::string node_text(const Node& node) {
  return cat("node ", node.name(), " (defined at ", node.origin().site, ") ");
}

std::string registered_kernels(const Op& op) {
  std::string text = "\nRegistered kernels:\n";
  text += op.on_host() ? "  device='CPU'\n" : "  <no registered kernels>\n";
  if (op.cpu_only) text += cat("There is no kernel for GPU devices: ", op.cpu_only, ".\n");
  return text;
}

}  // namespace

std::string ColocationTexts::without_kernel(int n) const {
  const Op& op = node(n).op();
  return cat("No OpKernel was registered to support Op '", op.name, "' used by ",
             node_text(node(n)), "with these attrs: [", node(n).raw_options(),
             "]\nRegistered devices: [", type_names(devices_.present(), ", "), "]",
             registered_kernels(op));
}

// Names the first member of the set that has no kernel there.
std::string ColocationTexts::without_kernel_on(int n, int device) const {
  for (const int member : sets_.members(n)) {
    const Op& op = node(member).op();
    if ((devices_.types_of(op) & devices_.type(device)) != 0) continue;
    return cat("no supported kernel for ", *context_.device(device).spec.type,
               " devices: ", node(member).describe(),
               op.cpu_only ? cat("; ", op.cpu_only) : std::string());
  }
  return {};
}

std::string ColocationTexts::of_memory(const ColocationSet& one, const ColocationSet& other) const {
  const ColocationSet& fixed = one.holder >= 0 ? one : other;
  if (fixed.holder < 0) return {};
  return cat("; ", node(fixed.holder).describe(), " has had memory on ",
             context_.device(fixed.device).spec,
             " since an earlier run: constrain it before it is first run, or make a new session");
}

std::string ColocationTexts::why_moved(int n) const {
  for (std::size_t d = 0; d < context_.devices.size(); ++d)
    if (node(n).device().matches(context_.devices[d]->spec)) {
      const std::string why = without_kernel_on(n, static_cast<int>(d));
      return why.empty() ? "what is colocated with it cannot be there" : why;
    }
  return "the session has no such device";
}

std::string ColocationTexts::without_candidates(int n) const {
  const DeviceSpec& wanted = node(n).device();
  const DeviceSpec& merged = sets_.of(n).requested;
  const std::string start = cat("Cannot assign a device for operation ", node(n).name(), ": ");
  const std::string unsatisfied =
      cat("Could not satisfy explicit device specification '", wanted, "'");
  if (wanted != merged)
    return cat(start, unsatisfied, " because the node ", node(n).name(), " (defined at ",
               node(n).origin().site,
               ") was colocated with a group of nodes that required incompatible device '", merged,
               "'. All available devices [", join(device_names(context_.devices)), "]. ",
               debug_info(n));
  if (!devices_.fitting(wanted, devices_.present()).empty()) {
    const Op& op = node(n).op();
    return wanted.type ? cat(start, unsatisfied, " because no supported kernel for ", *wanted.type,
                             " devices is available.", debug_info(n), "\nOp: ", op.name,
                             "\nNode attrs: ", node(n).raw_options(), registered_kernels(op))
                       : cat(start, unsatisfied, debug_info(n));
  }
  const bool gpu_in_vain = wanted.type == "GPU" && (devices_.present() & kGpu) == 0;
  return cat(
      start, node_text(node(n)), " was explicitly assigned to ", wanted,
      " but available devices are ", list_devices(context_.devices),
      ". Make sure the device specification refers to a valid device.",
      gpu_in_vain ? " The requested device appears to be a GPU, but CUDA is not enabled." : "");
}

std::string ColocationTexts::debug_info(int n) const {
  const ColocationSet& group = sets_.of(n);
  std::string text = cat(
      "\nColocation Debug Info:\nColocation group had the following types and supported devices: "
      "\nRoot Member(assigned_device_name_index_=",
      group.device, " requested_device_name_='", group.requested, "' assigned_device_name_='",
      group.assigned, "' resource_device_name_='", group.resource, "' supported_device_types_=[",
      type_names(group.types, ", "), "] possible_devices_=[]");
  std::set<std::string_view> listed;
  const std::vector<int> all = sets_.members(n);
  for (const int member : all) {
    const Op& op = node(member).op();
    if (listed.insert(op.name).second)
      text += cat("\n", op.name, ": ", type_names(devices_.types_of(op), " "), " ");
  }
  text += "\n\nColocation members, user-requested devices, and framework assigned devices, if any:";
  for (const int member : all) {
    text +=
        cat("\n  ", node(member).name(), " (", node(member).op().name, ") ", node(member).device());
    if (const int fixed = context_.memory_of(node(member)); fixed >= 0)
      text += cat(" framework assigned device=", context_.device(fixed).spec);
  }
  return text + "\n";
}

}  // namespace belfry
