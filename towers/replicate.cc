#include "belfry/towers/replicate.h"

#include <algorithm>
#include <cctype>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/towers/evaluated_means.h"
#include "belfry/towers/least_loaded_device_setter.h"
#include "belfry/towers/verify_towers.h"

namespace belfry {
namespace {

TowerRecord record_of(const Tower& tower) {
  return {.index = tower.options().index,
          .name = tower.name(),
          .device = tower.device(),
          .inputs = tower.inputs(),
          .loss = tower.loss(),
          .metrics = tower.metrics(),
          .outputs = tower.outputs(),
          .evaluated = evaluated_means(tower),
          .variables = tower.variables(),
          .trainables = tower.trainables(),
          .moments = tower.links().moments(),
          .contributions = tower.links().contributions(),
          .updates = tower.nodes(kUpdateOps),
          .graph = &tower.graph(),
          .call = tower.options().call,
          .asked_for_place = tower.asked_for_place()};
}

bool has(const std::vector<Variable>& list, Variable wanted) {
  return std::ranges::any_of(
      list, [&](const Variable& v) { return v.logical_name() == wanted.logical_name(); });
}

constexpr char kAlike[] = "make the same variables, in one order, in every tower";

// Towers 0 and t of one replicate() call, for errors.
struct Pair {
  int t;
  SourceLine call;

  [[noreturn]] void missing(Variable v, int where, int elsewhere) const {
    throw InvalidArgument(cat("towers disagree: tower ", where, " has variable ", v.describe(),
                              ", but tower ", elsewhere, ", replicated at ", call.str(),
                              ", has none of this name; ", kAlike));
  }

  // Replicas correspond one to one.
  void compare_copies(const std::vector<Variable>& main, const std::vector<Variable>& other) const {
    require_same(main, other);
    for (std::size_t i = 0; i < main.size(); ++i) {
      const Variable a = main[i], b = other[i];
      require(a.logical_name() == b.logical_name(),
              "towers disagree on the order of variables: ", "number ", i, " is ", a.describe(),
              " in tower 0, but ", b.describe(), " in tower ", t, "; ", kAlike);
      require(a.node().output_type(0) == b.node().output_type(0), "towers disagree on variable ",
              a.describe(), " of tower 0: it is ", b.describe(), " in tower ", t, "; ", kAlike);
      require(a.trainable() == b.trainable(), "towers disagree on variable ", a.describe(),
              " of tower 0: only one of them trains it, the other is ", b.describe(), " in tower ",
              t, "; ", kAlike);
    }
  }

  // Towers that share variables use the same ones and make none.
  void compare_uses(const TowerRecord& main, const TowerRecord& other,
                    const std::vector<Variable>& made) const {
    if (!made.empty()) missing(made.front(), t, 0);
    require_same(main.trainables, other.trainables);
  }

  // Both have the same variables, in any order.
  void require_same(const std::vector<Variable>& main, const std::vector<Variable>& other) const {
    const auto name = [](const Variable& v) { return v.logical_name(); };
    if (std::ranges::equal(main, other, {}, name, name)) return;
    for (const Variable& v : main)
      if (!has(other, v)) missing(v, 0, t);
    for (const Variable& v : other)
      if (!has(main, v)) missing(v, t, 0);
  }
};

void require_function(const std::function<void(Tower&)>& build, SourceLine call) {
  require(static_cast<bool>(build), "the tower function (", call.str(),
          ") is empty; give one that builds the model");
}

void require_devices(std::span<const DeviceSpec> devices, SourceLine call) {
  require(!devices.empty(), "replicate (", call.str(), "): name at least one device");
  for (std::size_t t = 0; t < devices.size(); ++t)
    for (std::size_t s = 0; s < t; ++s)
      require(devices[s] != devices[t] || devices[t].empty(), "replicate (", call.str(),
              "): device ", devices[t], " is named twice; each tower needs its own");
}

// Averages exist once, so the other towers do not copy tower 0's.
std::vector<Variable> without_averages(std::vector<Variable> variables,
                                       const std::vector<BatchMoments>& layers) {
  std::erase_if(variables, [&](const Variable& v) {
    return std::ranges::any_of(layers, [&](const BatchMoments& layer) {
      return v == layer.mean_average || v == layer.variance_average;
    });
  });
  return variables;
}

// Names like replicas' are reserved: "tower1/W" is tower 1's copy of "W".
void require_no_tower_names(const Tower& tower) {
  for (const Variable& v : tower.own_variables()) {
    const std::string_view name = v.name().substr(tower.variable_prefix().size());
    std::size_t digits = name.starts_with("tower") ? 5 : name.size();
    while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits]))) ++digits;
    require(digits <= 5 || digits >= name.size() || name[digits] != '/', "variable '", name,
            "' (built at ", v.node().origin().site, ") is named like a copy that a tower has of '",
            name.substr(std::min(digits + 1, name.size())), "'; call its scope otherwise");
  }
}

