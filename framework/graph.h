// The static dataflow graph. Nodes are appended, never changed; scopes (scopes.h) say where they
// go.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "belfry/framework/node.h"
#include "belfry/framework/variable.h"

namespace belfry {

struct Explanation;
struct ScopeStack;

// Keys of collections: ordered lists of nodes that builders fill and trainers read.
inline constexpr std::string_view kGlobalVariables = "variables";
inline constexpr std::string_view kLocalVariables = "local_variables";
inline constexpr std::string_view kTrainableVariables = "trainable_variables";
inline constexpr std::string_view kUpdateOps = "update_ops";

// Does not move; outlives its Outputs and Sessions. Built by one thread at a time.
class Graph {
 public:
  explicit Graph(std::uint64_t seed = 1);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Appends a node: infers its types, applies the scopes in force, makes its name unique. Throws
  // InvalidArgument naming the op, its name and line if the shape function refuses the inputs.
  Node& add(const Op& op, std::span<const Output> inputs, At at = {}, Options options = {});
  Node& add(const Op& op, std::initializer_list<Output> inputs, At at = {}, Options options = {}) {
    return add(op, std::span(inputs.begin(), inputs.size()), at, std::move(options));
  }

  // No node can be added afterwards.
  void freeze() { frozen_ = true; }
  bool frozen() const { return frozen_; }

  std::size_t size() const { return nodes_.size(); }
  Node& node(std::size_t id) const { return *nodes_[id]; }
  // Throws NotFound with the nearest name.
  Node& find(std::string_view name) const;

  // Seeds initialisers and random ops. Set before the first session runs.
  std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }

  // What the graph alone knows of where a node goes: no device and no candidates.
  Explanation explain(const Output& output) const;

  void add_to_collection(std::string_view key, Node& node);
  std::vector<Node*> nodes(std::string_view collection) const;
  std::vector<Variable> variables(std::string_view collection) const;

  // Reserves and returns a name that no node has: `name`, or name_1, name_2, ...; compared without
  // case.
  std::string unique_name(std::string_view name);

  // State of the scope guards; theirs to change.
  ScopeStack& scopes() { return *scopes_; }
  const ScopeStack& scopes() const { return *scopes_; }

  // Creates a variable node whatever the reuse of the scope; variable() is the way for users.
  Variable create_variable(VariableRequest request, At at);
  // The variable stored under a full scoped name, or an empty one.
  Variable stored_variable(std::string_view name) const;
  void store_variable(std::string_view name, Variable variable);

 private:
  void apply_device_scopes(Node& node);
  static void colocate(Node& node, std::span<Node* const> anchors);
  void add_control_inputs(Node& node);
  std::vector<TensorType> infer(const Node& node) const;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::string, Node*> by_name_;
  std::unordered_map<std::string, int> used_names_;
  std::map<std::string, std::vector<Node*>, std::less<>> collections_;
  std::map<std::string, Variable, std::less<>> variable_store_;
  std::unique_ptr<ScopeStack> scopes_;
  std::uint64_t seed_;
  bool frozen_ = false;
};

}  // namespace belfry
