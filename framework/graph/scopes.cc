#include "belfry/framework/graph/scopes.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// The line for an error.
SourceLine scope_line(const Graph& graph, SourceLine site) { return graph.scopes().site_or(site); }

DeviceFunction not_empty(Graph& graph, DeviceFunction function, SourceLine site) {
  require(static_cast<bool>(function), "device scope (", scope_line(graph, site),
          "): the function is empty");
  return function;
}

Node& anchor_node(Output output, SourceLine site) {
  require(static_cast<bool>(output), "colocation scope (", site,
          "): the output to be beside is empty");
  return output.node();
}

DeviceSpec numbered(Graph& graph, const char* type, const char* caller, int id, SourceLine site) {
  require(id >= 0, caller, "(", id, ") (", scope_line(graph, site),
          "): a device's number is 0 or more");
  DeviceSpec spec;
  spec.type = type;
  spec.index = id;
  return spec;
}

DeviceSpec host_of(DeviceSpec device) {
  device.type = "CPU";
  device.index = 0;
  return device;
}

std::string below(std::string_view outer, std::string_view name) {
  return outer.empty() ? std::string(name) : cat(outer, "/", name);
}

void require_scope_name(bool valid, Graph& graph, const char* kind, std::string_view name,
                        SourceLine site) {
  require(valid, kind, " scope (", scope_line(graph, site), "): '", name,
          "' is not a valid scope name; use letters, digits and _ . - / alone, at the root with a ",
          "letter, a digit or a dot first");
}

NameFrame opened_names(Graph& graph, std::string_view name, SourceLine site) {
  const std::string_view current = graph.scopes().names();
  require_scope_name(is_valid_scope_name(name, current.empty()), graph, "name", name, site);
  if (name.empty()) return {};
  if (name.ends_with('/')) return {std::string(name.substr(0, name.size() - 1))};
  return {graph.unique_name(below(current, name))};
}

// The first of name, name_1, ... that the current variable scope has not opened.
std::string unopened(const ScopeStack& scopes, std::string_view name) {
  const auto is_open = [&](const std::string& candidate) {
    const auto found = scopes.opened.find(below(scopes.variable_path(), candidate));
    return found != scopes.opened.end() && found->second > 0;
  };
  std::string candidate(name);
  for (int i = 1; is_open(candidate); ++i) candidate = cat(name, "_", i);
  return candidate;
}

VariableFrame opened_variables(Graph& graph, std::string_view name,
                               const VariableScopeOptions& options, SourceLine site) {
  const ScopeStack& scopes = graph.scopes();
  const std::string outer(scopes.variable_path());
  std::string own(name);
  if (name.empty() && !options.default_name.empty()) {
    require(options.reuse == VariableReuse::kInherit, "variable scope (", scope_line(graph, site),
            ") with the default name '", options.default_name,
            "': reuse=True cannot be used without a name_or_scope; name the scope to reuse it");
    own = unopened(scopes, options.default_name);
  }
  require_scope_name(is_valid_scope_name(own, outer.empty()) && !own.ends_with('/'), graph,
                     "variable", own, site);
  return {own.empty() ? outer : below(outer, own), options};
}

std::vector<Node*> nodes_of(std::span<const ControlInput> list) {
  std::vector<Node*> nodes;
  for (const ControlInput& dependency : list) nodes.push_back(dependency.node());
  return nodes;
}

// Leaves out nodes that are already waited for, as TensorFlow does. This decides which control
// inputs a node's data inputs imply.
ControlFrame waiting_for(Graph& graph, std::span<Node* const> nodes, SourceLine site) {
  std::vector<Node*> known = graph.scopes().controls();
  ControlFrame frame;
  for (Node* node : nodes) {
    require(node != nullptr, "control dependencies (", scope_line(graph, site),
            "): a node to wait for is empty");
    require(&node->graph() == &graph, "control dependencies (", scope_line(graph, site),
            "): ", node->describe(), " belongs to another graph");
    if (std::ranges::find(known, node) != known.end()) continue;
    known.push_back(node);
    frame.nodes.push_back(node);
  }
  return frame;
}

}  // namespace

detail::Guard::Guard(Graph& graph, ScopeFrame frame, SourceLine site) : graph_(graph) {
  graph_.scopes().enter(this, std::move(frame), site);
}
detail::Guard::~Guard() { graph_.scopes().leave(this); }

DeviceSpec detail::scope_device(Graph& graph, std::string_view text, SourceLine site) {
  try {
    return text;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat("device scope (", scope_line(graph, site), "): ", error.what()));
  }
}

DeviceScope::DeviceScope(Graph& graph, DeviceEntry entry, std::string what, SourceLine site)
    : Guard(graph,
            DeviceFrame{std::move(entry), std::make_shared<const std::string>(std::move(what))},
            site) {}
DeviceScope::DeviceScope(Graph& graph, DeviceSpec spec, SourceLine site)
    : DeviceScope(graph, DeviceEntry(spec), "scope " + spec.str(), site) {}
