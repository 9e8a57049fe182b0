// Towers: one model, built once per device.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

// Whose variables a tower computes with, and where they are.
enum class VariablePolicy {
  kOnOneDevice,  // one copy, on the first device
  kSpread,       // one copy, spread over all devices by LeastLoadedDeviceSetter
  kReplicated,   // a copy per tower, on its device
};

// What a tower function left behind.
struct TowerRecord {
  int index = 0;
  std::string name;  // "tower1"
  DeviceSpec device;
  std::vector<Output> inputs;  // placeholders, in order of creation
  Output loss;                 // empty if none was named
  std::vector<NamedOutput> metrics, outputs;
  std::vector<Variable> variables;   // made or used, corresponding from tower to tower
  std::vector<Variable> trainables;  // those of them that are trained
};

// Calls `build` once per device. Tower t computes on devices[t]; its nodes are named tower<t>/...;
// its random numbers are its own, a function of logical names and t.
//
// Variables: tower 0 makes them, without prefix. With one copy, the other towers get them from
// there. Replicated, tower t > 0 has local ones named tower<t>/..., which start as copies of tower
// 0's. Moving averages of batch norm exist once, on the host, for every policy (moving_average.h).
//
// Throws InvalidArgument, naming the variable and both lines, if towers disagree: a variable is
// missing in one, or they come in another order, or differ in shape, dtype or being trained; and if
// there are no devices, or one twice.
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   At at = {});

struct PredictOptions {
  DeviceSpec device = {};  // empty: as the scopes in force say
  int index = 0;           // names the tower: tower-pred-<index>
};

// Builds a tower that does not train, on tower 0's variables: no dropout, and batch norm by the
// moving averages. Throws NotFound naming the variable that no training tower has made.
TowerRecord predict_tower(Graph& graph, PredictOptions options,
                          const std::function<void(Tower&)>& build, At at = {});

}  // namespace belfry
