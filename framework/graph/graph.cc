#include "belfry/framework/graph/graph.h"

#include <algorithm>
#include <regex>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

std::regex expression(std::string_view collection, std::string_view scope) {
  try {
    return std::regex(scope.begin(), scope.end());
  } catch (const std::regex_error& error) {
    throw InvalidArgument(cat("collection '", collection, "': the scope '", scope,
                              "' is not a regular expression: ", error.what()));
  }
}

}  // namespace

Graph::Graph(std::uint64_t seed, ProcessPlace process)
    : scopes_(std::make_unique<ScopeStack>()), seed_(seed), process_(process) {
  all_ops();  // a build with an incomplete op fails here, with all names
}

Graph::~Graph() = default;

Node& Graph::add(const Op& op, std::span<const Output> inputs, At at, NodeOptions options) {
  std::vector<Output> substitutes;
  if (scopes_->substitutes) {
    for (const Output& input : inputs)
      substitutes.push_back(input ? scopes_->substitutes->of(input) : input);
    inputs = substitutes;
  }
  auto* const frame = scopes_->innermost<AutocastFrame>();
  const bool casts = frame && is_half(frame->what.compute) && !scopes_->forward && &op != &kRead;
  return casts ? append(op, autocast(*frame, op, inputs, at), at, std::move(options), nullptr)
               : append(op, inputs, at, std::move(options), nullptr);
}

Node& Graph::append(const Op& op, std::span<const Output> inputs, At at, NodeOptions options,
                    std::unique_ptr<VariableInfo> variable) {
  void* const place_of_node = memory_.allocate(sizeof(Node), alignof(Node));
  std::unique_ptr<Node, EndNode> owned(new (place_of_node) Node(memory_));
  Node& node = *owned;
  const SourceLine asked = scopes_->site_or(at.site);
  // Gradients are built in the library, or by one line for all of them.
  const SourceLine site = scopes_->forward ? scopes_->forward->origin_.site : asked;
  const std::string_view wanted = at.name.empty() ? std::string_view(op.name) : at.name;
  const bool verbatim = wanted.ends_with('/');
  const std::string_view scope = verbatim ? std::string_view() : scopes_->names();
  const std::string full = scope.empty() ? std::string(wanted.substr(0, wanted.size() - verbatim))
                                         : cat(scope, "/", wanted);
  check(op, inputs, NodeText(op, full, site));
  node.graph_ = this;
  node.op_ = &op;
  node.origin_.site = site;
  node.name_ = full;  // for errors
  node.inputs_.assign(inputs.begin(), inputs.end());
  node.options_ = std::move(options);
  const std::vector<TensorType> types = infer(node);
  node.types_.assign(types.begin(), types.end());
  const std::size_t names = names_.changes();
  node.name_ = take_name(node, verbatim);
  if (const auto* const frame = scopes_->innermost<ReplicaFrame>()) {
    node.origin_.replica = frame->index;
    node.origin_.call = frame->call;
    if (node.name_.starts_with(frame->prefix))
      node.origin_.prefix = node.name().substr(0, frame->prefix.size());
  }
  node.origin_.forward = scopes_->forward;
  node.origin_.eager = scopes_->innermost<EagerFrame>() != nullptr;
  const auto* casting = scopes_->innermost<AutocastFrame>();
  node.origin_.tf32 =
      scopes_->forward ? scopes_->forward->origin_.tf32 : casting && casting->what.tf32;
  node.id_ = static_cast<int>(nodes_.size());
  node.variable_ = std::move(variable);  // for setters
  try {
    place(node);
  } catch (...) {
    names_.roll_back(names);  // names of refused nodes stay free
    throw;
  }
  add_control_inputs(node);
  nodes_.push_back(std::move(owned));
  scopes_->newest = asked;
  ++version_;
  return node;
}

