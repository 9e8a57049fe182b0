// One replica of a model, while its part of the graph is being built.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/scopes.h"
#include "belfry/towers/moving_average.h"
#include "belfry/towers/tower_collectives.h"

namespace belfry {

struct NamedOutput {
  std::string name;
  Output value;
};

// How a tower is built; replicate() and predict_tower() (replicate.h) fill this in.
struct TowerOptions {
  std::string name;  // of its name scope, e.g. "tower1"; "" opens none
  int index = 0;
  int total = 1;
  bool training = true;
  DeviceSpec device;               // where it computes
  DeviceSetter* setter = nullptr;  // places its nodes instead of `device`; borrowed
  bool own_variables = false;      // its variables are local copies of tower 0's, named <name>/...
  Reuse reuse = Reuse::kInherit;
  TowerCollectives* collectives = nullptr;  // what it builds with others; borrowed
};

// What a tower function is given: scopes are in force, layers (layers.h) take it first, and it
// collects what the function has to say. Lives while the function runs. Building through it adds
// nodes to the graph; towers do not nest.
//
// Summaries (kSummaries) are collected in the main tower alone, and kUpdateOps in training towers
// alone: what others add to these collections is gone when they end.
class Tower {
 public:
  // A tower of its own, for a model that is built once: moves averages at once, opens no device
  // scope.
  explicit Tower(Graph& graph, std::string_view name = {}, bool training = true, At at = {});
  // Throws InvalidArgument inside another tower or a variable scope.
  Tower(Graph& graph, TowerOptions options, At at = {});
  ~Tower();
  Tower(const Tower&) = delete;
  Tower& operator=(const Tower&) = delete;

  Graph& graph() const { return graph_; }
  int index() const { return options_.index; }
  int total() const { return options_.total; }
  // The first training tower: what is to happen once per step is built here.
  bool is_main() const { return options_.training && options_.index == 0; }
  bool is_training() const { return options_.training; }
  const std::string& name() const { return options_.name; }
  // Node::tower() of what is made in it, if it has a name.
  int number() const { return number_; }
  const DeviceSpec& device() const { return options_.device; }
  // What its variables' names have before their logical names: "tower1/" or "".
  const std::string& variable_prefix() const { return variable_prefix_; }

  // What training minimises: a scalar of a floating-point type, once. Of 16 bits, it and metrics
  // become f32.
  void loss(Output value, At at = {});
  // A scalar to report, e.g. accuracy; the mean over towers is shown. Names differ within a tower.
  void metric(std::string_view name, Output value, At at = {});
  // A tensor that predictors can ask for by name.
  void output(std::string_view name, Output value, At at = {});

  Output loss() const { return loss_; }  // empty if none was named
  const std::vector<NamedOutput>& metrics() const { return metrics_; }
  const std::vector<NamedOutput>& outputs() const { return outputs_; }
  // Placeholders made in this tower, in order of creation.
  std::vector<Output> inputs() const;

  // Variables that the tower has made or used so far, in order of their creation in tower 0 and so
  // corresponding from tower to tower. With a prefix, those below that variable scope, e.g. "disc".
  std::vector<Variable> variables(std::string_view prefix = {}) const;
  // Those of them that are trained.
  std::vector<Variable> trainables(std::string_view prefix = {}) const;
  // Nodes made in this tower so far that are in a collection, in its order.
  std::vector<Node*> nodes(std::string_view collection) const;
  // Variables that the tower has made so far.
  std::vector<Variable> own_variables() const;

  // For layers. Moments that move averages: at the end of replicate(), or at once in a tower of its
  // own.
  void record(BatchMoments moments);
  const std::vector<BatchMoments>& moments() const { return moments_; }
  // For layers: a node over all training towers (tower_collectives.h), which gets `inputs` from
  // this one. Only in one of several.
  Node& join(const Op& op, std::span<const Output> inputs, std::string_view what, At at,
             Options options = {});
  bool has_peers() const { return options_.collectives != nullptr && options_.total > 1; }
  // The inputs that it gave, in their order.
  const std::vector<Output>& contributions() const { return contributions_; }
  // Keeps moments for whoever builds all towers.
  void defer_averages() { defer_averages_ = true; }

 private:
  struct Scopes;
  class CopiesOfMain;

  Graph& graph_;
  TowerOptions options_;
  int number_;
  std::string variable_prefix_;
  std::size_t first_node_;
  std::map<std::string, std::size_t> frozen_;  // sizes of collections to go back to
  Output loss_;
  std::vector<NamedOutput> metrics_, outputs_;
  std::vector<BatchMoments> moments_;
  std::vector<Output> contributions_;
  bool defer_averages_ = false;
  std::unique_ptr<CopiesOfMain> copies_;
  std::unique_ptr<Scopes> scopes_;
};

}  // namespace belfry
