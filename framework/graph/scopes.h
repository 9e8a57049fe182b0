// Scopes: guards on a graph that say where new nodes go, what they are called and what they wait
// for. Each lasts until the end of its block.
//
// They must end in the reverse order of their beginning, which blocks ensure. A guard on the heap
// that ends too early removes its own effect and logs an error. The next Graph::add then throws
// InvalidArgument: "Exiting device scope without proper scope nesting." Errors name the line that
// opened the scope; for scopes made by std::make_unique or std::optional see SourceLine::here.
#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scope_stack.h"

namespace belfry {

namespace detail {
// The base of all guards: one frame on the graph's stack while it lives; neither copied nor moved.
class Guard {
 public:
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 protected:
  Guard(Graph& graph, ScopeFrame frame, SourceLine site);
  ~Guard();
  Graph& graph_;
};
// The device that `text` names; InvalidArgument names the line, too.
DeviceSpec scope_device(Graph& graph, std::string_view text, SourceLine site);
}  // namespace detail

// Places new nodes. When a node is made, the scopes in force are applied from innermost to
// outermost:
//   spec      fills in the fields that are still open (DeviceSpec::merged_with); "" fills in none.
//             If its index meets another device type (outer /gpu:1, inner /cpu gives CPU:1, as in
//             TensorFlow), a warning says so, once per scope.
//   setter,   may look at node.device(), which inner scopes have set; its result replaces that, and
//   function  an empty result clears it
//   NoDevice  ends the effect of all outer scopes; what inner ones set stays
// Nodes that write a variable are placed with it, regardless of scopes. Nodes record what each
// scope did (DeviceRequest::reasons).
class DeviceScope : detail::Guard {
 public:
  [[nodiscard]] DeviceScope(Graph& graph, DeviceSpec spec,
                            SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));
  // Throws InvalidArgument for text that names no device.
  template <std::convertible_to<std::string_view> Text>
  [[nodiscard]] DeviceScope(Graph& graph, const Text& spec,
                            SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()))
      : DeviceScope(graph, detail::scope_device(graph, spec, site), site) {}
  // Borrowed: must outlive the scope.
  [[nodiscard]] DeviceScope(Graph& graph, DeviceSetter& setter,
                            SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));
  // Throws InvalidArgument for an empty function.
  [[nodiscard]] DeviceScope(Graph& graph, DeviceFunction function,
                            SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));
  [[nodiscard]] DeviceScope(Graph& graph, NoDevice,
                            SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));
  DeviceScope(Graph& graph, std::nullptr_t) = delete;

 private:
  DeviceScope(Graph& graph, DeviceEntry entry, std::string what, SourceLine site);
};

// The device scopes /cpu:<id> and /gpu:<id>:  DeviceScope on = on_gpu(graph, 1);
// Throw InvalidArgument for a negative id.
[[nodiscard]] DeviceScope on_cpu(Graph& graph, int id = 0,
                                 SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                    __builtin_LINE()));
[[nodiscard]] DeviceScope on_gpu(Graph& graph, int id = 0,
                                 SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                    __builtin_LINE()));

// The device that specs among the device scopes in force request; setters and functions are not
// consulted.
DeviceSpec enclosing_device(const Graph& graph);

// New nodes are called <scope>/<name>. "x" opens a unique x below the current scope; "a/b/" (with
// the slash) re-enters a/b as it is, from the root; "" is the root. Throws InvalidArgument "'x' is
// not a valid scope name".
class NameScope : detail::Guard {
 public:
  [[nodiscard]] NameScope(Graph& graph, std::string_view name,
                          SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));

  // "a/b/", or "" at the root: re-enters this scope, or names a node like the scope itself.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Inside, variable() calls variables <scope>/<name>. Only variable scopes count; name scopes do
// not. Also opens a name scope (made unique), unless auxiliary_name_scope is false. Scopes nest; a
// scope inherits what it leaves open (see VariableScopeOptions).
//
// An empty name keeps the current path and name scope, so it re-enters the current variable scope.
// (TensorFlow's variable_scope('') would double the slash.)
//
// An empty name with options.default_name opens default_name, or default_name_1, ... if the current
// scope has opened it before. Its options must not request reuse; inherited reuse is fine.
// Re-entering a scope restarts its counters, so that a model built again opens the same scopes.
class VariableScope : detail::Guard {
 public:
  [[nodiscard]] VariableScope(Graph& graph, std::string_view name,
                              const VariableScopeOptions& options,
                              SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                 __builtin_LINE()));
  [[nodiscard]] VariableScope(Graph& graph, std::string_view name,
                              VariableReuse reuse = VariableReuse::kInherit,
                              SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                 __builtin_LINE()))
      : VariableScope(graph, name, VariableScopeOptions{.reuse = reuse}, site) {}
  // Keeps the name; variables are created through `getter`, which is borrowed.
  [[nodiscard]] VariableScope(Graph& graph, VariableGetter& getter,
                              SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                 __builtin_LINE()))
      : VariableScope(graph, "", VariableScopeOptions{.getter = &getter}, site) {}
  ~VariableScope();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool reenters_;
  std::map<std::string, int, std::less<>> outer_opened_;  // counters before, if it re-enters
  std::optional<NameScope> names_;
};

