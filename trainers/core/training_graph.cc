#include "belfry/trainers/core/training_graph.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/loss_scale.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/other_updates.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

using Rows = std::vector<std::vector<Gradient>>;  // [tower][variable]

// Fields become placeholders that are found by name.
void require_names(std::span<const Dataset::Field> fields) {
  std::set<std::string> seen;
  for (const Dataset::Field& field : fields) {
    require(!field.name.empty() && field.name.find_first_of(":/ ") == std::string::npos,
            "the data have a field called '", field.name,
            "'; a name is not empty and has no colon, slash or space");
    require(seen.insert(field.name).second, "the data have two fields called '", field.name, "'");
  }
}

std::vector<Output> placeholders(Graph& graph, std::span<const Dataset::Field> fields,
                                 std::int64_t batch) {
  std::vector<Output> result;
  for (const Dataset::Field& field : fields) {
    std::vector<std::int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), batch);
    result.push_back(placeholder(graph, field.name, field.dtype, Shape(dims)));
  }
  return result;
}

// Each names nodes of the model.
void require_scopes(const TowerRecord& tower, const std::vector<std::string>& scopes) {
  if (scopes.empty()) return;
  std::set<std::string> unused(scopes.begin(), scopes.end()), known;
  for (std::size_t id = 0; id < tower.graph->size(); ++id) {
    const Node& node = tower.graph->node(id);
    const std::string_view name = node.logical_name();
    if (node.origin().tower != tower.number || node.origin().forward) continue;
    std::erase_if(unused, [&](const std::string& scope) {
      return !recompute_scope(name, {&scope, 1}).empty();
    });
    if (const std::size_t slash = name.find('/'); slash != std::string_view::npos)
      known.insert(std::string(name.substr(0, slash)));
  }
  if (unused.empty()) return;
  const std::vector<std::string> names(known.begin(), known.end());
  throw OptionError(cat("recompute=", *unused.begin(), ": the model has no nodes in such a scope",
                        did_you_mean(*unused.begin(), names), "; the outermost are ", join(names)));
}

// What a tower is fed in every form, or kUnknown.
std::int64_t rows_of_all(std::span<const BatchForm> forms, int tower) {
  const auto t = static_cast<std::size_t>(tower);
  const std::int64_t rows = forms[0].rows[t];
  const bool same =
      std::ranges::all_of(forms, [&](const BatchForm& form) { return form.rows[t] == rows; });
  return same && rows > 0 ? rows : kUnknown;
}

Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others) {
  std::vector<Node*> updates{&update};
  updates.insert(updates.end(), others.begin(), others.end());
  return updates.size() == 1 ? update : group(graph, updates, "train_step");
}

// Whether a tower does.
bool uses_a_variable_twice(const Graph& graph, std::span<const Variable> variables) {
  std::map<const Node*, const Node*> variable_of;  // what reads or writes it
  std::set<std::pair<std::string, const Node*>> uses;
  for (const Variable& variable : variables) variable_of[&variable.node()] = &variable.node();
  for (std::size_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    for (const Output& input : node.inputs()) {
      const auto found = variable_of.find(&input.node());
      if (found == variable_of.end()) continue;
      if (found->first == found->second)
        variable_of[&node] = found->second;
      else if (!uses.emplace(node.origin().prefix, found->second).second)
        return true;
    }
  }
  return false;
}

// What was made of the gradients of all towers, as the graph notes it from entry `first` on.
std::vector<Gradient> combined_gradients(const Graph& graph, std::size_t first,
                                         const GradientTable& table) {
  if (table.towers() == 1) return table.row(0);
  std::vector<Gradient> result;
  for (const CombinedGradient& combined : graph.combined_gradients().subspan(first)) {
    const auto known = std::ranges::find(result, combined.variables[0], &Gradient::variable);
    if (known != result.end())
      known->value = combined.results[0];
    else
      result.push_back({combined.results[0], combined.variables[0]});
  }
  return result;
}

bool every_tower_has_samples(const BatchForm& form) {
  return std::ranges::count(form.samples, 0) == 0;
}