// The node of this name that is not a variable; null if there is none.
Node* node_called(const Graph& graph, std::string_view name) {
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (Node& node = graph.node(id); node.name() == name && !node.is_variable()) return &node;
  return nullptr;
}

// `found` has the wanted name, but a tower of another call made it. The error gives the name of the
// record's own node, if it has one.
[[noreturn]] void refuse_others(const TowerRecord& record, const Node& found) {
  std::string own;
  for (std::size_t id = 0; id < record.graph->size() && own.empty(); ++id) {
    const Node& node = record.graph->node(id);
    if (node.origin().call != record.call || !node.name().starts_with(cat(found.name(), "_")))
      continue;
    const std::string_view suffix = node.name().substr(found.name().size() + 1);
    if (std::ranges::all_of(suffix, [](unsigned char c) { return std::isdigit(c); }))
      own = cat("; the node of this one is ", node.describe(), ": get(\"",
                node.name().substr(record.name.size() + 1), "\")");
  }
  if (own.empty()) own = "; ask the TowerRecord of that call for it";
  throw InvalidArgument(cat("Name conflict! ", found.describe(),
                            " belongs to another tower called '", record.name,
                            "', of another replicate() or predict_tower()", own));
}

// The names that TowerRecord::get() takes.
std::vector<std::string> names_in(const TowerRecord& record) {
  std::vector<std::string> names;
  const std::string below = record.name + "/";
  for (std::size_t id = 0; id < record.graph->size(); ++id)
    if (const Node& node = record.graph->node(id);
        node.origin().call == record.call && node.name().starts_with(below))
      names.emplace_back(node.name().substr(below.size()));
  for (const NamedOutput& output : record.outputs) names.push_back(output.name);
  for (const Variable& v : record.variables) names.emplace_back(v.logical_name());
  return names;
}

// "; did you mean 'x'?", or a list of the names.
std::string other_names(const TowerRecord& record, std::string_view wanted) {
  const std::vector<std::string> names = names_in(record);
  const std::string hint = did_you_mean(wanted, names);
  if (!hint.empty()) return hint;
  if (names.empty()) return "; its function made none";
  return cat("; ask for one that it has, such as ", join(nearest_several(wanted, names, 5)));
}

// The collection of variables that prediction towers made on a graph without trainable variables.
constexpr std::string_view kInferenceVariables = "inference_variables";

bool trains(Graph& graph) {
  const std::vector<Node*>& untrained = graph.collection(kInferenceVariables);
  return std::ranges::any_of(graph.collection(kTrainableVariables), [&](const Node* variable) {
    return std::ranges::find(untrained, variable) == untrained.end();
  });
}

void require_none_trained(const std::vector<Variable>& made, SourceLine call) {
  for (const Variable& v : made)
    require(!v.trainable(), "predict_tower (", call.str(), ") makes the trainable variable ",
            v.describe(), ", which nothing trains; make it in the training towers, or with ",
            ".trainable = false");
}

