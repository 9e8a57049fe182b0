#include "belfry/allreduce/verify/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "belfry/allreduce/verify/gradient_flow.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// "'fc/W' f32[4,3] (built at model.cc:41)"; parts of a packed table have no variable.
std::string named(const Gradient& g) {
  if (g.variable) return g.variable.describe();
  return TensorText(g.value.name(), g.value.type(), g.value.node().origin().site);
}

// Whether a gradient is the same in all towers: a constant, or zeros or ones of some shape.
bool is_fixed(Output value) { return value.node().op().metadata || value.node().inputs().empty(); }

// The tower that computes a gradient, or -1 if its names do not say.
int tower_of(Output gradient) {
  const Node& node = gradient.node();
  const Node& named_by = node.origin().forward ? *node.origin().forward : node;
  return named_by.origin().prefix.empty() ? -1 : named_by.origin().replica;
}

void verify_row(const std::vector<Gradient>& row, std::size_t t) {
  std::unordered_set<const Node*> seen;
  for (const Gradient& g : row) {
    if (!g.variable) continue;
    const bool fresh = seen.insert(&g.variable.node()).second;
    if (fresh && g.value.shape().compatible(g.variable.shape())) continue;
    require(fresh, "tower ", t, " has two gradients of variable ", named(g), "; the second is ",
            g.value.node().describe(), "; add them up, or leave one out");
    throw InvalidArgument(cat("tower ", t, ": the gradient of variable ", named(g), ", ",
                              g.value.node().describe(), ", is ", g.value.type(),
                              "; a gradient has the shape of its variable"));
  }
}

// Verifies the gradients of one variable on all towers.
void verify_column(const std::vector<Gradient>& column) {
  std::unordered_set<const Node*> variables;
  for (const Gradient& g : column)
    if (g.variable) variables.insert(&g.variable.node());
  if (variables.size() > 1 && variables.size() != column.size())
    throw InvalidArgument(cat("variable ", named(column[0]), " has ", variables.size(),
                              " copies for ", column.size(),
                              " towers; either all towers share it, or each has its own"));
  std::map<std::pair<int, int>, std::size_t> towers;  // by gradient
  for (std::size_t t = 0; t < column.size(); ++t) {
    const Gradient& g = column[t];
    const auto [first, fresh] = towers.emplace(g.value.key(), t);
    if (!fresh && !is_fixed(g.value))
      throw InvalidArgument(cat(
          "towers ", first->second, " and ", t, " have the same tensor as gradient of variable ",
          named(g), ": ", g.value.node().describe(), "; each tower differentiates its own loss"));
    if (variables.size() < 2) continue;
    const int owner = g.variable.node().origin().replica, maker = tower_of(g.value);
    const int before = t == 0 ? -1 : column[t - 1].variable.node().origin().replica;
    if (before < owner && (maker < 0 || maker == owner)) continue;
    require(before < owner, "row ", t, " of the gradients has the copy of variable ", named(g),
            " that belongs to tower ", owner, ", after that of tower ", before,
            "; rows come in the order of towers");
    throw InvalidArgument(cat("the gradient of variable ", named(g), " for tower ", owner, ", ",
                              g.value.node().describe(), ", was computed by tower ", maker));
  }
}

// "the combined gradient of variable 'w' f32[2] (built at model.cc:4) for tower 1, AddN 'sum'
// (...),".
std::string result_of(const Gradient& combined, int t) {
  return cat("the combined gradient of variable ", named(combined), " for tower ", t, ", ",
             combined.value.node().describe(), ",");
}

// Whether the result of variable v for tower t has each tower's gradient once.
bool is_sum(const GradientFlow::Found& found, int v, int t) {
  const int kind = found.mix->kind;
  return (kind == GradientMix::kMany || kind == v) && (found.home < 0 || found.home == t) &&
         found.whole;
}

class Results {
 public:
  Results(const GradientTable& grads, const GradientTable& combined)
      : grads_(grads), combined_(combined) {}

  // Verifies what strategies made from node `first` on.
  void verify(std::size_t first) const {
    GradientFlow flow(grads_);
    verify_collectives(flow, first);
    for (int v = 0; v < grads_.variables(); ++v)
      for (int t = 0; t < grads_.towers(); ++t) verify_mix(flow, t, v);
  }

