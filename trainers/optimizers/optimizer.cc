#include "belfry/trainers/optimizers/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/weights.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/updates/global_norm.h"
#include "belfry/towers/moving_average.h"

namespace belfry {
namespace {

// A variable on the device of `beside`, which is a replica if `beside` is one. `options` has its
// other properties. `role`: kStateVariables or kAverageVariables.
Variable state_beside(Variable beside, const std::string& logical_name, Shape shape, DType dtype,
                      At at, OptimizerSlots slots, VariableOptions options = {},
                      std::string_view role = kStateVariables) {
  Graph& graph = beside.node().graph();
  const std::string prefix(beside.node().origin().prefix);
  const std::string name = prefix + logical_name;
  const Variable existing = graph.stored_variable(name);
  if (existing && slots == OptimizerSlots::kReuse) return existing;
  require(!existing, "variable '", name, "' exists already",
          existing ? cat(" (built at ", existing.node().origin().site, ")") : "", ", so ", at.site,
          " cannot make it: give the optimizer another name");
  options.dtype = dtype;
  options.trainable = false;
  if (!options.initializer) options.initializer = init::zeros();
  const bool local = beside.node().variable().local;
  options.collections = {std::string(local ? kLocalVariables : kGlobalVariables),
                         std::string(role)};
  if (const Variable main = graph.stored_variable(logical_name); main && !prefix.empty())
    options.copy_of = &main.node();
  const ReplicaScope replica(graph, prefix, beside.node().origin().replica);
  // Sets device scopes aside, so that setters do not count slots as load.
  const ColocateWith with(beside.ref(), at.site);
  const Variable made = graph.create_variable({name, std::move(shape), std::move(options)}, at);
  graph.store_variable(name, made);
  return made;
}

Output fed_rate(Graph& graph, const std::string& optimizer, DType dtype, At at) {
  const std::string name = cat(optimizer, "/learning_rate_", name_of(dtype));
  for (Node* node : graph.nodes(kLearningRates))
    if (node->name() == name) return node->output();
  const ControlDependencies none(graph, nullptr);
  const NameScope root(graph, "");
  const ReplicaScope main(graph, "", 0);
  const HostScope host(graph, {}, at.site);
  const Output rate = placeholder(graph, name, dtype, {}, At(name, at.site));
  graph.add_to_collection(kLearningRates, rate.node());
  return rate;
}

std::vector<Output> norms_of_each(std::span<const Output> tensors) {
  std::vector<Output> norms;
  for (const Output& tensor : tensors) norms.push_back(global_norm({&tensor, 1}));
  return norms;
}

// The gradients that have a value, in their order.
std::vector<Gradient> provided(std::span<const Gradient> all, const std::string& optimizer,
                               SourceLine site) {
  require(!all.empty(), "No variables provided. ", optimizer, " (built at ", site,
          ") has no gradients to apply");
  std::vector<Gradient> result;
  for (const Gradient& g : all) {
    if (!g.variable)
      throw InvalidArgument(cat(optimizer, " (built at ", site, "): a gradient",
                                g.value ? cat(", ", g.value.node().describe(), ",") : "",
                                " has no variable"));
    if (g.value) result.push_back(g);
  }
  if (!result.empty()) return result;
  std::vector<std::string> names;
  for (const Gradient& g : all) names.push_back(cat("'", g.variable.name(), "'"));
  throw InvalidArgument(cat("No gradients provided for any variable: [", join(names), "]. ",
                            optimizer, " (built at ", site,
                            ") has nothing to apply; does the loss depend on them?"));
}

}  // namespace

Optimizer Optimizer::with_rate(LearningRate rate) const {
  Optimizer copy = *this;
  copy.rule_.rate = std::move(rate);
  return copy;
}

Optimizer Optimizer::with_weight_decay(double weight_decay) const {
  require(rule_.takes_weight_decay || weight_decay == 0, "the optimizer ", rule_.name,
          " takes no weight decay, here of ", weight_decay,
          " (Optimizer::Rule::takes_weight_decay); ", join(optimizer_names()), " do");
  require(weight_decay >= 0 && std::isfinite(weight_decay),
          "the weight decay must be a finite number >= 0, not ", weight_decay);
  Optimizer copy = *this;
  copy.rule_.weight_decay = weight_decay;
  return copy;
}

Optimizer Optimizer::with_decay_form(DecayForm form) const {
  require(rule_.takes_decay_form || form == rule_.decay_form, "the optimizer ", rule_.name,
          " has one form of weight decay, its own (Optimizer::Rule::takes_decay_form)");
  Optimizer copy = *this;
  copy.rule_.decay_form = form;
  return copy;
}

Optimizer Optimizer::with_option(std::string_view name, double value) const {
  std::vector<std::string> names;
  for (const OptimizerOption& option : rule_.options) names.push_back(option.name);
  require(std::ranges::count(names, name) > 0, "the optimizer ", rule_.name, " has no option ",
          name, "; ", names.empty() ? "it has none but rate and weight decay" : "it has ",
          join(names));
  Optimizer changed = rule_.with(name, value);
  changed.rule_.rate = rule_.rate;
  changed.rule_.weight_decay = rule_.weight_decay;
  changed.rule_.decay_form = rule_.decay_form;
  changed.scope_ = scope_;
  changed.groups_ = groups_;
  changed.averages_ = averages_;
  return changed;
}

Optimizer Optimizer::with_groups(std::vector<VariableGroup> groups) const {
  check_groups(groups);
  for (const VariableGroup& group : groups)
    require(rule_.takes_weight_decay || group.weight_decay.value_or(0) == 0, "the group ",
            group.str(), " has a weight decay, and the optimizer ", rule_.name,
            " takes none (Optimizer::Rule::takes_weight_decay); leave it out");
  Optimizer copy = *this;
  copy.groups_ = std::move(groups);
  return copy;
}

double Optimizer::weight_decay_of(Variable variable) const {
  for (const std::vector<VariableGroup>* const groups : {&groups_, &rule_.groups}) {
    const VariableGroup* const own = group_of(*groups, variable.logical_name(), variable.shape());
    if (own && own->weight_decay) return *own->weight_decay;
  }
  return rule_.weight_decay;
}

Optimizer Optimizer::with_scope(std::string scope) const {
  Optimizer copy = *this;
  copy.scope_ = std::move(scope);
  return copy;
}

std::string Optimizer::scoped(const std::string& name) const {
  return scope_.empty() ? name : cat(scope_, "/", name);
}

Optimizer Optimizer::with_averages(WeightAverages averages) const {
  check_averages(averages);
  Optimizer copy = *this;
  copy.averages_ = averages;
  return copy;
}

// The state that the updates of one call have in common. begin() makes it.
struct Optimizer::Shared {
  // Moves a counter by one update, unless that is skipped.
  Node& count(Variable number, At at) {
    Graph& graph = number.node().graph();
    const ColocateWith with(number.ref(), at.site);
    const ControlDependencies after(graph, before(number));
    const Output one = unscaling.applied;
    Node& counted =
        assign_add(number, one ? one : constant(graph, 1, DType::kI64), At("step", at.site));
    last[&number.node()] = {&counted};
    return counted;
  }
  // The update before this one of each variable or counter, where updates are ordered.
  const std::vector<Node*>& before(Variable written) {
    static const std::vector<Node*> kNone;
    return order == UpdateOrder::kOneByOne ? last[&written.node()] : kNone;
  }

