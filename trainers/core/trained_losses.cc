#include "belfry/trainers/core/trained_losses.h"

#include <algorithm>
#include <set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/towers/replicate.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

namespace trained_losses {

bool fits(const std::string& pattern, std::string_view variable, const Shape& shape) {
  return VariableGroup{.pattern = pattern}.fits(variable, shape);
}

// The place of the loss of this name; the number of losses for another name.
std::size_t place_of(std::string_view name, std::span<const LossOptions> losses) {
  return static_cast<std::size_t>(std::ranges::find(losses, name, &LossOptions::loss) -
                                  losses.begin());
}

// The run of a step that reports a metric.
std::size_t run_of(const TowerMetric& metric, std::span<const LossOptions> losses) {
  return place_of(metric.name, losses) % losses.size();
}

void require_names(const Tower& tower, std::span<const LossOptions> losses) {
  const std::vector<std::string>& named = tower.losses();
  if (losses.size() == 1 && losses[0].loss.empty()) {
    require(named.empty(), "the tower function names the losses ", join(named),
            ", and nothing says how they are trained: state variables and optimizer of each "
            "(losses)");
    return;
  }
  require(!named.empty(), "the options train the loss '", losses[0].loss,
          "', and the tower function names none: call tower.loss(\"", losses[0].loss,
          "\", value), and return {}");
  for (const LossOptions& loss : losses)
    require(std::ranges::count(named, loss.loss) > 0, "the options train the loss '", loss.loss,
            "', and the tower function names only ", join(named), did_you_mean(loss.loss, named));
  for (const std::string& name : named)
    require(place_of(name, losses) < losses.size(), "the tower function names the loss '", name,
            "', and nothing says how it is trained: state its variables and optimizer (losses)");
}

void require_variables(const LossOptions& loss, const Tower& tower) {
  const std::vector<Variable> trainables = tower.trainables();
  for (const std::string& pattern : loss.variables) {
    const auto is_like = [&](const Variable& v) {
      return fits(pattern, v.logical_name(), v.shape());
    };
    if (std::ranges::any_of(trainables, is_like)) continue;
    require_option<OptionMistake>(!std::ranges::any_of(tower.variables(), is_like), "group",
                                  " freezes all variables of the loss '", loss.loss, "' ('",
                                  shown(pattern),
                                  "'); leave some, or train the other losses alone");
    std::vector<std::string> names;
    for (const Variable& v : trainables) names.emplace_back(v.logical_name());
    throw InvalidArgument(cat("the loss '", loss.loss, "' trains the variables '", shown(pattern),
                              "', and the model trains none that is called so; near are ",
                              join(nearest_several(pattern, names, 5))));
  }
}

void require_one_loss(const Variable& v, std::span<const LossOptions> losses) {
  std::vector<std::string> owners;
  for (const LossOptions& loss : losses)
    if (loss.trains(v.logical_name(), v.shape())) owners.push_back(cat("'", loss.loss, "'"));
  require(!owners.empty(), "the variable ", v.describe(),
          " belongs to no loss: name it among the variables of one, or make it with "
          ".trainable = false");
  require(owners.size() == 1, "the variable ", v.describe(), " belongs to the losses ",
          join(owners, " and "), "; name it among the variables of one of them");
}

}  // namespace trained_losses

}  // namespace

bool LossOptions::trains(std::string_view variable, const Shape& shape) const {
  return std::ranges::any_of(variables, [&](const std::string& pattern) {
    return trained_losses::fits(pattern, variable, shape);
  });
}

std::string LossOptions::str() const {
  std::vector<std::string> numbers;
  for (const OptimizerOption& option : optimizer.options())
    numbers.push_back(cat(option.name, "=", option.value));
  if (optimizer.weight_decay() != 0)
    numbers.push_back(cat("weight_decay=", optimizer.weight_decay()));
  if (!optimizer.groups().empty()) numbers.push_back(text_of_groups(optimizer.groups()));
  if (optimizer.averages()) numbers.push_back(cat("moving_average=", optimizer.averages()->decay));
  return cat(loss, ": ", join(variables), " by ", optimizer.name(), "(", join(numbers), ")");
}

std::vector<Optimizer> TrainerOptions::optimizers() const {
  std::vector<Optimizer> all;
  if (optimizer) all.push_back(optimizer);
  for (const LossOptions& loss : losses) all.push_back(loss.optimizer);
  return all;
}

std::vector<LossOptions> losses_of(const TrainerOptions& options) {
  if (options.losses.empty())
    return {{.loss = "", .variables = {"*"}, .optimizer = options.optimizer}};
  std::vector<LossOptions> losses = options.losses;
  for (LossOptions& loss : losses) loss.optimizer = loss.optimizer.with_scope(loss.loss);
  return losses;
}

void check_losses(std::span<const LossOptions> losses) {
  std::set<std::string> names;
  for (const LossOptions& loss : losses) {
    require(!loss.loss.empty(),
            "one of several losses has no name; state the one that the tower "
            "function gives it, as .loss = \"gen\"");
    require(names.insert(loss.loss).second, "the loss '", loss.loss,
            "' is stated twice; give its variables in one list");
    require(!loss.variables.empty(), "the loss '", loss.loss,
            "' has no variables; name those that minimise it, as .variables = {\"gen\"}");
    require(static_cast<bool>(loss.optimizer), "the loss '", loss.loss,
            "' has no optimizer; e.g. adam(1e-3)");
  }
}

void require_losses(const Tower& tower, std::span<const LossOptions> losses,
                    const std::set<std::string, std::less<>>& frozen) {
  using namespace trained_losses;
  for (const LossOptions& loss : losses) {
    const std::string why = refusal_of_groups(loss.optimizer.groups(), tower.variables(), frozen);
    require_option<OptionMistake>(why.empty(), "group", "=", why);
  }
  require_names(tower, losses);
  if (losses[0].loss.empty()) return;
  for (const LossOptions& loss : losses) require_variables(loss, tower);
  for (const Variable& v : tower.trainables()) require_one_loss(v, losses);
}

Output value_of_loss(const LossOptions& loss, const std::vector<TowerMetric>& metrics,
                     Output unnamed) {
  const auto named = std::ranges::find(metrics, loss.loss, &TowerMetric::name);
  return named == metrics.end() ? unnamed : named->value;
}

std::vector<Variable> variables_of_loss(const LossOptions& loss, std::vector<Variable> trainables) {
  std::erase_if(trainables,
                [&](const Variable& v) { return !loss.trains(v.logical_name(), v.shape()); });
  return trainables;
}

void sort_metrics(TowerRecord& tower, std::span<const LossOptions> losses) {
  std::ranges::stable_sort(tower.metrics, {}, [&](const TowerMetric& metric) {
    return trained_losses::run_of(metric, losses);
  });
}

TowerRecord tower_of_loss(TowerRecord tower, std::span<const LossOptions> losses,
                          std::size_t which) {
  tower.loss = value_of_loss(losses[which], tower.metrics, tower.loss);
  tower.trainables = variables_of_loss(losses[which], std::move(tower.trainables));
  std::erase_if(tower.metrics, [&](const TowerMetric& metric) {
    return trained_losses::run_of(metric, losses) != which;
  });
  if (which > 0) tower.moments.clear();
  return tower;
}

void LossFreezing::request(VariableRequest& request) {
  const bool trained = request.options.trainable;
  for (const LossOptions& loss : losses_)
    if (loss.trains(request.name, request.shape))
      FreezingGetter(loss.optimizer.groups()).request(request);
  if (trained && !request.options.trainable) frozen_.emplace(request.name);
}

}  // namespace belfry
