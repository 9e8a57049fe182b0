// Refuses steps whose towers would not train on one sum. Strategies combine gradients while the
// graph is built; feeds, real shapes and devices are known only now. A feed that replaces one
// tower's gradient, or gradients of different shapes, would give plausible but wrong numbers. So
// the pass compares the parts of each combined gradient with the values that this step has in their
// place.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/placement/placement.h"

namespace belfry {
namespace {

std::string variable_of(const CombinedGradient& combined) {
  return combined.variables[0].describe();
}

// Such as "tower 1's gradient of variable 'w' f32[2] (built at model.cc:4)".
std::string gradient_of(const CombinedGradient& combined, std::size_t t) {
  return cat("tower ", t, "'s gradient of variable ", combined.variables[t].describe());
}

// Where the graph's outputs are in a plan.
class Located {
 public:
  explicit Located(const PlanGraph& plan)
      : plan_(plan), nodes_(plan.nodes[0].node->graph().size()) {
    for (const NodeIndex n : plan.nodes.indices()) {
      const PlanNode& planned = plan.nodes[n];
      if (planned.feed() >= 0) {
        const Output where = plan.feeds[at(planned.feed())].where;
        fed_[where] = n;
        if (&where.node().op() != &kPlaceholder) replaced_.push_back(where);
      } else if (planned.fetch() < 0 && planned.op == &planned.node->op()) {
        NodeIndex& first = nodes_[at(planned.node->id())];
        if (!first) first = n;
      }
    }
  }

  // The output's value in the plan. It is the feed if the output is fed, and has no node if the
  // plan lacks it.
  Value of(Output output) const {
    if (const auto fed = fed_.find(output); fed != fed_.end()) return {fed->second, 0};
    const NodeIndex node = nodes_[at(output.node().id())];
    return node ? Value{node, output.index()} : Value{};
  }
  // Whether the plan computes the output as the graph does.
  bool computed(Output output) const {
    const Value value = of(output);
    return value.node && plan_.node(value.node).feed() < 0;
  }
  // Whether a feed replaces an output that the graph would compute.
  bool replaced(Output output) const {
    return std::ranges::find(replaced_, output) != replaced_.end();
  }
  // All outputs that feeds replace.
  const std::vector<Output>& replaced() const { return replaced_; }

 private:
  const PlanGraph& plan_;
  std::vector<NodeIndex> nodes_;  // by id of the graph's node
  std::unordered_map<Output, NodeIndex> fed_;
  std::vector<Output> replaced_;
};

// Checks types, feeds and devices of the tensors that strategies combined.
class SumChecks {
 public:
  SumChecks(const PlanGraph& plan, const Located& located) : plan_(plan), located_(located) {}

  void types(const CombinedGradient& combined) const {
    Value first;
    for (std::size_t t = 0; t < combined.towers(); ++t) {
      const Value value = located_.of(combined.gradients[t]);
      if (!value.node) continue;
      if (!first.node) first = value;
      if (plan_.type(value) == plan_.type(first)) continue;
      throw InvalidArgument(cat("towers disagree on variable ", variable_of(combined),
                                ": in this step ", gradient_of(combined, t), ", ",
                                combined.gradients[t].node().describe(), ", is ", plan_.type(value),
                                ", but that of the towers before it ", plan_.type(first)));
    }
    for (std::size_t t = 0; t < combined.towers(); ++t) {
      const Value value = located_.of(combined.results[t]);
      if (!value.node || !first.node || plan_.type(value) == plan_.type(first)) continue;
      throw InvalidArgument(cat("the combined gradient of variable ", variable_of(combined),
                                " for tower ", t, ", ", combined.results[t].node().describe(),
                                ", is ", plan_.type(value), " in this step, but the gradients are ",
                                plan_.type(first)));
    }
  }

  void feeds(const CombinedGradient& combined) const {
    if (located_.replaced().empty()) return;
    whole(combined, combined.gradients, "gradient", computes_results(combined));
    whole(combined, combined.results, "combined gradient", true);
    inside(combined);
  }

  // Towers must share one device, or each have their own.
  void devices(const CombinedGradient& combined) const {
    std::map<int, std::size_t> towers;
    for (std::size_t t = 0; t < combined.towers(); ++t) {
      const Output gradient = combined.gradients[t];
      if (!located_.computed(gradient) || gradient.node().inputs().empty()) return;
      towers.emplace(plan_.device(located_.of(gradient)), t);
    }
    if (towers.size() == 1 || towers.size() == combined.towers()) return;
    for (std::size_t t = 0; t < combined.towers(); ++t) {
      const std::size_t other = towers.at(plan_.device(located_.of(combined.gradients[t])));
      require(other == t, gradient_of(combined, t), ", ", combined.gradients[t].node().describe(),
              ", is on the device of that of tower ", other, ", ",
              combined.gradients[other].node().describe(), "; give each tower a device of its own");
    }
  }

 private:
  bool computes_results(const CombinedGradient& combined) const {
    return std::ranges::any_of(combined.results, [&](Output r) { return located_.computed(r); });
  }