// Where differentiation of each tower's loss starts, with no loss scale. A power of two changes no
// digit of a gradient, and spares a division of its sum.
double seed_of(const Graph& graph, const TrainingGraphOptions& options) {
  const std::size_t towers =
      options.devices.size() * static_cast<std::size_t>(graph.process().size);
  const bool alike = std::ranges::all_of(options.forms, &BatchForm::equal);
  const bool seeds = options.takes_sums && std::has_single_bit(towers) && alike &&
                     options.precision != Precision::kF16;
  return seeds ? 1.0 / static_cast<double>(towers) : 1;
}

// TrainingForm::of_all_towers.
Output losses_of_all(Graph& graph, std::span<const TowerRecord> towers, Output request) {
  std::vector<Output> values;
  for (const TowerRecord& tower : towers) {
    values.push_back(reshape(cast(tower.loss, DType::kF64), {1}));
    for (const NamedOutput& metric : tower.metrics)
      values.push_back(reshape(cast(metric.value, DType::kF64), {1}));
  }
  values.push_back(reshape(request, {1}));
  return gather_over_processes(concat(values, 0), graph.process());
}

void add_values_of_all(Graph& graph, TrainingGraph& built) {
  NameScope names(graph, "values_of_all_towers");
  const HostScope on(graph, built.towers[0].device);  // messages are memory of hosts
  const Output request = placeholder(graph, "request", DType::kF64, {});
  const Output values = losses_of_all(graph, built.towers, request);
  for (TrainingForm& form : built.forms) {
    form.of_all_towers = values;
    form.request = request;
  }
}

// Builds the steps of one graph whose towers exist.
class Forms {
 public:
  Forms(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options, Rows rows)
      : graph_(graph),
        built_(built),
        options_(options),
        seed_(seed_of(graph, options)),
        rows_(std::move(rows)),
        updates_(graph.nodes(kUpdateOps)) {
    // The gradients of all uses are then one sum, which adds tower by tower if each has one use.
    if (rows_.empty() && share_variables())
      built.canonical = !uses_a_variable_twice(graph, built.towers[0].trainables) &&
                        std::ranges::all_of(options.forms, every_tower_has_samples);
  }

  void add(const BatchForm& batch) {
    TrainingForm form{.batch = batch};
    const bool joint = rows_.empty(), equal = batch.equal();
    if (joint) {
      for (std::size_t t = 0; t < built_.towers.size(); ++t)
        if (batch.samples[t] == 0)
          std::ranges::copy_if(
              built_.towers[t].contributions, std::back_inserter(form.zeros),
              [](const Output& given) { return &given.node().op() != &kPlaceholder; });
    }
    if (equal && plain_) {
      form.train_op = plain_;
      form.gradients = plain_gradients_;
    } else {
      const std::size_t first = graph_.combined_gradients().size();
      const GradientTable table(joint ? joint_rows(form) : separate_rows(batch));
      const bool weighted = !equal && !joint;
      form.train_op =
          &update(table, batch,
                  {.weights = weighted ? weights(table, batch) : std::vector<Output>(),
                   .reduction = seed_ == 1 ? Reduction::kMean : Reduction::kSum,
                   .slots = built_.forms.empty() ? OptimizerSlots::kMake : OptimizerSlots::kReuse,
                   .unscaling = unscaling(table, batch, weighted),
                   .accumulation = options_.accumulates ? &form.accumulation : nullptr});
      form.gradients =
          options_.accumulates ? form.accumulation.sums : combined_gradients(graph_, first, table);
      if (equal) plain_ = form.train_op;
      if (equal) plain_gradients_ = form.gradients;
    }
    built_.forms.push_back(std::move(form));
  }

 private:
  std::size_t towers() const { return built_.towers.size(); }
  bool share_variables() const {
    return towers() > 1 && built_.towers[1].trainables == built_.towers[0].trainables;
  }

  std::vector<Gradient> zeros(std::size_t t, const std::vector<Gradient>& like) {
    DeviceScope on(graph_, built_.towers[t].device);
    std::vector<Gradient> row;
    for (const Gradient& g : like)
      row.push_back({fill(graph_, g.variable.shape(), 0, g.value.dtype(), "zeros"), g.variable});
    return row;
  }