  // The rate of a row times that of a variable's group.
  Output rate(Variable variable, double factor, SourceLine site) {
    const Output of_row = row_rates[variable.dtype()];
    if (factor == 1) return of_row;
    Output& rate = group_rates[{variable.dtype(), factor}];
    if (!rate) {
      const ControlDependencies none(of_row.graph(), nullptr);
      const HostScope host(of_row.graph(), {}, site);
      rate = mul(of_row, constant(of_row.graph(), factor, of_row.dtype(), "factor"),
                 At("group_rate", site));
    }
    return rate;
  }

  UpdateOrder order;
  OptimizerSlots make_or_reuse;  // variables of slots and counters
  const Unscaling& unscaling;
  const UpdatedParts* parts = nullptr;
  std::map<DType, Output> row_rates = {};
  std::map<std::pair<DType, double>, Output> group_rates = {};  // those other than the row's
  Variable counter = {};
  Variable update_counter = {};                             // of averages that count
  std::map<DType, Output> average_steps = {};               // of the present row
  std::map<const Node*, Variable> averages = {};            // by variable
  std::map<const Node*, std::vector<Variable>> slots = {};  // by variable
  std::map<const Node*, std::vector<Node*>> last = {};      // by variable: one node, or none
};

Node& Optimizer::apply(std::span<const Gradient> gradients, At at, OptimizerSlots slots,
                       const Unscaling& unscaling) const {
  Shared shared = begin(UpdateOrder::kOneByOne, slots, unscaling, at.site);
  return apply_row(gradients, shared, at);
}

Node& Optimizer::apply_parts(std::span<const Gradient> gradients, const UpdatedParts& parts, At at,
                             OptimizerSlots slots, const Unscaling& unscaling) const {
  Shared shared = begin(UpdateOrder::kOneByOne, slots, unscaling, at.site);
  require(rule_.takes_parts, "the optimizer ", rule_.name, " (built at ", at.site,
          ") updates whole variables, not parts of them: its rule does not say that it heeds "
          "Update::part_from (.takes_parts)");
  shared.parts = &parts;
  return apply_row(gradients, shared, at);
}

std::vector<Node*> Optimizer::apply_each(std::span<const std::vector<Gradient>> rows,
                                         UpdateOrder order, At at, OptimizerSlots slots,
                                         const Unscaling& unscaling) const {
  Shared shared = begin(order, slots, unscaling, at.site);
  std::vector<Node*> updates;
  for (const std::vector<Gradient>& row : rows) updates.push_back(&apply_row(row, shared, at));
  return updates;
}

Optimizer::Shared Optimizer::begin(UpdateOrder order, OptimizerSlots slots,
                                   const Unscaling& unscaling, SourceLine site) const {
  require(static_cast<bool>(rule_.update), "no optimizer was given; e.g. sgd(0.1)");
  require(
      rule_.takes_loss_scale || !unscaling.factor, "the optimizer ", rule_.name, " (built at ",
      site,
      ") cannot apply gradients of a scaled loss, or clipped ones: its rule does not say that it "
      "heeds Update::factor (.takes_loss_scale)");
  return {.order = order, .make_or_reuse = slots, .unscaling = unscaling};
}

Node& Optimizer::apply_row(std::span<const Gradient> row, Shared& shared, At at) const {
  const std::vector<Gradient> gradients = provided(row, rule_.name, at.site);
  require(!shared.parts || gradients.size() == shared.parts->parts.size(), "the optimizer ",
          rule_.name, " (built at ", at.site, ") has ", gradients.size(),
          " gradients for parts of ", shared.parts ? shared.parts->parts.size() : 0,
          " variables; give one per variable");
  const Variable first = gradients[0].variable;
  Graph& graph = first.node().graph();
  const SiteScope site(graph, at.site);
  const std::string prefix(first.node().origin().prefix);
  const ReplicaScope replica(graph, prefix, first.node().origin().replica);
  std::optional<NameScope> tower;
  if (!prefix.empty()) tower.emplace(graph, prefix);
  const NameScope names(graph, at.name.empty() ? "apply_gradients" : at.name);

  for (const auto& [value, variable] : gradients) {
    Output& rate = shared.row_rates[variable.dtype()];
    if (rate) continue;
    rate = rule_.rate.is_constant()
               ? constant(graph, rule_.rate.at({}), variable.dtype(), At("learning_rate", at.site))
               : fed_rate(graph, scoped(rule_.name), variable.dtype(), at);
  }
  Output step;
  if (rule_.counts_steps) {
    if (!shared.counter)
      shared.counter = state_beside(first, scoped(rule_.name + "/step"), {}, DType::kI64, at,
                                    shared.make_or_reuse);
    step = shared.count(shared.counter, at).output();
  }
  // Tower 0's alone: averages have no copies.
  const bool averages = averages_ && !first.node().variable().copy_of;
  if (averages) begin_averages(gradients, shared, at);
  std::vector<Node*> updates;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    updates.push_back(&update(gradients[i], i, step, shared, at));
  if (shared.parts) updates = shared.parts->gather(updates);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Variable variable = gradients[i].variable;
    if (averages) updates.push_back(&average(variable, *updates[i], shared, at));
    shared.last[&variable.node()] = {averages ? updates.back() : updates[i]};
  }
  Node& all_updates = group(graph, updates, At(names.path(), at.site));
  graph.add_to_collection(kTrainOp, all_updates);
  return all_updates;
}