DeviceScope::DeviceScope(Graph& graph, DeviceSetter& setter, SourceLine site)
    : DeviceScope(graph, DeviceEntry(&setter), "setter " + setter.str(), site) {}
DeviceScope::DeviceScope(Graph& graph, DeviceFunction function, SourceLine site)
    : DeviceScope(graph, DeviceEntry(not_empty(graph, std::move(function), site)), "function",
                  site) {}
DeviceScope::DeviceScope(Graph& graph, NoDevice, SourceLine site)
    : DeviceScope(graph, DeviceEntry(NoDevice{}), "no device", site) {}

DeviceScope on_cpu(Graph& graph, int id, SourceLine site) {
  return {graph, numbered(graph, "CPU", "on_cpu", id, site), site};
}
DeviceScope on_gpu(Graph& graph, int id, SourceLine site) {
  return {graph, numbered(graph, "GPU", "on_gpu", id, site), site};
}

DeviceSpec enclosing_device(const Graph& graph) {
  DeviceSpec device;
  const auto& frames = graph.scopes().frames();
  for (auto entry = frames.rbegin(); entry != frames.rend(); ++entry) {
    if (std::holds_alternative<ColocationFrame>(entry->frame)) break;
    const auto* frame = std::get_if<DeviceFrame>(&entry->frame);
    if (!frame) continue;
    if (std::holds_alternative<NoDevice>(frame->entry)) break;
    if (const auto* spec = std::get_if<DeviceSpec>(&frame->entry))
      device = spec->merged_with(device);
  }
  return device;
}

NameScope::NameScope(Graph& graph, std::string_view name, SourceLine site)
    : Guard(graph, opened_names(graph, name, site), site), path_(graph.scopes().names()) {
  if (!path_.empty()) path_ += '/';
}

VariableScope::VariableScope(Graph& graph, std::string_view name,
                             const VariableScopeOptions& options, SourceLine site)
    : Guard(graph, opened_variables(graph, name, options, site), site),
      path_(graph.scopes().variable_path()),
      reenters_(name.empty() && options.default_name.empty()) {
  auto& opened = graph_.scopes().opened;
  if (reenters_) {
    outer_opened_ = opened;
    return;
  }
  if (options.auxiliary_name_scope)
    names_.emplace(graph, name.empty() ? options.default_name : name, site);
  ++opened[path_];
}

VariableScope::~VariableScope() {
  auto& opened = graph_.scopes().opened;
  if (reenters_) {
    opened.swap(outer_opened_);
    return;
  }
  for (auto inner = opened.lower_bound(path_ + "/");
       inner != opened.end() && inner->first.starts_with(path_ + "/"); ++inner)
    inner->second = 0;
}

ControlDependencies::ControlDependencies(Graph& graph, std::span<Node* const> nodes,
                                         SourceLine site)
    : Guard(graph, waiting_for(graph, nodes, site), site) {}
ControlDependencies::ControlDependencies(Graph& graph, std::span<const Output> outputs,
                                         SourceLine site)
    : ControlDependencies(
          graph, nodes_of(std::vector<ControlInput>(outputs.begin(), outputs.end())), site) {}
ControlDependencies::ControlDependencies(Graph& graph, std::initializer_list<ControlInput> nodes,
                                         SourceLine site)
    : ControlDependencies(graph, nodes_of(std::span(nodes.begin(), nodes.size())), site) {}
ControlDependencies::ControlDependencies(Graph& graph, std::nullptr_t, SourceLine site)
    : Guard(graph, ControlFrame{.nodes = {}, .clears = true, .inside = {}}, site) {}

ColocateWith::ColocateWith(Output output, OuterColocation outer, SourceLine site)
    : Guard(anchor_node(output, site).graph(),
            ColocationFrame{&anchor_node(output, site), outer == OuterColocation::kIgnore}, site) {}
ColocateWith::ColocateWith(Output output, SourceLine site)
    : ColocateWith(output, OuterColocation::kKeep, site) {}
ColocateWith::ColocateWith(Graph& graph, std::nullptr_t, SourceLine site)
    : Guard(graph, ColocationFrame{nullptr, true}, site) {}

HostScope::HostScope(Graph& graph, const DeviceSpec& device, SourceLine site)
    : nothing_(graph, nullptr, site), host_(graph, host_of(device), site) {}

EagerScope::EagerScope(Graph& graph, SourceLine site) : Guard(graph, EagerFrame{}, site) {}

AutocastScope::AutocastScope(Graph& graph, Autocasting what, SourceLine site)
    : Guard(graph, AutocastFrame{what, {}}, site) {}

SiteScope::SiteScope(Graph& graph, SourceLine site)
    : Guard(graph, SiteFrame{graph.scopes().site_or(site)}, site) {}

// Inside a tower function, nodes for other replicas also belong to that call.
ReplicaScope::ReplicaScope(Graph& graph, std::string prefix, int index, int call, SourceLine site)
    : Guard(graph, ReplicaFrame{std::move(prefix), index, call == 0 ? graph.scopes().call() : call},
            site) {}

}  // namespace belfry