 private:
  std::string result(int t, int v) const { return result_of(combined_.at(t, v), t); }

  // In a collective, each tensor belongs to one variable, and participants are in order.
  void verify_collectives(GradientFlow& flow, std::size_t first) const {
    const Graph& graph = grads_.graph();
    for (std::size_t id = first; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (!node.op().collective) continue;
      const std::size_t count = participants(node);
      for (std::size_t begin = 0; begin < node.inputs().size(); begin += count)
        verify_participants(flow, node, begin, begin + count);
    }
  }

  void verify_participants(GradientFlow& flow, const Node& node, std::size_t begin,
                           std::size_t end) const {
    std::shared_ptr<const GradientMix> previous = std::make_shared<GradientMix>();
    for (std::size_t i = begin; i < end; ++i) {
      const GradientFlow::Found found = flow.of(node.input(i));
      const GradientMix &mix = *found.mix, &before = *previous;
      if (mix.kind < 0) continue;
      const int tower = mix.only_tower(), last = before.only_tower();
      const bool fits = before.kind < 0 || before.kind == mix.kind;
      if (fits && (tower < 0 || tower > last)) {
        previous = found.mix;
        continue;
      }
      require(fits, node.describe(), ": participant ", i - begin, " gives a gradient of variable ",
              named(grads_.at(0, mix.variable)), ", but the one before it one of ",
              named(grads_.at(0, std::max(0, before.variable))));
      require(tower != last, node.describe(), ": tower ", tower,
              " takes part twice in the sum of the gradients of variable ",
              named(grads_.at(0, mix.variable)));
      throw InvalidArgument(cat(node.describe(), ": tower ", tower, " comes after tower ", last,
                                " in the sum of the gradients of variable ",
                                named(grads_.at(0, mix.variable)),
                                "; participants are in the order of towers"));
    }
  }

  void verify_mix(GradientFlow& flow, int t, int v) const {
    const Shape& shape = grads_.at(t, v).value.shape();
    if (shape.is_fully_known() && shape.elements() == 0) return;  // nothing to add
    const GradientFlow::Found found = flow.of(combined_.at(t, v).value);
    if (is_sum(found, flow.alias(v), t)) return;
    const GradientMix& mix = *found.mix;
    require(mix.kind != GradientMix::kNone, result(t, v), " is made of no tower's gradient");
    require(mix.kind != GradientMix::kAdded, result(t, v), " adds gradients of two variables, ",
            named(grads_.at(t, std::max(0, mix.variable))), " and ",
            named(grads_.at(t, std::max(0, mix.other))));
    require(mix.kind == GradientMix::kMany || mix.kind == flow.alias(v), result(t, v),
            " is made of gradients of variable ", named(grads_.at(t, std::max(0, mix.variable))));
    const int only = mix.only_tower();
    require(only < 0, result(t, v), " is made of the gradient of tower ", only, " alone");
    for (int u = 0; u < grads_.towers(); ++u) {
      const int times = mix.of_tower(u).times;
      const bool lacking = mix.exact && mix.of_tower(u).least == 0;
      require(times > 0 && !lacking, times > 0 ? "a part of " : "", result(t, v),
              " lacks the gradient of tower ", u, ", ", grads_.at(u, v).value.node().describe());
      require(times == 1 || !mix.exact, result(t, v), " has the gradient of tower ", u, ", ",
              grads_.at(u, v).value.node().describe(), ", ", times, " times");
    }
    throw InvalidArgument(cat(result(t, v), " is the copy of tower ", found.home));
  }

  const GradientTable& grads_;
  const GradientTable& combined_;
};

}  // namespace

bool same_type(Output a, Output b) {
  return a.dtype() == b.dtype() && a.shape().compatible(b.shape());
}