// Adds the update of variable i of a row, and makes its slots.
Node& Optimizer::update(const Gradient& gradient, std::size_t i, Output step, Shared& shared,
                        At at) const {
  const Variable variable = gradient.variable;
  Graph& graph = variable.node().graph();
  const VariablePart* const part = shared.parts ? &shared.parts->parts[i] : nullptr;
  const auto rank = static_cast<std::size_t>(graph.process().rank);
  const auto [found, is_new] = shared.slots.try_emplace(&variable.node());
  std::vector<Variable>& slots = found->second;
  for (std::size_t s = 0; is_new && s < rule_.slots.size(); ++s)
    slots.push_back(state_beside(
        variable, cat(variable.logical_name(), "/", rule_.slots[s]),
        part ? Shape{part->cuts[rank + 1] - part->cuts[rank]} : variable.shape(), variable.dtype(),
        at, shared.make_or_reuse, {.part = part ? std::optional(*part) : std::nullopt}));
  const VariableGroup* const group =
      group_of(groups_, variable.logical_name(), variable.whole_shape());
  require(!group || !group->freeze, "the optimizer ", rule_.name, " (built at ", at.site,
          ") has a gradient of ", variable.describe(), ", which the group ",
          group ? group->str() : "", " freezes; build the model in a VariableScope with a ",
          "FreezingGetter, or leave the gradient out");
  const Output rate = shared.rate(variable, group ? group->rate : 1, at.site);
  const NameScope names(graph, cat("update_", variable.logical_name()));
  const ColocateWith with(variable.ref(), at.site);
  const ControlDependencies after(graph, shared.before(variable));
  const auto norms = [&](std::span<const Output> tensors) {
    return part ? shared.parts->norms(i, tensors) : norms_of_each(tensors);
  };
  return rule_.update({variable, slots, gradient.value, shared.unscaling.factor, rate, step,
                       weight_decay_of(variable), rule_.decay_form, part ? part->cuts[rank] + 1 : 0,
                       norms, At(at.site)});
}

