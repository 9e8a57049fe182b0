#include "belfry/trainers/util/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

// Tensors are hashed as their bytes lie in memory.
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

// Reads one variable at a time, as all together may be large.
std::string hash_originals(Session& session, std::vector<Variable> variables) {
  variables = originals_of(std::move(variables));
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

std::vector<Variable> original_variables(const Graph& graph) {
  return originals_of(all_variables(graph));
}

std::vector<NamedTensor> read_state(Session& session, const Graph& graph) {
  std::vector<NamedTensor> tensors;
  for (const Variable variable : original_variables(graph))
    tensors.push_back({std::string(variable.logical_name()), session.read(variable)});
  return tensors;
}

std::string params_hash(Session& session, const Graph& graph) {
  return hash_originals(session, weights_of(graph));
}

std::string state_hash(Session& session, const Graph& graph) {
  return hash_originals(session, all_variables(graph));
}

int count_shared(Session& session, const Graph& graph) {
  return static_cast<int>(std::ranges::count_if(
      all_variables(graph), [&](Variable variable) { return session.shares_storage(variable); }));
}

namespace {

// The copies that differ, in the order of the graph. Reads each original once, together with its
// copies.
std::vector<Variable> differing_copies(Session& session, const Graph& graph) {
  std::map<Node*, std::vector<Variable>> copies;
  for (const Variable variable : all_variables(graph))
    if (Node* const original = variable.node().variable().copy_of)
      if (!session.shares_storage(variable)) copies[original].push_back(variable);
  std::vector<Variable> differing;
  for (const auto& [original, variables] : copies) {
    const Tensor expected = session.read(Variable(*original));
    for (const Variable variable : variables)
      if (!(session.read(variable) == expected)) differing.push_back(variable);
  }
  std::ranges::sort(differing, {}, [](const Variable& one) { return one.node().id(); });
  return differing;
}

}  // namespace

std::vector<std::string> differing_replicas(Session& session, const Graph& graph) {
  std::vector<std::string> names;
  for (const Variable variable : differing_copies(session, graph))
    names.emplace_back(variable.name());
  return names;
}

void require_equal_replicas(Session& session, const Graph& graph, std::int64_t steps) {
  const std::vector<Variable> differing = differing_copies(session, graph);
  if (differing.empty()) return;
  const Variable copy = differing[0], original(*copy.node().variable().copy_of);
  throw CorruptionError(
      cat("after step ", steps, " the variable ", original.name(), " on ",
          session.placement(original.ref()).short_str(), " and its copy ", copy.name(), " on ",
          session.placement(copy.ref()).short_str(), " have other bits",
          differing.size() > 1 ? cat(", and so have ", differing.size() - 1, " more copies") : "",
          "; a device or its memory may be faulty, or code of yours has written to a copy"));
}

}  // namespace belfry