  // Refuses feeds for only some of `values`; there is one value per tower.
  void whole(const CombinedGradient& combined, const std::vector<Output>& values,
             std::string_view what, bool matters) const {
    if (!matters) return;
    const auto fed =
        std::ranges::find_if(values, [&](Output value) { return located_.replaced(value); });
    if (fed == values.end()) return;
    for (std::size_t t = 0; t < values.size(); ++t)
      require(!located_.computed(values[t]), "a feed replaces the ", what, " of variable ",
              variable_of(combined), " of tower ", fed - values.begin(), ", ",
              fed->node().describe(), ", but not that of tower ", t, ", ",
              values[t].node().describe(), "; feed all towers' or none");
  }

  // Refuses a feed between gradients and results.
  void inside(const CombinedGradient& combined) const {
    const auto is_end = [&](Output output) {
      return std::ranges::find(combined.gradients, output) != combined.gradients.end();
    };
    std::set<std::pair<int, int>> seen;
    std::vector<Output> open;
    for (const Output& result : combined.results)
      if (located_.computed(result) && seen.insert(result.key()).second) open.push_back(result);
    while (!open.empty()) {
      const Output output = open.back();
      open.pop_back();
      for (const Output& input : output.node().inputs()) {
        if (is_end(input) || !seen.insert(input.key()).second) continue;
        require(!located_.replaced(input) || !comes_from(combined, input), "a feed replaces ",
                input.node().describe(), ", a part of the sum of the gradients of variable ",
                variable_of(combined), "; feed the gradients of all towers, or all combined ones");
        if (located_.computed(input)) open.push_back(input);
      }
    }
  }

  // Whether the graph computes the output from a gradient.
  static bool comes_from(const CombinedGradient& combined, Output output) {
    std::set<int> seen;
    std::vector<const Node*> open{&output.node()};
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      for (const Output& input : node.inputs()) {
        if (std::ranges::find(combined.gradients, input) != combined.gradients.end()) return true;
        if (seen.insert(input.node().id()).second) open.push_back(&input.node());
      }
    }
    return false;
  }

  const PlanGraph& plan_;
  const Located& located_;
};

// A collective needs the tensors of all participants, so a feed may not replace one of them.
void verify_feeds(const PlanGraph& plan, const PlanNode& collective) {
  const auto fed = [&](const Value& input) {
    const PlanNode& source = plan.node(input.node);
    return source.feed() >= 0 && &plan.feeds[at(source.feed())].where.node().op() != &kPlaceholder;
  };
  const auto replaced = std::ranges::find_if(collective.inputs, fed);
  if (replaced == collective.inputs.end()) return;
  for (std::size_t i = 0; i < collective.inputs.size(); ++i)
    require(fed(collective.inputs[i]), collective.node->describe(), ": a feed replaces input ",
            replaced - collective.inputs.begin(), ", ", plan.name(*replaced), ", but not input ", i,
            ", ", plan.name(collective.inputs[i]), "; feed all participants or none");
}

// Participants of towers must be different tensors. If they are several towers' copies of one
// tensor, they must come in the order of towers. The user decides which towers take part.
void verify_participants(const Node& collective) {
  if (collective.origin().forward) return;  // it sums gradients of uses, perhaps one tensor
  const std::size_t count = at(collective_size(collective));
  std::unordered_set<Output> seen;
  std::unordered_map<std::string_view, int> last;  // replica of each tensor, by logical name
  for (std::size_t j = 0; j < collective.inputs().size(); ++j) {
    const Output own = collective.input(j);
    if (j % count == 0) {
      seen.clear();
      last.clear();
    }
    const bool again = !seen.insert(own).second;
    if (own.node().origin().prefix.empty()) continue;
    int& latest =
        last.try_emplace(own.node().logical_name(), own.node().origin().replica).first->second;
    const bool behind = latest > own.node().origin().replica;
    latest = std::max(latest, own.node().origin().replica);
    if (own.node().inputs().empty() || !(again || behind)) continue;
    for (std::size_t i = j / count * count; i < j; ++i) {
      const Output before = collective.input(i);
      require(own != before, collective.describe(), ": ", own.node().describe(),
              " takes part twice, as inputs ", i, " and ", j, "; each tower takes part once");
      require(own.node().logical_name() != before.node().logical_name() ||
                  before.node().origin().prefix.empty() ||
                  own.node().origin().replica >= before.node().origin().replica,
              collective.describe(), ": ", own.node().describe(), " of tower ",
              own.node().origin().replica, " comes after ", before.node().describe(), " of tower ",
              before.node().origin().replica, "; participants are in the order of towers");
    }
  }
}

}  // namespace

void verify_types(const PlanGraph& plan) {
  if (plan.nodes.empty()) return;
  const Located located(plan);
  for (const CombinedGradient& combined : plan.nodes[0].node->graph().combined_gradients())
    SumChecks(plan, located).types(combined);
}

void verify(const PlanGraph& plan, const PlanContext& context) {
  const auto all = plan.nodes[0].node->graph().combined_gradients();
  const Located located(plan);
  const SumChecks checks(plan, located);
  for (const CombinedGradient& combined : all) {
    checks.feeds(combined);
    checks.types(combined);
    // Soft placement puts towers on any existing device.
    if (!context.placement->context().allow_soft_placement) checks.devices(combined);
  }
  for (const PlanNode& node : plan.nodes)
    if (node.op->collective) {
      verify_feeds(plan, node);
      verify_participants(*node.node);
    }
  if (!all.empty()) verify_updates(plan);
}

}  // namespace belfry
