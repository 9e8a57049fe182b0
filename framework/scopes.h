// Scopes: guards on a graph that say where new nodes go, what they are called and what they wait
// for. Each lasts until the end of its block. They must end in reverse order of their beginning.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "belfry/framework/graph.h"

namespace belfry {

// Decides devices and may keep state, e.g. loads. Borrowed by scopes, never copied.
struct DeviceSetter {
  virtual ~DeviceSetter() = default;
  // The device of a new node, replacing node.device(), which inner scopes may have set.
  virtual DeviceSpec place(const Node& node) = 0;
  virtual std::string str() const = 0;
};
using DeviceFunction = std::function<DeviceSpec(const Node&)>;

// Ends the influence of the device scopes outside.
struct NoDevice {};

using DeviceEntry = std::variant<NoDevice, DeviceSpec, DeviceSetter*, DeviceFunction>;

namespace detail {
// What all guards share: neither copied nor moved.
class Guard {
 public:
  explicit Guard(Graph& graph) : graph_(graph) {}
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 protected:
  Graph& graph_;
};
}  // namespace detail

// New nodes are placed by `what`. Entries are applied innermost to outermost: an outer spec fills
// in the fields that inner ones left open; a setter or function replaces what is set; NoDevice
// stops.
class DeviceScope : detail::Guard {
 public:
  [[nodiscard]] DeviceScope(Graph& graph, DeviceSpec spec,
                            Site site = Site::here(__builtin_FILE(), __builtin_LINE()));
  [[nodiscard]] DeviceScope(Graph& graph, const char* spec,
                            Site site = Site::here(__builtin_FILE(), __builtin_LINE()))
      : DeviceScope(graph, DeviceSpec(spec), site) {}
  [[nodiscard]] DeviceScope(Graph& graph, DeviceSetter& setter,
                            Site site = Site::here(__builtin_FILE(), __builtin_LINE()));
  [[nodiscard]] DeviceScope(Graph& graph, DeviceFunction function,
                            Site site = Site::here(__builtin_FILE(), __builtin_LINE()));
  [[nodiscard]] DeviceScope(Graph& graph, NoDevice,
                            Site site = Site::here(__builtin_FILE(), __builtin_LINE()));
  ~DeviceScope();

 private:
  DeviceScope(Graph& graph, DeviceEntry entry, std::string what, Site site);
};

// New nodes are called <scope>/<name>. "x" opens a unique x below the current scope; "a/b/" (with
// the slash) re-enters a/b as it is; "" is the root.
class NameScope : detail::Guard {
 public:
  [[nodiscard]] NameScope(Graph& graph, std::string_view name);
  ~NameScope();

 private:
  std::string outer_;
};

// Whether variable() creates or finds.
enum class Reuse { kInherit, kMustExist, kCreateOrGet };

// Variables are called <scope>/<name>. Opens a name scope too.
class VariableScope : detail::Guard {
 public:
  [[nodiscard]] VariableScope(Graph& graph, std::string_view name, Reuse reuse = Reuse::kInherit);
  // Keeps the name; variables are created through `getter`.
  [[nodiscard]] VariableScope(Graph& graph, VariableGetter& getter);
  ~VariableScope();

 private:
  std::string outer_path_;
  Reuse outer_reuse_;
  std::size_t outer_getters_;
  std::optional<NameScope> names_;
};

// A ControlDependencies in force, and the nodes made inside.
struct ControlFrame {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> inside;
};

// New nodes wait for `nodes`. Nested scopes add up; nullptr clears them. A node with a data input
// made inside waits through it and gets no control inputs of its own.
class ControlDependencies : detail::Guard {
 public:
  [[nodiscard]] ControlDependencies(Graph& graph, std::span<Node* const> nodes);
  [[nodiscard]] ControlDependencies(Graph& graph, std::initializer_list<Node*> nodes)
      : ControlDependencies(graph, std::span(nodes.begin(), nodes.size())) {}
  // Inside, nothing outside is waited for.
  [[nodiscard]] ControlDependencies(Graph& graph, std::nullptr_t);
  ~ControlDependencies();

 private:
  std::vector<ControlFrame> outer_;
  bool cleared_ = false;
};

// New nodes share the device of `output`'s node. Device scopes outside are set aside.
class ColocateWith : detail::Guard {
 public:
  [[nodiscard]] explicit ColocateWith(Output output,
                                      Site site = Site::here(__builtin_FILE(), __builtin_LINE()));
  // Inside, colocation and device scopes outside are set aside.
  [[nodiscard]] ColocateWith(Graph& graph, std::nullptr_t);
  ~ColocateWith();

 private:
  std::vector<Node*> outer_;
  std::vector<struct DeviceFrame> outer_devices_;
};

// New nodes name `site` as their line: layers pass the user's on.
class SiteScope : detail::Guard {
 public:
  [[nodiscard]] SiteScope(Graph& graph, Site site);
  ~SiteScope();

 private:
  std::optional<Site> outer_;
};

// Nodes and variables inside belong to replica `index`; `prefix` is the part of their names that
// logical names leave out, e.g. "tower1/".
class ReplicaScope : detail::Guard {
 public:
  [[nodiscard]] ReplicaScope(Graph& graph, std::string prefix, int index);
  ~ReplicaScope();

 private:
  std::string outer_prefix_;
  int outer_index_;
};

struct DeviceFrame {
  DeviceEntry entry;
  DeviceReason reason;
};

// The scopes in force.
struct ScopeStack {
  std::string names;  // current name scope, without a slash at the end
  std::vector<DeviceFrame> devices;
  std::vector<ControlFrame> controls;
  std::vector<Node*> colocation;
  std::string variable_path;
  Reuse reuse = Reuse::kInherit;
  std::vector<VariableGetter*> getters;
  std::optional<Site> site;
  std::string replica_prefix;
  int replica = 0;
  const Node* forward = nullptr;  // the node that gradients are being built for
};

}  // namespace belfry