  // Of each tower's own loss; zeros for those that are not to run.
  Rows separate_rows(const BatchForm& batch) {
    NameScope names(graph_, "no_samples");
    Rows rows = rows_;
    for (std::size_t t = 0; t < towers(); ++t)
      if (batch.rows[t] == 0) rows[t] = zeros(t, rows_[t]);
    return rows;
  }

  // Of K times the mean of all towers' losses, with respect to each tower's variables; so the mean
  // over towers is what is wanted. Where towers share variables, one row, of that mean: the same
  // sums, divided last.
  Rows joint_rows(const TrainingForm& form) {
    const BatchForm& batch = form.batch;
    const std::vector<Variable>& main = built_.towers[0].trainables;
    const bool shared = share_variables();
    std::vector<Gradient> all = joint_gradients(form, shared);
    if (shared && seed_ == 1) {
      for (Gradient& g : all) {
        DeviceScope on(graph_, g.value.device());
        g.value = g.value / static_cast<double>(towers());
      }
    }
    std::size_t counts = 0;  // a tower that does
    while (batch.samples[counts] == 0) ++counts;
    Rows rows;
    for (std::size_t t = 0; t < (shared ? 1 : towers()); ++t) {
      const bool own = shared || batch.samples[t] > 0;
      const std::vector<Variable>& with_gradient = built_.towers[own ? t : counts].trainables;
      std::vector<Gradient> row;
      for (std::size_t v = 0; v < main.size(); ++v) {
        const auto found = std::ranges::find(all, with_gradient[v], &Gradient::variable);
        if (found != all.end()) row.push_back({found->value, built_.towers[t].trainables[v]});
      }
      rows.push_back(own ? row : zeros(t, row));
    }
    return rows;
  }

  // Not through towers without samples.
  std::vector<Gradient> joint_gradients(const TrainingForm& form, bool shared) {
    const BatchForm& batch = form.batch;
    NameScope names(graph_, "all_towers");
    DeviceScope on(graph_, built_.towers[0].device);
    const auto count = static_cast<double>(towers());
    std::vector<Output> shares;
    std::vector<Variable> variables;
    for (std::size_t t = 0; t < towers(); ++t) {
      const double share =
          count * static_cast<double>(batch.samples[t]) / static_cast<double>(batch.total());
      if (share == 0) continue;
      const TowerRecord& tower = built_.towers[t];
      shares.push_back(share == 1 ? tower.loss : tower.loss * share);
      if (!shared || variables.empty())
        variables.insert(variables.end(), tower.trainables.begin(), tower.trainables.end());
    }
    const Output loss = add_n(shares, "loss");
    return compute_gradients(loss, variables,
                             {.colocate = true,
                              .initial = initial_gradients(built_.loss_scale, loss, seed_),
                              .stop = form.zeros,
                              .recompute = options_.recompute});
  }

  std::vector<Output> weights(const GradientTable& table, const BatchForm& batch) {
    NameScope names(graph_, "samples");
    std::vector<Output> result;
    for (std::size_t t = 0; t < towers(); ++t) {
      DeviceScope on(graph_, built_.towers[t].device);
      result.push_back(constant(graph_, static_cast<double>(batch.samples[t]),
                                table.at(0, 0).value.dtype(), At(cat("tower", t))));
    }
    return result;
  }

  // Sums are of as many gradients as there are towers or, with weights, samples.
  Unscaling unscaling(const GradientTable& table, const BatchForm& batch, bool weighted) {
    Rows rows;
    for (int t = 0; t < table.towers(); ++t) rows.push_back(table.row(t));
    const auto total =
        static_cast<double>(weighted ? batch.total() : std::ssize(rows) * graph_.process().size);
    return unscaling_of(built_.loss_scale, rows, total,
                        [&](std::size_t t) { return !weighted || batch.samples[t] > 0; });
  }

