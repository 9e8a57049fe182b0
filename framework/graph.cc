#include "belfry/framework/graph.h"

#include <algorithm>
#include <cctype>

#include "belfry/framework/core_ops/state.h"
#include "belfry/framework/scopes.h"

namespace belfry {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

Graph::Graph(std::uint64_t seed) : scopes_(std::make_unique<ScopeStack>()), seed_(seed) {
  all_ops();  // a build with an incomplete op fails here, with all names
}

Graph::~Graph() = default;

std::string Graph::unique_name(std::string_view name) {
  const std::string key = lower(name);
  int& uses = used_names_[key];
  int suffix = uses++;
  if (suffix == 0) return std::string(name);
  std::string candidate;
  do candidate = cat(key, "_", suffix++);
  while (used_names_.contains(candidate));
  used_names_[candidate] = 1;
  return cat(name, "_", suffix - 1);
}

Node& Graph::add(const Op& op, std::span<const Output> inputs, At at, Options options) {
  auto owned = std::unique_ptr<Node>(new Node);
  Node& node = *owned;
  const Site site = scopes_->site.value_or(at.site);
  const std::string_view wanted = at.name.empty() ? std::string_view(op.name) : at.name;
  const std::string full =
      scopes_->names.empty() ? std::string(wanted) : cat(scopes_->names, "/", wanted);
  require(!frozen_, describe_node(op, full, site), ": the graph is frozen; build before training");
  require(op.inputs == kVariadic || op.inputs == static_cast<int>(inputs.size()),
          describe_node(op, full, site), ": takes ", op.inputs, " inputs, not ", inputs.size());
  require(inputs.size() <= kMostOperands, describe_node(op, full, site), ": takes at most ",
          kMostOperands, " inputs, not ", inputs.size());
  for (const Output& input : inputs) {
    require(static_cast<bool>(input), describe_node(op, full, site), ": an input is empty");
    const bool written = &input - inputs.data() < op.writes;
    require<Internal>((written || &op == &kRead) == input.node().is_variable(),
                      describe_node(op, full, site), ": input '", input.name(),
                      written ? "' is not a variable" : "' is a variable's storage; read it");
    require(&input.graph() == this, describe_node(op, full, site), ": input '", input.name(),
            "' belongs to another graph");
  }
  node.graph_ = this;
  node.op_ = &op;
  node.site_ = site;
  node.name_ = full;  // for errors; made unique once the node is known to be right
  node.inputs_.assign(inputs.begin(), inputs.end());
  node.options_ = std::move(options);
  node.types_ = infer(node);
  node.name_ = unique_name(full);
  node.replica_ = scopes_->replica;
  if (node.name_.starts_with(scopes_->replica_prefix))
    node.prefix_ = scopes_->replica_prefix.size();
  node.forward_ = scopes_->forward;
  node.id_ = static_cast<int>(nodes_.size());
  apply_device_scopes(node);
  add_control_inputs(node);
  by_name_[node.name_] = &node;
  nodes_.push_back(std::move(owned));
  return node;
}

std::vector<TensorType> Graph::infer(const Node& node) const {
  std::vector<TensorType> types;
  for (const Output& input : node.inputs()) types.push_back(input.type());
  const ShapeContext context(node.op(), node.name(), node.site(), types, node.raw_options());
  std::vector<TensorType> result;
  for (OutputType& type : node.op().shape(context)) {
    require<Internal>(type.dtype || !types.empty(), node.describe(), ": output without a dtype");
    result.push_back({std::move(type.shape), type.dtype ? *type.dtype : types[0].dtype});
  }
  return result;
}

void Graph::colocate(Node& node, std::span<Node* const> anchors) {
  for (Node* anchor : anchors) {
    const auto groups = anchor->colocation();
    if (groups.empty()) node.colocation_.emplace_back(anchor->name());
    node.colocation_.insert(node.colocation_.end(), groups.begin(), groups.end());
    if (node.device_.empty()) node.device_ = anchor->device();
    node.device_reasons_.push_back({anchor->site(), cat("colocated with ", anchor->name())});
  }
  std::ranges::sort(node.colocation_);
  const auto repeated = std::ranges::unique(node.colocation_);
  node.colocation_.erase(repeated.begin(), repeated.end());
}

// Innermost to outermost. What writes a variable goes where the variable is.
void Graph::apply_device_scopes(Node& node) {
  if (node.op().writes > 0) {
    std::vector<Node*> written;
    for (int i = 0; i < node.op().writes; ++i)
      written.push_back(&node.inputs_[static_cast<std::size_t>(i)].node());
    return colocate(node, written);
  }
  colocate(node, scopes_->colocation);
  for (auto frame = scopes_->devices.rbegin(); frame != scopes_->devices.rend(); ++frame) {
    if (std::holds_alternative<NoDevice>(frame->entry)) return;
    if (const auto* spec = std::get_if<DeviceSpec>(&frame->entry)) {
      if (spec->empty()) continue;
      node.device_ = spec->merged_with(node.device_);
    } else if (const auto* setter = std::get_if<DeviceSetter*>(&frame->entry)) {
      node.device_ = (*setter)->place(node);
    } else {
      node.device_ = std::get<DeviceFunction>(frame->entry)(node);
    }
    node.device_reasons_.push_back(frame->reason);
  }
}

void Graph::add_control_inputs(Node& node) {
  for (ControlFrame& frame : scopes_->controls) {
    const bool implied = std::ranges::any_of(
        node.inputs_, [&](const Output& input) { return frame.inside.contains(&input.node()); });
    frame.inside.insert(&node);
    if (implied) continue;
    for (Node* before : frame.nodes) {
      const bool is_input = std::ranges::any_of(
          node.inputs_, [&](const Output& input) { return &input.node() == before; });
      const bool known =
          std::ranges::find(node.control_inputs_, before) != node.control_inputs_.end();
      if (!is_input && !known) node.control_inputs_.push_back(before);
    }
  }
}

Node& Graph::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found != by_name_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& node : nodes_) names.emplace_back(node->name());
  throw NotFound(cat("no node '", name, "'", did_you_mean(name, names)));
}

