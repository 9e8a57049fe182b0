// Towers: one model, built once per device.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

// Whose variables a tower uses, and where they are.
enum class VariablePolicy {
  kOnOneDevice,  // one copy, on the first device
  kSpread,       // one copy, spread over all devices by LeastLoadedDeviceSetter
  kOnHost,       // one copy, on /cpu:0
  kReplicated,   // a copy per tower, on its device
};

// Whose moments move the averages of batch norm in a step (moving_average.h).
enum class MovingAverages {
  kOfAllTowers,  // all towers' moments together, in nodes of kUpdateOps
  kOfEachTower,  // each tower's moments in its own steps, in nodes of TowerRecord::updates
};

// The parts of the graph that a tower function made.
struct TowerRecord {
  int index = 0;
  std::string name;  // "tower1"
  DeviceSpec device;
  std::vector<Output> inputs;  // placeholders, in order of creation
  Output loss;                 // empty if none was named
  std::vector<TowerMetric> metrics;
  std::vector<NamedOutput> outputs;
  // What an evaluation adds up for the loss and for each metric, in their order. Empty if the tower
  // trains, or has no weighted means.
  std::vector<EvaluatedMean> evaluated;
  std::vector<Variable> variables;    // made or used, corresponding from tower to tower
  std::vector<Variable> trainables;   // the trained ones among them
  std::vector<BatchMoments> moments;  // of its batch norms, in order of creation
  // The tensors that it contributed to nodes over all towers (LayerLinks::join). If there are any,
  // one call must take the gradients of all towers' losses.
  std::vector<Output> contributions;
  // Nodes of kUpdateOps that were made in the tower, and with MovingAverages::kOfEachTower the
  // nodes that move averages.
  std::vector<Node*> updates;
  Graph* graph = nullptr;
  int call = 0;                  // NodeOrigin::call of the tower's nodes
  bool asked_for_place = false;  // its function asked which tower it builds (Tower::index())

  // The tensor called `tensor` in this tower; "name:1" is the second output of node "name". What
  // Tower::output() called so takes precedence over the tower's placeholder of this name, this over
  // other nodes below <tower>/, these over a metric that is a mean, and this over the value of the
  // tower's variable of this logical name. Throws NotFoundError with the nearest name.
  //
  // Towers of several calls of replicate() or predict_tower() on one graph may share their names.
  // Nodes of later towers then get suffixes: y, y_1. Each record finds its own nodes; for a node of
  // another call it throws InvalidArgument "Name conflict!", with both lines.
  Output get(std::string_view tensor) const;
};

// Makes the setter that places the nodes of the tower computing on `worker`.
using SetterFactory = std::function<std::unique_ptr<DeviceSetter>(const DeviceSpec& worker)>;

// Calls `build` once per device. Tower t computes on devices[t] and its nodes are named
// tower<t>/.... Random numbers that belong to no sample depend on logical names and t.
//
// Tower 0 makes the variables, without prefix. If there is one copy, the other towers use it. If
// they are replicated, tower t > 0 has local ones named tower<t>/..., which start as copies of
// tower 0's. Moving averages of batch norm exist once, on the host, whatever the policy
// (moving_average.h).
//
// Gradients may be taken inside `build`, except in models with layers that are synchronised over
// the towers: their gradients exist only after replicate() has returned.
//
// Throws InvalidArgument, naming the variable and both lines, if towers disagree: a variable is
// missing in one, or variables come in another order, or differ in shape, dtype or being trained.
// Also throws it if a variable's own name begins like a replica's, "tower<t>/", if there are no
// devices, or if a device appears twice.
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   At at = {});
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   MovingAverages averages, At at = {});

// Other towers on the same devices, for samples of another shape: they use the variables of those
// that replicate() made before, under the same policy. Throws as it does, and InvalidArgument for a
// variable that `build` makes only now.
std::vector<TowerRecord> replicate_again(Graph& graph, std::span<const DeviceSpec> devices,
                                         VariablePolicy policy,
                                         const std::function<void(Tower&)>& build, At at = {});

// The caller's setters place one copy of the variables. Each tower has its own setter; that of
// tower 0 places the variables. kSpread is this with LeastLoadedDeviceSetter; parameter servers are
//   [](const DeviceSpec& worker) {
//     return std::make_unique<LeastLoadedDeviceSetter>(worker, std::vector<DeviceSpec>{"/cpu:0"});
//   }
std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   const SetterFactory& setter,
                                   const std::function<void(Tower&)>& build, At at = {});

struct PredictOptions {
  DeviceSpec device = {};  // empty: by the scopes in force
  int index = 0;           // names the tower: tower-pred-<index>
};

// Builds a tower that does not train: dropout is off, and batch norm uses the moving averages.
// Other random numbers are drawn (layers.h).
//
// On a graph with trainable variables the tower uses those of tower 0, and makes no trainable ones.
// Throws NotFoundError for a variable that variable() does not find, and InvalidArgument for a
// trainable one that `build` made nevertheless. Both errors have the variable's name and line.
//
// On a graph without trainable variables, built for inference only, the tower makes the model's
// variables, or uses those of an earlier such tower; restore_checkpoint() sets their values.
TowerRecord predict_tower(Graph& graph, PredictOptions options,
                          const std::function<void(Tower&)>& build, At at = {});

}  // namespace belfry
