#include "belfry/framework/scopes.h"

#include <utility>

namespace belfry {
namespace {

bool valid_scope_name(std::string_view name, bool at_root) {
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
    const bool inside = c == '_' || c == '-' || c == '/';
    if (!word && !(inside && (i > 0 || !at_root))) return false;
  }
  return true;
}

}  // namespace

DeviceScope::DeviceScope(Graph& graph, DeviceEntry entry, std::string what, Site site)
    : Guard(graph) {
  graph_.scopes().devices.push_back({std::move(entry), {site, std::move(what)}});
}

DeviceScope::DeviceScope(Graph& graph, DeviceSpec spec, Site site)
    : DeviceScope(graph, DeviceEntry(spec), "scope " + spec.str(), site) {}
DeviceScope::DeviceScope(Graph& graph, DeviceSetter& setter, Site site)
    : DeviceScope(graph, DeviceEntry(&setter), "setter " + setter.str(), site) {}
DeviceScope::DeviceScope(Graph& graph, DeviceFunction function, Site site)
    : DeviceScope(graph, DeviceEntry(std::move(function)), "function", site) {}
DeviceScope::DeviceScope(Graph& graph, NoDevice, Site site)
    : DeviceScope(graph, DeviceEntry(NoDevice{}), "no device", site) {}

DeviceScope::~DeviceScope() { graph_.scopes().devices.pop_back(); }

NameScope::NameScope(Graph& graph, std::string_view name)
    : Guard(graph), outer_(graph.scopes().names) {
  std::string& current = graph_.scopes().names;
  require(valid_scope_name(name, current.empty()), "'", name, "' is not a valid scope name");
  if (name.empty())
    current.clear();
  else if (name.ends_with('/'))
    current = name.substr(0, name.size() - 1);
  else
    current = graph_.unique_name(current.empty() ? std::string(name) : cat(current, "/", name));
}

NameScope::~NameScope() { graph_.scopes().names = outer_; }

VariableScope::VariableScope(Graph& graph, std::string_view name, Reuse reuse)
    : Guard(graph),
      outer_path_(graph.scopes().variable_path),
      outer_reuse_(graph.scopes().reuse),
      outer_getters_(graph.scopes().getters.size()) {
  ScopeStack& scopes = graph_.scopes();
  names_.emplace(graph, name);
  if (!name.empty())
    scopes.variable_path = outer_path_.empty() ? std::string(name) : cat(outer_path_, "/", name);
  if (reuse != Reuse::kInherit) scopes.reuse = reuse;
}

VariableScope::VariableScope(Graph& graph, VariableGetter& getter)
    : Guard(graph),
      outer_path_(graph.scopes().variable_path),
      outer_reuse_(graph.scopes().reuse),
      outer_getters_(graph.scopes().getters.size()) {
  graph_.scopes().getters.push_back(&getter);
}

VariableScope::~VariableScope() {
  ScopeStack& scopes = graph_.scopes();
  scopes.variable_path = outer_path_;
  scopes.reuse = outer_reuse_;
  scopes.getters.resize(outer_getters_);
}

ControlDependencies::ControlDependencies(Graph& graph, std::span<Node* const> nodes)
    : Guard(graph) {
  graph_.scopes().controls.push_back({{nodes.begin(), nodes.end()}, {}});
}

ControlDependencies::ControlDependencies(Graph& graph, std::nullptr_t)
    : Guard(graph), outer_(std::exchange(graph.scopes().controls, {})), cleared_(true) {}

ControlDependencies::~ControlDependencies() {
  if (cleared_)
    graph_.scopes().controls = std::move(outer_);
  else
    graph_.scopes().controls.pop_back();
}

ColocateWith::ColocateWith(Output output, Site)
    : Guard(output.graph()),
      outer_(graph_.scopes().colocation),
      outer_devices_(std::exchange(graph_.scopes().devices, {})) {
  graph_.scopes().colocation.push_back(&output.node());
}

ColocateWith::ColocateWith(Graph& graph, std::nullptr_t)
    : Guard(graph),
      outer_(std::exchange(graph.scopes().colocation, {})),
      outer_devices_(std::exchange(graph.scopes().devices, {})) {}

ColocateWith::~ColocateWith() {
  graph_.scopes().colocation = std::move(outer_);
  graph_.scopes().devices = std::move(outer_devices_);
}

SiteScope::SiteScope(Graph& graph, Site site) : Guard(graph), outer_(graph.scopes().site) {
  if (!outer_) graph_.scopes().site = site;
}

SiteScope::~SiteScope() { graph_.scopes().site = outer_; }

ReplicaScope::ReplicaScope(Graph& graph, std::string prefix, int index)
    : Guard(graph),
      outer_prefix_(graph.scopes().replica_prefix),
      outer_index_(graph.scopes().replica) {
  graph_.scopes().replica_prefix = std::move(prefix);
  graph_.scopes().replica = index;
}

ReplicaScope::~ReplicaScope() {
  graph_.scopes().replica_prefix = outer_prefix_;
  graph_.scopes().replica = outer_index_;
}

}  // namespace belfry