// Something to wait for: a node, the node of an output, or the storage of a variable.
class ControlInput {
 public:
  ControlInput(Node* node) : node_(node) {}                                          // NOLINT
  ControlInput(Node& node) : node_(&node) {}                                         // NOLINT
  ControlInput(Output output) : node_(output ? &output.node() : nullptr) {}          // NOLINT
  ControlInput(Variable variable) : node_(variable ? &variable.node() : nullptr) {}  // NOLINT
  Node* node() const { return node_; }  // null for an empty handle

 private:
  Node* node_;
};

// New nodes wait for the given ones. Nested scopes add up; nullptr clears them. If a data input was
// made inside a scope, its node already waits, so the new node gets none of that scope's control
// inputs. A node does not wait twice for its data inputs. Nodes made outside do not wait;
// variables, their initialisers and default reads never do. Throws InvalidArgument for a dependency
// that is empty or of another graph.
class ControlDependencies : detail::Guard {
 public:
  [[nodiscard]] ControlDependencies(Graph& graph, std::span<Node* const> nodes,
                                    SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                       __builtin_LINE()));
  [[nodiscard]] ControlDependencies(Graph& graph, std::span<const Output> outputs,
                                    SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                       __builtin_LINE()));
  [[nodiscard]] ControlDependencies(Graph& graph, std::initializer_list<ControlInput> nodes,
                                    SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                       __builtin_LINE()));
  // Nodes inside wait for nothing outside.
  [[nodiscard]] ControlDependencies(Graph& graph, std::nullptr_t,
                                    SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                       __builtin_LINE()));
};

// Whether anchors of outer ColocateWith scopes still count.
enum class OuterColocation { kKeep, kIgnore };

// New nodes share the device of `output`'s node, and of the anchors of outer ColocateWith scopes.
// Outer device scopes are set aside. A node takes the device of the oldest anchor that requests
// one, over what inner device scopes set. It joins the groups of all anchors. Groups are
// transitive: an anchor that is itself colocated with others passes their groups on.
class ColocateWith : detail::Guard {
 public:
  [[nodiscard]] explicit ColocateWith(Output output,
                                      SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                         __builtin_LINE()));
  [[nodiscard]] ColocateWith(Output output, OuterColocation outer,
                             SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                __builtin_LINE()));
  // Sets outer colocation and device scopes aside.
  [[nodiscard]] ColocateWith(Graph& graph, std::nullptr_t,
                             SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                __builtin_LINE()));
};

// Places nodes on /cpu:0 of the job, replica and task of `device`. Outer scopes, setters and
// colocation are set aside.
class HostScope {
 public:
  [[nodiscard]] HostScope(Graph& graph, const DeviceSpec& device,
                          SourceLine site = SourceLine::here(__builtin_FILE(), __builtin_LINE()));

 private:
  ColocateWith nothing_;
  DeviceScope host_;
};

// New nodes and device scopes report `site` as their line, so layers can pass the user's line on.
// The outermost SiteScope counts.
class SiteScope : detail::Guard {
 public:
  [[nodiscard]] SiteScope(Graph& graph, SourceLine site);
};

// New nodes run as soon as they can, even before earlier nodes that are ready, so gradients are
// reduced while others are still being computed. Results do not change.
class EagerScope : detail::Guard {
 public:
  [[nodiscard]] explicit EagerScope(Graph& graph,
                                    SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                       __builtin_LINE()));
};

// Casts inputs of new nodes as their ops request (Op::autocast), by nodes on the same line: one per
// tensor, type and replica. Gradients flow back through the casts, so the gradient of a variable
// has its type. Initialisers and gradient nodes take inputs unchanged. The innermost scope counts.
// ops/precision.h has what to pass.
class AutocastScope : detail::Guard {
 public:
  [[nodiscard]] AutocastScope(Graph& graph, Autocasting what,
                              SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                 __builtin_LINE()));
};

// Nodes and variables inside belong to replica `index`. `prefix` is the part of their names that
// logical names leave out, e.g. "tower1/". Callers of tower functions pass `call`
// (NodeOrigin::call).
class ReplicaScope : detail::Guard {
 public:
  [[nodiscard]] ReplicaScope(Graph& graph, std::string prefix, int index, int call = 0,
                             SourceLine site = SourceLine::here(__builtin_FILE(),
                                                                __builtin_LINE()));
};

}  // namespace belfry