// `what` describes the node to be made.
void Graph::check(const Op& op, std::span<const Output> inputs, const NodeText& what) {
  require(!frozen_, what, ": the graph is frozen; build before training");
  require(!placing_, what, ": device setters and functions must not add nodes");
  const std::string fault = scopes_->take_fault();
  require(fault.empty(), what, ": ", fault);
  require(op.inputs == kVariadicInputs || op.inputs == static_cast<int>(inputs.size()), what,
          ": takes ", op.inputs, " inputs, not ", inputs.size());
  for (const Output& input : inputs) {
    require(static_cast<bool>(input), what, ": an input is empty");
    const bool written = &input - inputs.data() < op.writes;
    if ((written || &op == &kRead) != input.node().is_variable())
      throw InternalError(
          cat(what, ": input '", input.name(),
              written ? "' is not a variable" : "' is a variable's storage; read it"));
    if (&input.graph() != this)
      throw InvalidArgument(cat(what, ": input '", input.name(), "' belongs to another graph"));
  }
}

std::vector<TensorType> Graph::infer(const Node& node) {
  std::vector<TensorType> types;
  types.reserve(node.inputs().size());
  for (const Output& input : node.inputs()) types.push_back(input.type());
  return infer_types(node, types);
}

// Returns the node's final name, and marks it as used. The node has the requested name.
std::string Graph::take_name(const Node& node, bool verbatim) {
  require(is_valid_scope_name(node.name_, true) && !node.name_.empty(), node.describe(), ": '",
          node.name_, "' is not a valid node name");
  if (!verbatim) return names_.unique(node.name_, NameTable::Use::kNode);
  if (const Node* const taken = names_.is_of_node(node.name_) ? named(node.name_) : nullptr)
    throw InvalidArgument(cat(node.describe(), ": duplicate node name in graph: '", node.name_,
                              "' is to be taken as it is, but ", taken->describe(),
                              " has it; leave the slash at the end out for a name of its own"));
  names_.reserve(node.name_);
  return std::string(node.name_);
}