void Graph::add_to_collection(std::string_view key, Node& node) {
  collections_[std::string(key)].push_back(&node);
}

std::vector<Node*>& Graph::collection(std::string_view key) {
  return collections_[std::string(key)];
}

std::vector<Node*> Graph::nodes(std::string_view collection) const {
  const auto found = collections_.find(collection);
  return found == collections_.end() ? std::vector<Node*>() : found->second;
}

std::vector<Variable> Graph::variables(std::string_view collection) const {
  std::vector<Variable> result;
  for (Node* node : nodes(collection))
    if (node->is_variable()) result.emplace_back(*node);
  return result;
}

Variable Graph::stored_variable(std::string_view name) const {
  const auto found = variable_store_.find(name);
  return found == variable_store_.end() ? Variable() : found->second;
}

void Graph::store_variable(std::string_view name, Variable variable) {
  variable_store_.emplace(name, variable);
}

Variable Graph::create_variable(VariableRequest request, At at) {
  ControlDependencies none(*this, nullptr);
  NameScope root(*this, "");
  const VariableOptions& options = request.options;
  require(request.shape.is_fully_known(), "variable '", request.name, "' (built at ", at.site.str(),
          "): shape ", request.shape, " must be known");
  Node& node = add(kVariableState, {}, At(request.name, at.site),
                   Options(VariableStateOptions{request.shape, options.dtype}));
  auto info = std::make_unique<VariableInfo>();
  info->logical_name = node.logical_name();
  info->trainable = options.trainable;
  const std::vector<std::string> collections =
      options.collections.empty() ? std::vector<std::string>{std::string(kGlobalVariables)}
                                  : options.collections;
  info->local = std::ranges::find(collections, kGlobalVariables) == collections.end();
  info->copy_of = options.copy_of;
  info->caching_device = options.caching_device;
  node.variable_ = std::move(info);
  {
    // Beside the variable, and keyed by its logical name alone.
    ColocateWith beside(node.output());
    ReplicaScope any_replica(*this, scopes_->replica_prefix, 0);
    NameScope names(*this, cat(node.name(), "/Initializer/"));
    const Initializer make = options.initializer ? options.initializer : init::glorot_uniform();
    const Output initial = make(*this, request.shape, options.dtype);
    require(initial.shape() == request.shape && initial.dtype() == options.dtype, "variable '",
            node.name(), "' (built at ", node.site().str(), "): the initialiser gives ",
            initial.type(), " instead of ", node.output_type(0));
    node.variable_->initial = initial;
  }
  for (const std::string& collection : collections) add_to_collection(collection, node);
  if (options.trainable) add_to_collection(kTrainableVariables, node);
  return Variable(node);
}

}  // namespace belfry