// Adds the steps by which the averages of a row are moved.
void Optimizer::begin_averages(const std::vector<Gradient>& gradients, Shared& shared,
                               At at) const {
  Graph& graph = gradients[0].variable.node().graph();
  Output number;
  if (averages_->counts_updates) {
    if (!shared.update_counter)
      shared.update_counter =
          state_beside(gradients[0].variable, scoped(cat(kWeightAverage, "/num_updates")), {},
                       DType::kI64, at, shared.make_or_reuse);
    number = shared.count(shared.update_counter, at).output();
  }
  shared.average_steps.clear();
  for (const auto& [value, variable] : gradients)
    if (Output& step = shared.average_steps[variable.dtype()]; !step)
      step = average_step(graph, *averages_, number, variable.dtype());
}

// Behind the update. The next one of the variable waits for it.
Node& Optimizer::average(Variable variable, Node& update, Shared& shared, At at) const {
  Graph& graph = variable.node().graph();
  Variable& average = shared.averages[&variable.node()];
  const Initializer first_value = [&](Graph&, const Shape&, DType) {
    return identity(variable.node().variable().initial);
  };
  if (!average)
    average = state_beside(variable, cat(variable.logical_name(), "/", kWeightAverage),
                           variable.shape(), variable.dtype(), at, shared.make_or_reuse,
                           {.initializer = first_value}, kAverageVariables);
  const ControlDependencies after(graph, std::vector<Node*>{&update});
  return move_average(average, variable, shared.average_steps[variable.dtype()],
                      shared.unscaling.factor);
}

Node& apply_to_towers(const GradientTable& gradients, At at,
                      const std::function<Node&(int, At)>& apply) {
  Graph& graph = gradients.graph();
  const std::string_view name = at.name.empty() ? "train_op" : at.name;
  const auto apply_on = [&](int t, std::string_view part) -> Node& {
    const DeviceScope on(graph, gradients.device(t), at.site);
    return apply(t, At(part, at.site));
  };
  if (gradients.shares_variables()) return apply_on(0, name);
  // Below it in each tower's own names, so that the towers' logical names are equal.
  const NameScope all(graph, name, at.site), root(graph, "", at.site);
  const std::string part = all.path() + "apply_gradients";
  std::vector<Node*> towers;
  for (int t = 0; t < gradients.towers(); ++t) towers.push_back(&apply_on(t, part));
  return group(graph, towers, At(all.path(), at.site));
}

Node& apply_gradients(const Optimizer& optimizer, const GradientTable& gradients, At at,
                      OptimizerSlots slots, const Unscaling& unscaling) {
  return apply_to_towers(gradients, at, [&](int t, At of_tower) -> Node& {
    return optimizer.apply(gradients.row(t), of_tower, slots, unscaling);
  });
}

}  // namespace belfry
