// The scopes in force on a graph: one stack for all kinds of guards (scopes.h). For the graph and
// the guards; users see only the guards.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "belfry/framework/graph/device_setter.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/variable.h"

namespace belfry {

namespace detail {
class Guard;
}

struct DeviceFrame {
  DeviceEntry entry;
  // "scope /device:GPU:0", "setter <str()>", "function", "no device". The nodes inside share it.
  std::shared_ptr<const std::string> what;
  bool warned = false;  // about an index that moved to another device type
};

struct NameFrame {
  std::string path;  // whole, without a slash at the end
};

struct VariableFrame {
  std::string path;  // whole
  VariableScopeOptions options;
};

struct ControlFrame {
  std::vector<Node*> nodes;
  bool clears = false;                     // cuts off outer scopes
  std::unordered_set<const Node*> inside;  // nodes made in this scope
};

// Places nodes inside with `anchor`; outer device scopes do not count.
struct ColocationFrame {
  Node* anchor = nullptr;      // none: only sets outer scopes aside
  bool ignores_outer = false;  // outer anchors do not count either
};

struct SiteFrame {
  SourceLine site;
};

struct ReplicaFrame {
  std::string prefix;
  int index = 0;
  int call = 0;  // NodeOrigin::call
};

struct EagerFrame {};

// How an AutocastScope casts the inputs of nodes inside (Op::autocast).
struct Autocasting {
  DType compute = DType::kF32;  // the type of products; f32: nothing is cast
  bool tf32 = false;            // NodeOrigin::tf32
  // Makes the casts. It is a function pointer because the op is in a higher layer.
  Output (*cast)(Output x, DType dtype, At at) = nullptr;
};

struct AutocastFrame {
  Autocasting what;
  std::map<std::tuple<std::pair<int, int>, DType, int>, Output> made;  // by tensor, type, replica
};

// Replaces the inputs that nodes are built with (ScopeStack::substitutes).
class SubstituteOutputs {
 public:
  virtual Output of(const Output& input) = 0;

 protected:
  ~SubstituteOutputs() = default;
};

using ScopeFrame =
    std::variant<DeviceFrame, NameFrame, VariableFrame, ControlFrame, ColocationFrame, SiteFrame,
                 ReplicaFrame, EagerFrame, AutocastFrame>;

// The settings of variable(), from all variable scopes in force.
struct VariableScopeState {
  std::string path;
  VariableReuse reuse = VariableReuse::kInherit;
  Initializer initializer;
  std::optional<DType> dtype;
  DeviceSpec caching_device;
  std::vector<VariableGetter*> getters;  // innermost first
};

class ScopeStack {
 public:
  struct Entry {
    const detail::Guard* owner;
    ScopeFrame frame;
    SourceLine site;  // where it was opened
  };

  void enter(const detail::Guard* owner, ScopeFrame frame, SourceLine site);
  // Removes the owner's frame. If it is not the innermost one, logs an error and keeps it as the
  // fault.
  void leave(const detail::Guard* owner) noexcept;
  // "" if all guards ended in order; else the fault, once.
  std::string take_fault();

  // Outermost first. References stay valid while later frames are entered and left.
  std::deque<Entry>& frames() { return frames_; }
  const std::deque<Entry>& frames() const { return frames_; }

  // The innermost frame of a kind, or null.
  template <class Frame>
  const Frame* innermost() const {
    for (auto entry = frames_.rbegin(); entry != frames_.rend(); ++entry)
      if (const auto* frame = std::get_if<Frame>(&entry->frame)) return frame;
    return nullptr;
  }
  template <class Frame>
  Frame* innermost() {
    return const_cast<Frame*>(std::as_const(*this).innermost<Frame>());
  }

  std::string_view names() const;          // current name scope, without a slash at the end
  std::string_view variable_path() const;  // current variable scope
  VariableScopeState variables() const;
  // Nodes that a new node waits for, unless its inputs imply them.
  std::vector<Node*> controls() const;
  // The line of the outermost SiteScope, else `site`; if that is unknown, the newest node's.
  SourceLine site_or(SourceLine site) const;
  std::string_view replica_prefix() const;
  int replica() const;
  int call() const;

  // How often variable scopes were opened, by path: the counters of default names.
  std::map<std::string, int, std::less<>> opened;
  const Node* forward = nullptr;             // the node that gradients are being built for
  SubstituteOutputs* substitutes = nullptr;  // gives new nodes their inputs; null: unchanged
  int calls = 0;                             // calls of tower functions so far
  SourceLine newest;                         // of the newest node

 private:
  std::deque<Entry> frames_;
  std::string fault_;
};

}  // namespace belfry