Node* Graph::named(std::string_view name) const {
  const std::lock_guard lock(by_name_mutex_);
  for (std::size_t i = by_name_.size(); i < nodes_.size(); ++i)
    by_name_.emplace(nodes_[i]->name_, nodes_[i].get());
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Node& Graph::find(std::string_view name) const {
  if (Node* const found = named(name)) return *found;
  std::vector<std::string> names;
  for (const auto& node : nodes_) names.emplace_back(node->name());
  const std::string hint = did_you_mean(name, names);
  throw NotFoundError(cat("no node '", name, "'",
                          hint.empty() && !names.empty()
                              ? cat("; the nearest are ", join(nearest_several(name, names, 3)))
                              : hint));
}

void Graph::add_to_collection(std::string_view key, Node& node) {
  collections_[std::string(key)].push_back(&node);
}

std::vector<Node*>& Graph::collection(std::string_view key) {
  return collections_[std::string(key)];
}

std::vector<Node*> Graph::nodes(std::string_view collection, std::string_view scope) const {
  const auto found = collections_.find(collection);
  if (found == collections_.end()) return {};
  if (scope.empty()) return found->second;
  const std::regex pattern = expression(collection, scope);
  std::vector<Node*> result;
  for (Node* node : found->second)
    if (std::regex_search(node->name().begin(), node->name().end(), pattern,
                          std::regex_constants::match_continuous))
      result.push_back(node);
  return result;
}

std::vector<Variable> Graph::variables(std::string_view collection, std::string_view scope) const {
  std::vector<Variable> result;
  for (Node* node : nodes(collection, scope))
    if (node->is_variable()) result.emplace_back(*node);
  return result;
}

std::vector<Variable> Graph::variables() const {
  std::vector<Variable> result;
  for (const auto& node : nodes_)
    if (node->is_variable()) result.emplace_back(*node);
  return result;
}

Variable Graph::stored_variable(std::string_view name) const {
  const Variable* const found = variable_store_.find(name);
  return found ? *found : Variable();
}

void Graph::store_variable(std::string_view name, Variable variable) {
  Variable& stored = variable_store_.at(name);
  if (!stored) stored = variable;
}

Variable Graph::create_variable(VariableRequest request, At at) {
  ControlDependencies none(*this, nullptr);
  NameScope root(*this, "");
  const VariableOptions& options = request.options;
  require(!request.name.empty() && !request.name.ends_with('/'), "variable '", request.name,
          "' (built at ", at.site, "): needs a name");
  require(std::ranges::all_of(request.shape.dims(), [](std::int64_t dim) { return dim >= 0; }),
          "variable '", request.name, "' (built at ", at.site, "): shape ", request.shape,
          " must be known, and have no negative dimension");
  const std::vector<std::string> collections =
      options.collections.empty() ? std::vector<std::string>{std::string(kGlobalVariables)}
                                  : options.collections;
  auto info = std::make_unique<VariableInfo>();
  info->trainable = options.trainable;
  info->local = std::ranges::find(collections, kGlobalVariables) == collections.end();
  info->copy_of = options.copy_of;
  info->part = options.part;
  if (!options.caching_device.empty())
    info->caching_device = enclosing_device(*this).merged_with(options.caching_device);
  const VariableNodeOptions type{request.shape, options.dtype.value_or(DType::kF32)};
  const std::size_t nodes = nodes_.size(), names = names_.changes();
  Node& node = append(kVariable, {}, At(request.name, at.site), NodeOptions(type), std::move(info));
  try {
    initialise(node, options.initializer);
  } catch (...) {
    roll_back(nodes, names);
    throw;
  }
  for (const std::string& key : collections) add_to_collection(key, node);
  if (options.trainable && std::ranges::find(collections, kTrainableVariables) == collections.end())
    add_to_collection(kTrainableVariables, node);
  return Variable(node);
}

// A copy starts as its original, so it needs no nodes for its first value.
void Graph::initialise(Node& node, const Initializer& make) {
  const TensorType& type = node.output_type(0);
  const Node* const original = node.variable().copy_of;
  const Output initial = original ? original->variable().initial : first_value(node, make);
  require(initial.type() == type, "variable '", node.name(), "' (built at ", node.origin().site,
          "): ", original ? "its original has" : "the initialiser gives", " ", initial.type(),
          " instead of ", type);
  node.variable_->initial = initial;
}

// Makes the first value on the variable's device, on its line, and keyed only by its logical name.
Output Graph::first_value(const Node& node, const Initializer& make) {
  const TensorType& type = node.output_type(0);
  SiteScope line(*this, node.origin().site);
  AutocastScope exact(*this, {});
  ColocateWith beside(node.output());
  ReplicaScope any_replica(*this, std::string(scopes_->replica_prefix()), 0);
  NameScope names(*this, cat(node.name(), "/Initializer/"));
  return make ? make(*this, type.shape, type.dtype)
              : default_initializer(type.dtype)(*this, type.shape, type.dtype);
}

// Frames of control dependencies do not know these nodes: create_variable() sets the frames aside.
void Graph::roll_back(std::size_t nodes, std::size_t names) {
  const auto gone = [&](const Node& node) { return static_cast<std::size_t>(node.id()) >= nodes; };
  for (auto& [key, list] : collections_)
    std::erase_if(list, [&](const Node* node) { return gone(*node); });
  variable_store_.for_each([&](Variable& stored) {
    if (stored && gone(stored.node())) stored = {};
  });
  for (std::size_t id = 0; id < nodes; ++id)
    if (VariableInfo* info = nodes_[id]->variable_.get())
      if (info->default_read && gone(info->default_read.node())) info->default_read = {};
  for (; nodes_.size() > nodes; nodes_.pop_back())
    if (by_name_.size() == nodes_.size()) by_name_.erase(nodes_.back()->name_);
  ++version_;
  names_.roll_back(names);
}

}  // namespace belfry
