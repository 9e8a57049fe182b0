// The static dataflow graph. Nodes are appended, never changed; scopes (scopes.h) say where they
// go.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "belfry/framework/graph/collections.h"
#include "belfry/framework/graph/combined_gradient.h"
#include "belfry/framework/graph/names.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/group/process_place.h"

namespace belfry {

class ScopeStack;
struct Explanation;

// Cannot be moved; must outlive its Outputs and Sessions. Built by one thread at a time, so the
// scopes in force are the graph's, whichever thread opened them; there is no
// switch_to_thread_local() as in TensorFlow.
class Graph {
 public:
  // `process` is the one that builds the graph, which has only the towers of that process's
  // devices.
  explicit Graph(std::uint64_t seed = 1, ProcessPlace process = {});
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Appends a node: infers its types, applies the scopes in force, makes its name unique below the
  // current name scope. A name that ends with a slash ("a/x/") is taken as it is, from the root,
  // without the slash. Throws InvalidArgument naming the op, its name and line if the shape
  // function refuses the inputs, if the name is invalid, or if it is to be taken as it is and a
  // node has it. Also throws it if a scope ended before one inside it, and inside a device setter
  // or function.
  Node& add(const Op& op, std::span<const Output> inputs, At at = {}, NodeOptions options = {});
  Node& add(const Op& op, std::initializer_list<Output> inputs, At at = {},
            NodeOptions options = {}) {
    return add(op, std::span(inputs.begin(), inputs.size()), at, std::move(options));
  }

  // Adds a node whose inputs are incomplete: several towers build it together, each when its
  // function gets there. extend() adds inputs until close(); until then the graph can be neither
  // differentiated nor compiled. Its outputs do not change.
  Node& add_open(const Op& op, std::span<const Output> inputs, At at = {},
                 NodeOptions options = {});
  // Throws InvalidArgument as add() does, and InternalError if the types of its outputs would
  // change.
  void extend(Node& open, std::span<const Output> inputs);
  // Closes all open nodes, and reorders the nodes from number `first` on, so that ids are a
  // topological order again. Nodes are sorted by the largest number of open nodes on a path to
  // them; otherwise they keep their order. Nodes before `first` must not be open. Throws
  // InvalidArgument naming their lines if open nodes wait for each other.
  void close(std::size_t first);
  // The first open node, or null.
  const Node* open() const { return open_.empty() ? nullptr : open_.front(); }
  // Throws InvalidArgument naming the first open node, if there is one.
  void require_closed() const;

  // No node can be added afterwards.
  void freeze() { frozen_ = true; }

  std::size_t size() const { return nodes_.size(); }
  Node& node(std::size_t id) const { return *nodes_[id]; }
  // A new number whenever nodes are added, extended, reordered or rolled back.
  std::uint64_t version() const { return version_; }
  // Throws NotFoundError with the nearest name.
  Node& find(std::string_view name) const;

  // Seeds initialisers and random ops.
  std::uint64_t seed() const { return seed_; }
  ProcessPlace process() const { return process_; }

  // What is known of a node's place without a session: no device and no candidates.
  Explanation explain(const Output& output) const;

  // Collections (collections.h): ordered; a node may appear several times.
  void add_to_collection(std::string_view key, Node& node);
  // Copies of the lists, with only the nodes whose name matches `scope`, a regular expression, from
  // its start. "tower1/" keeps everything below that scope, "" everything. Throw InvalidArgument
  // for an invalid expression.
  std::vector<Node*> nodes(std::string_view collection, std::string_view scope = {}) const;
  std::vector<Variable> variables(std::string_view collection, std::string_view scope = {}) const;
  // Every variable, in order of creation, regardless of collections.
  std::vector<Variable> variables() const;
  // The list itself, created if there is none.
  std::vector<Node*>& collection(std::string_view key);

  // Returns a name that no node or scope has: `name` (absolute, regardless of the name scope), or
  // name_1, name_2, ...; case is ignored. The name is then taken, unless mark_as_used is false.
  std::string unique_name(std::string_view name, bool mark_as_used = true) {
    return names_.unique(name, mark_as_used ? NameTable::Use::kScope : NameTable::Use::kPeek);
  }

  // The gradients that strategies have combined so far. compile() checks that no step feeds or
  // applies one for only some of the towers.
  void record(CombinedGradient combined) { combined_.push_back(std::move(combined)); }
  std::span<const CombinedGradient> combined_gradients() const { return combined_; }

  // The state of the scope guards, which modify it.
  ScopeStack& scopes() { return *scopes_; }
  const ScopeStack& scopes() const { return *scopes_; }

  // Creates a variable node, regardless of the scope's reuse; users call variable(). If the
  // initialiser throws or gives another type, nodes and names made since are rolled back, and
  // handles to them are void; device setters have already counted the variable.
  Variable create_variable(VariableRequest request, At at);
  // The variable stored under a full scoped name, or an empty one.
  Variable stored_variable(std::string_view name) const;
  void store_variable(std::string_view name, Variable variable);

 private:
  Node& append(const Op& op, std::span<const Output> inputs, At at, NodeOptions options,
               std::unique_ptr<VariableInfo> variable);
  void check(const Op& op, std::span<const Output> inputs, const NodeText& what);
  std::string take_name(const Node& node, bool verbatim);
  std::vector<Output> autocast(struct AutocastFrame& frame, const Op& op,
                               std::span<const Output> inputs, const At& at);
  void place(Node& node);
  bool apply(struct DeviceFrame& frame, SourceLine site, const Node& node, DeviceRequest& request);
  void colocate(const Node& node, DeviceRequest& request);
  const DeviceRequest& kept(const DeviceRequest& request);
  void add_control_inputs(Node& node);
  void initialise(Node& node, const Initializer& make);
  Output first_value(const Node& node, const Initializer& make);
  void roll_back(std::size_t nodes, std::size_t names);
  // Null if no node has the name.
  Node* named(std::string_view name) const;
  static std::vector<TensorType> infer(const Node& node);

  // Destroys a node; its memory stays the graph's.
  struct EndNode {
    void operator()(Node* node) const { std::destroy_at(node); }
  };

  std::pmr::monotonic_buffer_resource memory_;  // of nodes, which are freed together
  std::deque<DeviceRequest> requests_;
  DeviceRequest asked_;  // by the node being made; its memory is reused
  std::vector<std::unique_ptr<Node, EndNode>> nodes_;
  std::vector<Node*> open_;
  // Names of the first nodes, as far as look-ups needed them: few graphs are ever searched by name.
  mutable std::unordered_map<std::string_view, Node*> by_name_;
  mutable std::mutex by_name_mutex_;
  NameTable names_;
  std::map<std::string, std::vector<Node*>, std::less<>> collections_;
  NameTree<Variable> variable_store_;
  std::vector<CombinedGradient> combined_;
  std::unique_ptr<ScopeStack> scopes_;
  const std::uint64_t seed_;
  const ProcessPlace process_;
  std::uint64_t version_ = 0;
  bool frozen_ = false;
  bool placing_ = false;  // a setter or function is deciding
};

}  // namespace belfry
