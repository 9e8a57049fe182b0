// Towers: one model, built once per device.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

// Whose variables a tower computes with, and where they are.
enum class VariablePolicy {
  kOnOneDevice,  // one copy, on the first device
  kSpread,       // one copy, spread over all devices by LeastLoadedDeviceSetter
  kOnHost,       // one copy, on /cpu:0
  kReplicated,   // a copy per tower, on its device
};

// By what the moving averages of batch norm are moved in a step (moving_average.h).
enum class MovingAverages {
  kOfAllTowers,  // by all towers' moments together: nodes of kUpdateOps
  kOfEachTower,  // by each tower's moments, in steps of its own: nodes of TowerRecord::updates
};

// What a tower function left behind.
struct TowerRecord {
  int index = 0;
  std::string name;  // "tower1"
  DeviceSpec device;
  std::vector<Output> inputs;  // placeholders, in order of creation
  Output loss;                 // empty if none was named
  std::vector<NamedOutput> metrics, outputs;
  std::vector<Variable> variables;    // made or used, corresponding from tower to tower
  std::vector<Variable> trainables;   // those of them that are trained
  std::vector<BatchMoments> moments;  // of its batch norms, in order of creation
  // What it gave to nodes over all towers (LayerLinks::join). Not empty: gradients are to be taken
  // of all towers' losses at once.
  std::vector<Output> contributions;
  // Nodes of kUpdateOps that were made in the tower, and those of MovingAverages::kOfEachTower.
  std::vector<Node*> updates;
  Graph* graph = nullptr;
  int call = 0;  // NodeOrigin::call of what was made in it

  // The tensor called `name` in this tower; "name:1" is the second output of a node. The tower's
  // placeholder of this name wins over other nodes below <tower>/, these over Tower::output() and
  // the tower's variable of this logical name (its value). Throws NotFound with the nearest name.
  //
  // Towers of several calls of replicate() or predict_tower() on one graph may share their names.
  // Then nodes of the later ones have suffixes: y, y_1. Each record finds its own; for one of
  // another call it throws InvalidArgument "Name conflict!", with both lines.
  Output get(std::string_view tensor) const;
};

// Makes the setter that places the nodes of the tower that computes on `worker`.
using SetterFactory = std::function<std::unique_ptr<DeviceSetter>(const DeviceSpec& worker)>;

// Calls `build` once per device. Tower t computes on devices[t]; its nodes are named tower<t>/...;
// its random numbers are its own, a function of logical names and t.
//
// Variables: tower 0 makes them, without prefix. With one copy, the other towers get them from
// there. Replicated, tower t > 0 has local ones named tower<t>/..., which start as copies of tower
// 0's. Moving averages of batch norm exist once, on the host, for every policy (moving_average.h).
//
// Gradients may be taken inside `build`, but for models with layers that are synchronised over the
// towers: theirs exist when replicate() has returned.
//
// Throws InvalidArgument, naming the variable and both lines, if towers disagree: a variable is
// missing in one, or they come in another order, or differ in shape, dtype or being trained; if a
// variable's own name begins like a replica's, "tower<t>/"; and if there are no devices, or one
// twice.
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   At at = {});
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   MovingAverages averages, At at = {});

// One copy of the variables, placed by setters of the caller's. Each tower has its own setter, and
// that of tower 0 sees the variables. kSpread is this with LeastLoadedDeviceSetter; parameter
// servers are
//   [](const DeviceSpec& worker) {
//     return std::make_unique<ReplicaDeviceSetter>(
//         ReplicaDeviceOptions{.ps_tasks = 1, .ps_device = "/cpu:0", .worker_device = worker});
//   }
// Largest-first placement is no policy, as it needs a graph built before: see
// largest_first_device_setter.h.
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   const SetterFactory& setter,
                                   const std::function<void(Tower&)>& build, At at = {});

struct PredictOptions {
  DeviceSpec device = {};  // empty: as the scopes in force say
  int index = 0;           // names the tower: tower-pred-<index>
};

// Builds a tower that does not train: no dropout, and batch norm by the moving averages.
//
// On a graph that has trainable variables it takes those that are there, tower 0's. It makes none
// that are trained. Throws NotFound for one that variable() does not find, and InvalidArgument for
// a trainable one that was made all the same, both with its name and line.
//
// On a graph that trains nothing, as built for inference alone, it makes the model's variables
// itself, or takes those of an earlier such tower; restore_checkpoint() gives them their values.
TowerRecord predict_tower(Graph& graph, PredictOptions options,
                          const std::function<void(Tower&)>& build, At at = {});

}  // namespace belfry