void require_none_made(const std::vector<Variable>& made) {
  for (const Variable& v : made)
    throw InvalidArgument(cat("the variable ", v.describe(), " is made only for samples of some ",
                              "shapes; make the same variables for all"));
}

// How the towers of one replicate() call are built.
struct TowerPlan {
  std::span<const DeviceSpec> devices;
  bool replicated = false;  // each tower has its own variables
  const SetterFactory& make_setter;
  const std::function<void(Tower&)>& build;
  bool again = false;  // the variables are those of an earlier call
};

// Builds these towers, one after the other.
class TowerBuilder {
 public:
  TowerBuilder(Graph& graph, const TowerPlan& plan, At at)
      : graph_(graph),
        plan_(plan),
        at_(at),
        count_(static_cast<int>(plan.devices.size())),
        collectives_(graph) {}

  std::vector<TowerRecord> build_all(MovingAverages averages) {
    const std::size_t first = graph_.size();
    for (int t = 0; t < count_; ++t) build_one(t);
    collectives_.close();
    verify_tower_collectives(graph_, first, count_);
    if (averages == MovingAverages::kOfAllTowers)
      move_by_all_towers();
    else
      for (TowerRecord& record : records_) move_by_one_tower(record);
    return std::move(records_);
  }

 private:
  void build_one(int t) {
    const DeviceSpec& device = plan_.devices[static_cast<std::size_t>(t)];
    const int index = graph_.process().rank * count_ + t;
    log_debug("Building graph for training tower ", index, " on device ", device);
    const std::unique_ptr<DeviceSetter> setter =
        plan_.make_setter ? plan_.make_setter(device) : nullptr;
    const bool reuses = plan_.again || (!plan_.replicated && t > 0);
    Tower tower(graph_,
                {.name = cat("tower", index),
                 .index = index,
                 .here = t,
                 .total = count_ * graph_.process().size,
                 .device = device,
                 .setter = setter.get(),
                 .own_variables = plan_.replicated && t > 0,
                 // A variable that tower 0 lacks is made here; the error then names its line.
                 .reuse = reuses ? VariableReuse::kCreateOrGet : VariableReuse::kInherit,
                 .collectives = &collectives_},
                at_);
    tower.links().defer_averages();
    plan_.build(tower);
    collectives_.end_tower(t, at_.site);
    require_no_tower_names(tower);
    records_.push_back(record_of(tower));
    compare(t, without_averages(tower.own_variables(), records_.back().moments));
  }

  // Compares tower t, which has made these variables, with tower 0.
  void compare(int t, std::vector<Variable> made) {
    if (plan_.again)
      require_none_made(made);
    else if (t == 0)
      main_made_ = std::move(made);
    else if (plan_.replicated)
      Pair{t, at_.site}.compare_copies(main_made_, made);
    else
      Pair{t, at_.site}.compare_uses(records_.front(), records_.back(), made);
  }

  void move_by_all_towers() {
    std::vector<std::vector<BatchMoments>> moments;
    for (const TowerRecord& record : records_) moments.push_back(record.moments);
    update_moving_averages(graph_, moments);
  }

  void move_by_one_tower(TowerRecord& record) {
    const std::string collection = cat(kUpdateOps, "/", record.name);
    update_moving_averages(graph_, {&record.moments, 1}, {.collection = collection});
    for (Node* update : graph_.nodes(collection)) record.updates.push_back(update);
  }

  Graph& graph_;
  const TowerPlan& plan_;
  const At at_;
  const int count_;  // of towers in this process
  TowerCollectives collectives_;
  std::vector<TowerRecord> records_;
  std::vector<Variable> main_made_;  // by tower 0
};

