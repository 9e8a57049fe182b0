// Losses that a step trains in turns, each with its own variables and optimizer.
#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/towers/tower.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {

struct TowerRecord;
struct TrainerOptions;

// How one of several losses is trained.
struct LossOptions {
  std::string loss;  // its name in the tower function: Tower::loss()
  // The variables that minimise it, as patterns of names (VariableGroup::pattern): "disc", "*/b".
  std::vector<std::string> variables;
  Optimizer optimizer;

  bool trains(std::string_view variable, const Shape& shape) const;
  // "gen: gen, up* by Adam(beta1=0.5)". It leaves the rate out, which a schedule may change.
  std::string str() const;
};

// TrainerOptions::losses, whose optimizers keep their counters in scopes of their own. Without any:
// one loss without a name, which `optimizer` trains with all variables.
std::vector<LossOptions> losses_of(const TrainerOptions& options);

// Throws InvalidArgument for a loss without a name, variables or optimizer, and for two of one
// name.
void check_losses(std::span<const LossOptions> losses);

// Throws InvalidArgument if the tower function, which has been called, names other losses, or a
// variable that is trained belongs to none of them or to two. Throws OptionError if groups of an
// optimizer do not fit the model (refusal_of_groups()). `frozen`: LossFreezing::frozen().
void require_losses(const Tower& tower, std::span<const LossOptions> losses,
                    const std::set<std::string, std::less<>>& frozen);

// The value of a loss, and the variables that minimise it, in a tower.
Output value_of_loss(const LossOptions& loss, const std::vector<TowerMetric>& metrics,
                     Output unnamed);
std::vector<Variable> variables_of_loss(const LossOptions& loss, std::vector<Variable> trainables);

// Brings the metrics of a tower into the order in which the runs of a step report them: each run
// its loss, and the first run all metrics that are no losses.
void sort_metrics(TowerRecord& tower, std::span<const LossOptions> losses);
// The tower as the run for losses[which] sees it. The first run moves the averages of batch norm.
TowerRecord tower_of_loss(TowerRecord tower, std::span<const LossOptions> losses,
                          std::size_t which);

// Freezes the variables of groups that say so, each by the groups of its loss. `losses` is
// borrowed.
class LossFreezing : public VariableGetter {
 public:
  explicit LossFreezing(std::span<const LossOptions> losses) : losses_(losses) {}
  void request(VariableRequest& request) override;
  // The names of variables that it froze: those that would be trained without it.
  const std::set<std::string, std::less<>>& frozen() const { return frozen_; }

 private:
  std::span<const LossOptions> losses_;
  std::set<std::string, std::less<>> frozen_;
};

}  // namespace belfry