void verify_rows(const GradientRows& rows, const std::vector<DeviceSpec>& devices) {
  for (std::size_t t = 0; t < rows.size(); ++t) verify_row(rows[t], t);
  for (std::size_t v = 0; v < rows[0].size(); ++v) {
    std::vector<Gradient> column;
    for (const std::vector<Gradient>& row : rows) column.push_back(row[v]);
    verify_column(column);
  }
  const std::set<std::string> distinct = [&] {
    std::set<std::string> names;
    for (const DeviceSpec& device : devices) names.insert(device.str());
    return names;
  }();
  if (distinct.contains("") || distinct.size() == 1 || distinct.size() == devices.size()) return;
  for (std::size_t t = 0; t < devices.size(); ++t)
    for (std::size_t s = 0; s < t; ++s)
      require(devices[s] != devices[t], "towers ", s, " and ", t, " both have their gradients on ",
              devices[t], ", but other towers have devices of their own; that of variable ",
              named(rows[t][0]), " is ", rows[t][0].value.node().describe());
}

void verify_layout(const GradientRows& rows, const OutputRows& values) {
  const std::size_t towers = rows.size(), variables = rows[0].size();
  require(values.size() <= towers, "combined gradients are for ", values.size(),
          " towers instead of ", towers, "; the row too many begins beside variable ",
          named(rows[0][0]));
  for (std::size_t t = 0; t < towers; ++t) {
    const std::size_t have = t < values.size() ? values[t].size() : 0;
    require(have <= variables, "combined gradients of tower ", t, " are ", have, " instead of ",
            variables, "; the last variable is ", named(rows[t].back()));
    require(have == variables, "combined gradients of tower ", t, " are ", have, " instead of ",
            variables, "; the first without one is that of variable ",
            named(rows[t][std::min(have, variables - 1)]));
    for (std::size_t v = 0; v < variables; ++v) {
      const Gradient& own = rows[t][v];
      const Gradient got{values[t][v], own.variable};
      if (got.value && &got.value.graph() == &own.value.graph() && same_type(got.value, own.value))
        continue;  // the usual case, without the texts
      require(static_cast<bool>(got.value), "the combined gradient of variable ", named(own),
              " for tower ", t, " is empty");
      const std::string what = result_of(got, static_cast<int>(t));
      require(&got.value.graph() == &own.value.graph(), what, " belongs to another graph");
      throw InvalidArgument(
          cat(what, " is ", got.value.type(), ", but the gradients are ", own.value.type()));
    }
  }
}

void verify_fresh(const GradientTable& grads) {
  std::map<const Node*, int> numbers;
  for (int v = 0; v < grads.variables(); ++v)
    if (const Variable variable = grads.at(0, v).variable) numbers[&variable.node()] = v;
  for (const CombinedGradient& before : grads.graph().combined_gradients()) {
    const auto found = numbers.find(&before.variables[0].node());
    if (found == numbers.end() || before.results != grads.values(found->second)) continue;
    if (before.results == before.gradients) continue;  // no elements, so nothing was added
    const Gradient& g = grads.at(0, found->second);
    throw InvalidArgument(cat("the gradients of variable ", named(g), ", ",
                              g.value.node().describe(),
                              ", were combined before; combine what towers computed"));
  }
}

void verify_mean(const GradientTable& grads) {
  for (int v = 0; v < grads.variables(); ++v)
    require(is_floating(grads.at(0, v).value.dtype()), "the mean of ",
            name_of(grads.at(0, v).value.dtype()), ", the type of the gradient of variable ",
            named(grads.at(0, v)), ", is not defined; cast to f32 first, or sum");
}

void verify_rounded_once(const Graph& graph, std::size_t first) {
  for (std::size_t id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const Op& op = node.op();
    if (op.half || op.alias || op.storage || node.outputs() == 0) continue;
    const DType dtype = node.output_type(0).dtype;
    require(!is_half(dtype), node.describe(), ": no host kernel for ", name_of(dtype),
            " adds up what other nodes do, rounded once; combine by a collective, or in f32");
  }
}

GradientTable verified(const GradientTable& grads, const OutputRows& values, std::size_t first) {
  GradientTable combined = grads.with(values);
  Results(grads, combined).verify(first);
  return combined;
}

void note_combined(const GradientTable& grads, const GradientTable& results) {
  for (int v = 0; v < grads.variables(); ++v) {
    if (!grads.at(0, v).variable) continue;
    CombinedGradient noted{.gradients = grads.values(v), .results = results.values(v)};
    for (int t = 0; t < grads.towers(); ++t) noted.variables.push_back(grads.at(t, v).variable);
    grads.graph().record(std::move(noted));
  }
}

}  // namespace belfry
