// Helpers of the tests of towers.
#pragma once
#include <string>
#include <vector>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/towers/replicate.h"

namespace belfry {

inline DeviceSpec cpu(int index) { return DeviceSpec(cat("/cpu:", index)); }

inline std::vector<DeviceSpec> cpus(int count) {
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) devices.push_back(cpu(i));
  return devices;
}

// The message of a call that must throw E.
template <class E = InvalidArgument, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

inline std::vector<std::string> names_of(const std::vector<Variable>& variables) {
  std::vector<std::string> names;
  for (const Variable v : variables) names.emplace_back(v.name());
  return names;
}

// A tower function with two variables and nodes that use them.
inline constexpr unsigned kLineOfW = __LINE__ + 3;
inline void two_variables(Tower& tower) {
  VariableScope scope(tower.graph(), "fc");
  identity(variable(tower.graph(), "W", {4, 3}));
  identity(variable(tower.graph(), "b", {3}));
}

inline constexpr VariablePolicy kPolicies[] = {
    VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice, VariablePolicy::kSpread};

// Values 0, 1, 2, ... on the graph.
inline Output iota(Graph& graph, Shape shape, double start = 0, At at = {}) {
  Tensor tensor(shape, DType::kF32);
  double next = start;
  for (float& x : tensor.mutable_data<float>()) x = static_cast<float>(next++);
  return constant(graph, tensor, at);
}

}  // namespace belfry
