// Nodes of the graph and handles to their outputs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "belfry/framework/base/source_line.h"
#include "belfry/framework/graph/device_spec.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

class Graph;
class Node;
class Variable;

// One output of a node: what ops take and return. Cheap to copy; valid as long as its Graph.
class Output {
 public:
  Output() = default;  // none
  Output(Node& node, int index) : node_(&node), index_(index) {}

  explicit operator bool() const { return node_ != nullptr; }
  // Like all functions below, throws InvalidArgument for an empty Output.
  Node& node() const {
    if (!node_) [[unlikely]]
      refuse_empty();
    return *node_;
  }
  int index() const { return index_; }
  Graph& graph() const;
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  // The device requested so far. The placer makes the final decision: see Session::placement.
  const DeviceSpec& device() const;
  // "fc1/MatMul" for output 0, else "split:1".
  std::string name() const;
  // Node id and index: orders the outputs of a graph by creation.
  std::pair<int, int> key() const;

  bool operator==(const Output&) const = default;

 private:
  [[noreturn]] static void refuse_empty();

  Node* node_ = nullptr;
  int index_ = 0;
};

// One step in how a node came to its requested device.
struct DeviceReason {
  using Load = std::map<std::string, std::int64_t>;

  SourceLine site;  // of the scope; of the write, if it is placed with its variable
  // Either a scope decided (DeviceFrame::what), or a node to be placed with.
  std::shared_ptr<const std::string> scope = {};
  const Node* beside = nullptr;
  DeviceSpec result;  // what the node requested after this step
  // If a setter with loads placed a variable: elements per device before it decided; else null.
  std::shared_ptr<const Load> load = {};

  bool operator==(const DeviceReason&) const = default;

  // "scope /device:GPU:0", "setter <its str()>", "function", "no device", "colocated with w".
  std::string what() const;
};

// The device that a node requests. Nodes with equal requests share one.
struct DeviceRequest {
  DeviceSpec device;
  // The reasons for `device`, in order of application. Scopes cut off by NoDevice or ColocateWith
  // are missing.
  std::vector<DeviceReason> reasons = {};
  // Nodes that it must share a device with, in order of name: its colocation groups are named after
  // them.
  std::vector<const Node*> colocation = {};

  bool operator==(const DeviceRequest&) const = default;
};

// The part that a variable holds of a tensor that several processes hold together: elements
// [cuts[rank], cuts[rank + 1]) of the flattened tensor. Checkpoints and hashes have the whole
// tensor.
struct VariablePart {
  Shape whole;
  std::vector<std::int64_t> cuts;  // size + 1 of them, from 0 to the elements of the whole
};

// Members that only variables have.
struct VariableInfo {
  bool trainable = true;
  bool local = false;                // not in kGlobalVariables: a replica or otherwise not saved
  Output initial;                    // computes the first value; a copy has its original's
  Node* copy_of = nullptr;           // a replica starts as a copy of this variable
  Output default_read;               // created at first use
  DeviceSpec caching_device;         // where default_read is; empty: with the variable
  std::optional<VariablePart> part;  // none: it holds all of a tensor
};

// Where a node was built: its line, and what the scopes around it said.
struct NodeOrigin {
  SourceLine site;          // of a gradient: the line of its forward node
  std::string_view prefix;  // of the name, set by its tower: "tower1/", or ""
  int replica = 0;          // the tower's index
  // The call of a tower function that made it, counted from 1 in its graph; 0: none. Replicas of
  // two models in one graph may share tower names, but not this number.
  int call = 0;
  const Node* forward = nullptr;  // the node that a gradient node was made for
  bool eager = false;             // made in an EagerScope
  // GPUs may round f32 to tf32 in multiplications, because of an AutocastScope around the node or
  // around its forward node.
  bool tf32 = false;
};

// Texts for errors, valid as long as what they name. Each check states one, but only a failing
// check needs it, so it is composed when somebody reads it.
template <class Own>
struct ErrorText {
  operator std::string() const { return static_cast<const Own&>(*this).str(); }  // NOLINT
  friend std::ostream& operator<<(std::ostream& out, const Own& text) { return out << text.str(); }
};

// "MatMul 'tower1/fc1' (built at model.cc:41)".
struct NodeText : ErrorText<NodeText> {
  NodeText(const Op& o, std::string_view n, SourceLine s) : op(o), name(n), site(s) {}
  std::string str() const;

  const Op& op;
  std::string_view name;
  SourceLine site;
};

// "'fc/W' f32[4,3] (built at model.cc:41)".
struct TensorText : ErrorText<TensorText> {
  TensorText(std::string_view n, const TensorType& t, SourceLine s) : name(n), type(t), site(s) {}
  std::string str() const;

  std::string_view name;
  const TensorType& type;
  SourceLine site;
};

// Immutable once built. Owned by its Graph.
class Node {
 public:
  std::string_view name() const { return name_; }
  const Op& op() const { return *op_; }
  Graph& graph() const { return *graph_; }
  // Position in the graph: inputs and control inputs always come earlier.
  int id() const { return id_; }

  std::span<const Output> inputs() const { return inputs_; }
  Output input(std::size_t i) const { return inputs_[i]; }
  std::span<Node* const> control_inputs() const { return control_inputs_; }
  std::size_t outputs() const { return types_.size(); }
  Output output(std::size_t i = 0) const { return {const_cast<Node&>(*this), static_cast<int>(i)}; }
  const TensorType& output_type(std::size_t i) const { return types_[i]; }

  template <class T>
  const T& options() const {
    return options_.as<T>();
  }
  const NodeOptions& raw_options() const { return options_; }

  const DeviceRequest& request() const { return *request_; }
  const DeviceSpec& device() const { return request_->device; }

  const NodeOrigin& origin() const { return origin_; }
  // The name without the tower prefix. With the tower's index it is the key of random ops, so that
  // replicas differ only by shard.
  std::string_view logical_name() const { return name().substr(origin_.prefix.size()); }

  bool is_variable() const { return variable_ != nullptr; }
  const VariableInfo& variable() const { return *variable_; }

  // "MatMul 'tower1/fc1' (built at model.cc:41)": how errors name it.
  NodeText describe() const { return {*op_, name_, origin_.site}; }

 private:
  friend class Graph;
  friend class Variable;
  // `memory` is the graph's.
  explicit Node(std::pmr::memory_resource& memory)
      : name_(&memory), inputs_(&memory), control_inputs_(&memory), types_(&memory) {}

  Graph* graph_ = nullptr;
  const Op* op_ = nullptr;
  int id_ = 0;
  std::pmr::string name_;
  NodeOrigin origin_;
  std::pmr::vector<Output> inputs_;
  std::pmr::vector<Node*> control_inputs_;
  std::pmr::vector<TensorType> types_;
  NodeOptions options_;
  const DeviceRequest* request_ = nullptr;
  std::unique_ptr<VariableInfo> variable_;
};

// The number of participants of a collective (Op::collective), else 0.
inline int collective_size(const Node& node) {
  return node.op().collective ? node.op().collective(node) : 0;
}

// The types of a node's outputs by its op's shape function. `inputs` are types of the graph, or
// real ones.
std::vector<TensorType> infer_types(const Node& node, std::span<const TensorType> inputs);

}  // namespace belfry

template <>
struct std::hash<belfry::Output> {
  std::size_t operator()(const belfry::Output& output) const {
    return std::hash<const belfry::Node*>()(&output.node()) +
           static_cast<std::size_t>(output.index());
  }
};
