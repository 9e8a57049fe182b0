// One replica of a model, while its part of the graph is being built.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/scopes.h"
#include "belfry/towers/layer_links.h"
#include "belfry/towers/metric.h"

namespace belfry {

struct NamedOutput {
  std::string name;
  Output value;
};

// How a tower is built; replicate() and predict_tower() (replicate.h) fill this in.
struct TowerOptions {
  std::string name;  // of its name scope, e.g. "tower1"; "" opens none
  int index = 0;     // over all processes
  int here = 0;      // among the towers of this process; number 0 makes the variables
  int total = 1;     // towers of all processes
  int call = 0;      // NodeOrigin::call of its nodes, which the tower sets
  bool training = true;
  DeviceSpec device;               // where the tower computes
  DeviceSetter* setter = nullptr;  // places its nodes instead of `device`; borrowed
  bool own_variables = false;      // its variables are local copies of tower 0's, named <name>/...
  VariableReuse reuse = VariableReuse::kInherit;
  TowerCollectives* collectives = nullptr;  // nodes that it builds with other towers; borrowed
};

// The argument of a tower function. While it lives, its scopes are in force, and it collects the
// function's loss, metrics and outputs. Layers (layers.h) take it as the first argument and add
// their nodes to its graph. Towers do not nest.
//
// Only the main tower collects summaries (kSummaries), and only training towers collect kUpdateOps.
// Nodes that other towers add to these collections are removed when the tower ends.
class Tower : public TowerNodes {
 public:
  // A tower for a model that is built once. It moves averages at once and opens no device scope.
  explicit Tower(Graph& graph, std::string_view name = {}, bool training = true, At at = {});
  // Throws InvalidArgument inside another tower or a variable scope.
  Tower(Graph& graph, TowerOptions options, At at = {});
  ~Tower();

  // Which tower it is, and of how many; number 0 is the main one of those that train. A function
  // that asks may compute something else in each tower, so its trainer does not promise equal bits.
  int index() const {
    asked_for_place_ = true;
    return options_.index;
  }
  int total() const {
    asked_for_place_ = true;
    return options_.total;
  }
  bool is_main() const { return index() == 0 && options_.training; }
  bool is_training() const { return options_.training; }
  const std::string& name() const { return options_.name; }
  const DeviceSpec& device() const { return options_.device; }
  // The prefix of its variables' names before their logical names: "tower1/" or "".
  const std::string& variable_prefix() const { return variable_prefix_; }

  // Names the scalar that training minimises, once; it is of a floating-point type. Losses and
  // metrics of 16 bits become f32.
  void loss(Output value, At at = {});
  // Names one of several losses, which a trainer minimises in turns, each by its own variables
  // (TrainerOptions::losses). It is also a metric of this name. loss() is then their sum.
  void loss(std::string_view name, Output value, At at = {});
  // A scalar to report, e.g. accuracy: a mean over the samples of the tower. What is shown is the
  // mean over all samples. Names differ within a tower.
  void metric(std::string_view name, Output value, At at = {});
  // What is shown are the ends of the sums over all samples, e.g. of metrics::f1() (metrics.h).
  // Throws InvalidArgument for sums of an unknown shape, or of no floating-point type, and without
  // ends.
  void metric(std::string_view name, MetricSums sums, At at = {});
  // The same for scores, e.g. of metrics::auc().
  void metric(std::string_view name, MetricScores scores, At at = {});
  // A tensor that predictors can request by name.
  void output(std::string_view name, Output value, At at = {});

  Output loss() const { return loss_; }  // empty if none was named
  // The names of several losses; none if there is one without a name.
  const std::vector<std::string>& losses() const { return losses_; }
  const std::vector<TowerMetric>& metrics() const { return metrics_; }
  const std::vector<NamedOutput>& outputs() const { return outputs_; }

  // For layers and for replicate().
  const TowerOptions& options() const { return options_; }
  bool asked_for_place() const { return asked_for_place_; }
  LayerLinks& links() { return links_; }
  const LayerLinks& links() const { return links_; }

 private:
  struct Scopes;
  class CopiesOfMain;

  void add_metric(TowerMetric metric, SourceLine site);

  TowerOptions options_;
  mutable bool asked_for_place_ = false;
  std::string variable_prefix_;
  std::map<std::string, std::size_t> frozen_;  // sizes of collections to return to
  Output loss_;
  std::vector<std::string> losses_;
  std::vector<TowerMetric> metrics_;
  std::vector<NamedOutput> outputs_;
  LayerLinks links_;
  std::unique_ptr<CopiesOfMain> copies_;
  std::unique_ptr<Scopes> scopes_;
};

}  // namespace belfry