  Node& update(const GradientTable& table, const BatchForm& batch, const UpdateForm& form) {
    Node& update = options_.update(table, form);
    require(!form.accumulation || form.accumulation->begin,
            "the trainer does not accumulate gradients of several batches");
    std::vector<Node*> others = other_updates(graph_, built_, updates_, batch, form.unscaling);
    if (const LossScale& state = built_.loss_scale)
      others.push_back(&update_loss_scale(state.scale, state.good_steps, state.skipped_steps,
                                          form.unscaling.applied,
                                          {.growth_steps = options_.loss_scale.growth_steps}));
    if (Accumulation* const several = form.accumulation) {
      several->begin = &train_step(graph_, *several->begin, others);
      if (several->add) several->add = &train_step(graph_, *several->add, others);
    }
    return train_step(graph_, update, others);
  }

  Graph& graph_;
  TrainingGraph& built_;
  const TrainingGraphOptions& options_;
  const double seed_;
  const Rows rows_;  // empty: gradients are taken of all losses at once
  const std::vector<Node*> updates_;
  Node* plain_ = nullptr;  // the step in which all towers count alike
  std::vector<Gradient> plain_gradients_;
};

// For towers that train apart.
void add_tower_ops(Graph& graph, TrainingGraph& built, const TrainingGraphOptions& options,
                   Rows rows) {
  require(
      !rows.empty(),
      "layers that are synchronised over towers need towers that make steps together, not apart");
  require(options.forms.size() == 1 && options.forms[0].equal(),
          "towers that train apart take batches of one size");
  const std::vector<Node*> updates = options.update_apart(GradientTable(std::move(rows)));
  for (std::size_t t = 0; t < updates.size(); ++t)
    built.tower_ops.push_back(&train_step(graph, *updates[t], built.towers[t].updates));
}

}  // namespace

std::vector<FeedType> TrainingForm::zero_feeds() const {
  std::vector<FeedType> feeds;
  for (const Output& zero : zeros) {
    Shape shape = zero.shape();
    for (std::size_t i = 0; i < shape.rank(); ++i)
      if (shape[i] == kUnknown) shape[i] = 0;
    feeds.push_back({zero, shape});
  }
  return feeds;
}

TrainingGraph build_training_graph(Graph& graph, const TrainingGraphOptions& options) {
  require_names(options.fields);
  require(!options.forms.empty(), "a training graph needs a form of steps");
  TrainingGraph result;
  Rows rows;
  const bool apart = static_cast<bool>(options.update_apart);
  result.loss_scale = make_loss_scale(graph, options);
  const auto build = [&](Tower& tower) {
    const std::int64_t batch =
        tower.is_training() ? rows_of_all(options.forms, tower.here()) : kUnknown;
    const std::vector<Output> inputs = placeholders(tower.graph(), options.fields, batch);
    {
      const AutocastScope types(graph, autocasting(options.precision));
      std::optional<AveragesScope> averages;
      if (!tower.is_training()) averages.emplace(graph, result.towers[0].variables);
      tower.loss(options.model(tower, inputs));
    }
    if (tower.is_training() && !graph.open())
      rows.push_back(compute_gradients(
          tower.loss(), tower.trainables(),
          {.colocate = true,
           .initial = initial_gradients(result.loss_scale, tower.loss(), seed_of(graph, options)),
           .recompute = options.recompute}));
  };
  result.towers = replicate(graph, options.devices, options.variables, build,
                            apart ? MovingAverages::kOfEachTower : MovingAverages::kOfAllTowers);
  require_scopes(result.towers[0], options.recompute);
  if (apart) {
    add_tower_ops(graph, result, options, std::move(rows));
  } else {
    Forms forms(graph, result, options, std::move(rows));
    for (const BatchForm& form : options.forms) forms.add(form);
    if (graph.process().size > 1) add_values_of_all(graph, result);
  }
  for (Node* rate : graph.nodes(kLearningRates)) result.learning_rates.push_back(rate->output());
  for (const TowerRecord& tower : result.towers)
    result.predictors.push_back(
        predict_tower(graph, {.device = tower.device, .index = tower.index}, build));
  return result;
}

}  // namespace belfry
