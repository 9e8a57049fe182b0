#include "belfry/towers/replicate.h"

#include <algorithm>
#include <optional>

#include "belfry/framework/log.h"
#include "belfry/towers/least_loaded_device_setter.h"

namespace belfry {
namespace {

TowerRecord record_of(const Tower& tower) {
  return {.index = tower.index(),
          .name = tower.name(),
          .device = tower.device(),
          .inputs = tower.inputs(),
          .loss = tower.loss(),
          .metrics = tower.metrics(),
          .outputs = tower.outputs(),
          .variables = tower.variables(),
          .trainables = tower.trainables()};
}

std::string describe(Variable v) {
  return cat("'", v.logical_name(), "' ", v.node().output_type(0), " (built at ",
             v.node().site().str(), ")");
}

bool has(const std::vector<Variable>& list, Variable wanted) {
  return std::ranges::any_of(
      list, [&](const Variable& v) { return v.logical_name() == wanted.logical_name(); });
}

// Towers 0 and t of one replicate() call, for errors.
struct Pair {
  int t;
  Site call;

  [[noreturn]] void missing(Variable v, int where, int elsewhere) const {
    throw InvalidArgument(cat("towers disagree: tower ", where, " has variable ", describe(v),
                              ", but tower ", elsewhere, ", replicated at ", call.str(),
                              ", has none of this name"));
  }

  // Replicas correspond one to one.
  void compare_copies(const std::vector<Variable>& main, const std::vector<Variable>& other) const {
    for (const Variable& v : main)
      if (!has(other, v)) missing(v, 0, t);
    for (const Variable& v : other)
      if (!has(main, v)) missing(v, t, 0);
    for (std::size_t i = 0; i < main.size(); ++i) {
      const Variable a = main[i], b = other[i];
      require(a.logical_name() == b.logical_name(),
              "towers disagree on the order of variables: ", "number ", i, " is ", describe(a),
              " in tower 0, but ", describe(b), " in tower ", t);
      require(a.node().output_type(0) == b.node().output_type(0), "towers disagree on variable ",
              describe(a), " of tower 0: it is ", describe(b), " in tower ", t);
      require(a.trainable() == b.trainable(), "towers disagree on variable ", describe(a),
              " of tower 0: only one of them trains it, the other is ", describe(b), " in tower ",
              t);
    }
  }

  // Towers on the same variables use the same ones and make none.
  void compare_uses(const TowerRecord& main, const TowerRecord& other,
                    const std::vector<Variable>& made) const {
    if (!made.empty()) missing(made.front(), t, 0);
    for (const Variable& v : main.trainables)
      if (!has(other.trainables, v)) missing(v, 0, t);
    for (const Variable& v : other.trainables)
      if (!has(main.trainables, v)) missing(v, t, 0);
  }
};

void require_devices(std::span<const DeviceSpec> devices, Site call) {
  require(!devices.empty(), "replicate (", call.str(), "): name at least one device");
  for (std::size_t t = 0; t < devices.size(); ++t)
    for (std::size_t s = 0; s < t; ++s)
      require(devices[s] != devices[t] || devices[t].empty(), "replicate (", call.str(),
              "): device ", devices[t], " is named twice; each tower needs its own");
}

// Averages exist once, so tower 0's are none of those that others copy.
std::vector<Variable> without_averages(std::vector<Variable> variables,
                                       const std::vector<BatchMoments>& layers) {
  std::erase_if(variables, [&](const Variable& v) {
    return std::ranges::any_of(layers, [&](const BatchMoments& layer) {
      return v == layer.mean_average || v == layer.variance_average;
    });
  });
  return variables;
}

}  // namespace

std::vector<TowerRecord> replicate(Graph& graph, std::span<const DeviceSpec> devices,
                                   VariablePolicy policy, const std::function<void(Tower&)>& build,
                                   At at) {
  require_devices(devices, at.site);
  const int total = static_cast<int>(devices.size());
  const bool replicated = policy == VariablePolicy::kReplicated;
  std::vector<TowerRecord> records;
  std::vector<std::vector<BatchMoments>> moments;
  std::vector<Variable> main_made;
  for (int t = 0; t < total; ++t) {
    std::optional<LeastLoadedDeviceSetter> setter;
    if (policy == VariablePolicy::kSpread)
      setter.emplace(devices[t], std::vector(devices.begin(), devices.end()));
    Tower tower(graph,
                {.name = cat("tower", t),
                 .index = t,
                 .total = total,
                 .device = devices[t],
                 .setter = setter ? &*setter : nullptr,
                 .own_variables = replicated && t > 0,
                 // What tower 0 lacks is made here, and then refused with its line.
                 .reuse = !replicated && t > 0 ? Reuse::kCreateOrGet : Reuse::kInherit},
                at);
    tower.defer_averages();
    build(tower);
    records.push_back(record_of(tower));
    moments.push_back(tower.moments());
    const std::vector<Variable> made = without_averages(tower.own_variables(), moments.back());
    if (t == 0)
      main_made = made;
    else if (replicated)
      Pair{t, at.site}.compare_copies(main_made, made);
    else
      Pair{t, at.site}.compare_uses(records[0], records[t], made);
    log_debug("tower ", t, " of ", total, " built on ", devices[t]);
  }
  update_moving_averages(graph, moments);
  return records;
}

TowerRecord predict_tower(Graph& graph, PredictOptions options,
                          const std::function<void(Tower&)>& build, At at) {
  Tower tower(graph,
              {.name = cat("tower-pred-", options.index),
               .index = options.index,
               .training = false,
               .device = options.device,
               .reuse = Reuse::kMustExist},
              at);
  build(tower);
  return record_of(tower);
}

}  // namespace belfry
