#include "belfry/trainers/util/hash.h"

#include <algorithm>
#include <bit>

namespace belfry {
namespace {

// Tensors are hashed as they lie in memory.
static_assert(std::endian::native == std::endian::little);

void add_text(Fnv1a& hash, std::string_view text) {
  hash.add(std::as_bytes(std::span(text)));
  hash.add(std::as_bytes(std::span("", 1)));
}

void add_number(Fnv1a& hash, std::int64_t number) {
  hash.add(std::as_bytes(std::span(&number, 1)));
}

std::vector<Variable> all_variables(const Graph& graph) {
  std::vector<Variable> variables = graph.variables(kGlobalVariables);
  for (const Variable local : graph.variables(kLocalVariables)) variables.push_back(local);
  return variables;
}

void add_tensor(Fnv1a& hash, std::string_view name, const Tensor& value) {
  add_text(hash, name);
  add_text(hash, name_of(value.dtype()));
  add_number(hash, static_cast<std::int64_t>(value.shape().rank()));
  for (const std::int64_t dim : value.shape().dims()) add_number(hash, dim);
  hash.add({value.raw(), value.bytes()});
}

// Reads one variable at a time: together they may be large.
std::string hash_originals(Session& session, std::vector<Variable> variables) {
  variables = originals(std::move(variables));
  std::ranges::sort(variables, {}, &Variable::logical_name);
  Fnv1a hash;
  for (const Variable variable : variables)
    add_tensor(hash, variable.logical_name(), session.read(variable));
  return hex(hash.value(), 16);
}

}  // namespace

std::string hash_tensors(std::vector<NamedTensor> tensors) {
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  Fnv1a hash;
  for (const auto& [name, value] : tensors) add_tensor(hash, name, value);
  return hex(hash.value(), 16);
}

std::vector<NamedTensor> read_state(Session& session, const Graph& graph) {
  std::vector<NamedTensor> tensors;
  for (const Variable variable : originals(all_variables(graph)))
    tensors.push_back({std::string(variable.logical_name()), session.read(variable)});
  return tensors;
}

std::string params_hash(Session& session, const Graph& graph) {
  return hash_originals(session, graph.variables(kTrainableVariables));
}

std::string state_hash(Session& session, const Graph& graph) {
  return hash_originals(session, all_variables(graph));
}

int count_shared(Session& session, const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(
      all_variables(graph), [&](Variable variable) { return session.shared(variable); }));
}

std::vector<std::string> differing_replicas(Session& session, const Graph& graph) {
  std::vector<std::string> differing;
  for (const Variable variable : all_variables(graph)) {
    Node* const original = variable.node().variable().copy_of;
    if (original && !session.shared(variable) &&
        !(session.read(variable) == session.read(Variable(*original))))
      differing.emplace_back(variable.name());
  }
  return differing;
}

}  // namespace belfry
