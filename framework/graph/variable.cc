#include "belfry/framework/graph/variable.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

void check_found(Variable found, const Shape& shape, DType dtype, At at) {
  const TensorType wanted{shape, dtype};
  require(found.node().output_type(0) == wanted, "variable '", found.name(), "' is ",
          found.node().output_type(0), " (built at ", found.node().origin().site, "), but ",
          at.site, " asks for ", wanted);
}

// The prefix that a key has in a tower with its own variables: the variable scope that the tower is
// built in, "tower1/". Getters do not see it, because they serve all towers.
std::string prefix_of_replica(const ScopeStack& scopes, std::string_view key) {
  std::string_view path;
  for (const ScopeStack::Entry& entry : scopes.frames()) {
    if (const auto* frame = std::get_if<VariableFrame>(&entry.frame)) path = frame->path;
    if (!std::holds_alternative<ReplicaFrame>(entry.frame)) continue;
    const std::string prefix = path.empty() ? "" : cat(path, "/");
    return key.starts_with(prefix) ? prefix : "";
  }
  return "";
}

}  // namespace

Variable::operator Output() const {
  Output& read = node().variable_->default_read;
  if (!read) {
    Graph& graph = node_->graph();
    // The default read comes before every write of the step, hence outside all scopes in force.
    ControlDependencies none(graph, nullptr);
    NameScope names(graph, "");
    ReplicaScope replica(graph, std::string(node_->origin().prefix), node_->origin().replica);
    ColocateWith nothing(graph, nullptr, node_->origin().site);
    std::optional<DeviceScope> cache;
    if (const DeviceSpec& device = node_->variable().caching_device; !device.empty())
      cache.emplace(graph, device, node_->origin().site);
    read = graph.add(kRead, {ref()}, At(cat(name(), "/read"), node_->origin().site)).output();
  }
  return read;
}

Output Variable::read(At at) const {
  return node()
      .graph()
      .add(kRead, {ref()}, At(at.name.empty() ? "read" : at.name, at.site))
      .output();
}

const Shape& Variable::whole_shape() const {
  const std::optional<VariablePart>& part = node().variable().part;
  return part ? part->whole : shape();
}

TensorText Variable::describe() const {
  return {logical_name(), node().output_type(0), node().origin().site};
}

std::vector<Variable> originals_of(std::vector<Variable> variables) {
  std::erase_if(variables, [](const Variable& v) { return v.node().variable().copy_of; });
  return variables;
}

const Node& original_of(const Node& variable) {
  const Node* original = &variable;
  while (original->variable().copy_of) original = original->variable().copy_of;
  return *original;
}

Variable variable(Graph& graph, std::string_view name, Shape shape, VariableOptions options,
                  At at) {
  const VariableScopeState scope = graph.scopes().variables();
  const SourceLine site = graph.scopes().site_or(at.site);
  const std::string key = scope.path.empty() ? std::string(name) : cat(scope.path, "/", name);
  if (!options.dtype) options.dtype = scope.dtype.value_or(DType::kF32);
  if (!options.initializer) options.initializer = scope.initializer;
  if (options.caching_device.empty()) options.caching_device = scope.caching_device;
  if (const Variable found = graph.stored_variable(key)) {
    require(scope.reuse != VariableReuse::kInherit, "variable '", key,
            "' already exists (built at ", found.node().origin().site, "), so ", site,
            " cannot create it; choose another name or open the scope with "
            "VariableReuse::kCreateOrGet");
    check_found(found, shape, *options.dtype, At(site));
    return found;
  }
  require<NotFoundError>(scope.reuse != VariableReuse::kMustExist, "variable '", key,
                         "' does not exist, but ", site,
                         " wants to reuse it; build what makes it before, such as ",
                         "training towers before predict_tower");
  const std::string prefix = prefix_of_replica(graph.scopes(), key);
  VariableRequest request{key.substr(prefix.size()), std::move(shape), std::move(options)};
  for (VariableGetter* getter : scope.getters) getter->request(request);
  request.name = prefix + request.name;
  const Variable made = graph.create_variable(request, At(site));
  graph.store_variable(key, made);
  return made;
}

Variable new_variable(Graph& graph, std::string_view name, Shape shape, VariableOptions options,
                      At at) {
  const std::string_view names = graph.scopes().names();
  return graph.create_variable({names.empty() ? std::string(name) : cat(names, "/", name),
                                std::move(shape), std::move(options)},
                               At(graph.scopes().site_or(at.site)));
}

}  // namespace belfry