// Places the variables that all towers share.
SetterFactory setter_of(VariablePolicy policy, std::span<const DeviceSpec> devices) {
  if (policy != VariablePolicy::kSpread && policy != VariablePolicy::kOnHost) return {};
  return [=](const DeviceSpec& worker) {
    std::vector<DeviceSpec> over{DeviceSpec::local("CPU", 0)};
    if (policy == VariablePolicy::kSpread) over.assign(devices.begin(), devices.end());
    return std::make_unique<LeastLoadedDeviceSetter>(worker, std::move(over));
  };
}

std::vector<TowerRecord> build_towers(Graph& graph, const TowerPlan& plan, MovingAverages averages,
                                      At at) {
  require_devices(plan.devices, at.site);
  require_function(plan.build, at.site);
  return TowerBuilder(graph, plan, at).build_all(averages);
}

}  // namespace

Output TowerRecord::get(std::string_view tensor) const {
  require(graph != nullptr, "tower '", name, "' was not built; replicate() fills it in");
  const std::size_t colon = tensor.find(':');
  const std::string_view node_name = tensor.substr(0, colon);
  const std::string_view digit = colon == tensor.npos ? "0" : tensor.substr(colon + 1);
  require<NotFoundError>(digit.size() == 1 && std::isdigit(static_cast<unsigned char>(digit[0])),
                         "tower '", name, "' has no tensor '", tensor, "'; write name or name:1");
  const auto output = static_cast<std::size_t>(digit[0] - '0');
  for (const NamedOutput& named : outputs)
    if (output == 0 && named.name == node_name) return named.value;
  for (const Output& input : inputs)
    if (output == 0 && input.node().logical_name() == node_name) return input;
  const Node* node = node_called(*graph, cat(name, "/", node_name));
  // Nodes made outside of tower functions (call 0), such as gradients, may belong to this tower.
  const bool others = node && node->origin().call != 0 && node->origin().call != call;
  if (node && !others && output < node->outputs()) return node->output(output);
  for (const TowerMetric& metric : metrics)
    if (output == 0 && metric.is_mean() && metric.name == node_name) return metric.value;
  for (const Variable& v : variables)
    if (output == 0 && v.logical_name() == node_name) return v;
  if (others) refuse_others(*this, *node);
  throw NotFoundError(
      cat("tower '", name, "' has no tensor '", tensor, "'", other_names(*this, node_name)));
}

std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   At at) {
  return replicate(graph, devices, policy, build, MovingAverages::kOfAllTowers, at);
}

std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   MovingAverages averages, At at) {
  const SetterFactory spread = setter_of(policy, devices);
  return build_towers(graph, {devices, policy == VariablePolicy::kReplicated, spread, build},
                      averages, at);
}

std::vector<TowerRecord> replicate_again(Graph& graph, std::span<const DeviceSpec> devices,
                                         VariablePolicy policy,
                                         const std::function<void(Tower&)>& build, At at) {
  const SetterFactory spread = setter_of(policy, devices);
  return build_towers(graph, {devices, policy == VariablePolicy::kReplicated, spread, build, true},
                      MovingAverages::kOfAllTowers, at);
}

std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   const SetterFactory& setter,
                                   const std::function<void(Tower&)>& build, At at) {
  require(static_cast<bool>(setter), "replicate (", at.site, "): the setter factory is empty");
  return build_towers(graph, {devices, false, setter, build}, MovingAverages::kOfAllTowers, at);
}

TowerRecord predict_tower(Graph& graph, PredictOptions options,
                          const std::function<void(Tower&)>& build, At at) {
  require_function(build, at.site);
  const bool others_train = trains(graph);
  Tower tower(graph,
              {.name = cat("tower-pred-", options.index),
               .index = options.index,
               .training = false,
               .device = options.device,
               .reuse = others_train ? VariableReuse::kMustExist : VariableReuse::kCreateOrGet},
              at);
  build(tower);
  const std::vector<Variable> made = tower.own_variables();
  if (others_train) require_none_trained(made, at.site);
  for (const Variable& v : made)
    if (!others_train) graph.add_to_collection(kInferenceVariables, v.node());
  return record_of(tower);
}

}  // namespace belfry
