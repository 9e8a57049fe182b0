// Refuses steps that would update the copies of a variable differently. Copies stay equal only
// while every tower applies the same combined gradients in the same way. No run would notice a
// tower that does not: training continues, and the copies drift apart. So the pass follows each
// gradient to the writes that depend on it, and compares these from tower to tower.
#include <algorithm>
#include <deque>
#include <iterator>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// The gradient of one tower, or its copy of the combined gradient; or a condition, by which an
// update is applied or skipped.
struct Part {
  std::size_t gradient;  // of Graph::combined_gradients(), or after all of them a condition
  std::size_t tower;
  bool combined;
  auto operator<=>(const Part&) const = default;
};

// A sorted list. Nodes share lists, because most depend on the same gradients as one of their
// inputs. Null: none.
using Parts = const std::vector<Part>*;

// Owns the lists.
class PartLists {
 public:
  Parts one(const Part& part) { return &lists_.emplace_back(1, part); }
  Parts united(Parts a, Parts b) {
    if (!a || !b || a == b) return a ? a : b;
    if (std::ranges::includes(*a, *b)) return a;
    if (std::ranges::includes(*b, *a)) return b;
    std::vector<Part>& both = lists_.emplace_back();
    std::ranges::set_union(*a, *b, std::back_inserter(both));
    return &both;
  }

 private:
  std::deque<std::vector<Part>> lists_;
};

// The parts that the outputs of nodes depend on.
class PartsOf {
 public:
  explicit PartsOf(std::size_t nodes) : first_(nodes, kNone) {}

  bool has(std::size_t node) const { return first_[node] != kNone; }
  // Makes the list of a node, all null, if there is none yet.
  std::span<Parts> make(std::size_t node, std::size_t outputs) {
    if (!has(node)) {
      first_[node] = parts_.size();
      parts_.resize(parts_.size() + outputs);
    }
    return std::span(parts_).subspan(first_[node], outputs);
  }
  // Null if the node has no list.
  Parts at_output(std::size_t node, std::size_t output) const {
    return has(node) ? parts_[first_[node] + output] : nullptr;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> first_;
  std::vector<Parts> parts_;
};

class UpdateChecks {
 public:
  explicit UpdateChecks(const PlanGraph& plan)
      : plan_(plan),
        all_(plan.nodes[0].node->graph().combined_gradients()),
        ends_(plan.nodes[0].node->graph().size()),
        parts_(plan.nodes.size()),
        applied_(all_.size()) {
    for (std::size_t g = 0; g < all_.size(); ++g)
      for (std::size_t t = 0; t < all_[g].towers(); ++t) {
        places_[&all_[g].variables[t].node()].emplace_back(g, t);
        add(all_[g].gradients[t], {g, t, false});
        add(all_[g].results[t], {g, t, true});
      }
  }

  void run() {
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& planned = plan_.nodes[n];
      const bool writes = planned.op->writes > 0;
      if (writes) written_.insert(target(planned));
      const auto found = writes ? places_.find(target(planned)) : places_.end();
      if (found != places_.end())
        check(planned, found->second);
      else  // also the write of a slot, which updates may read again
        follow(planned, parts_.make(at(n.value()), planned.types.size()));
    }
    for (std::size_t g = 0; g < all_.size(); ++g) check_whole(g);
  }

 private:
  using Places = std::vector<std::pair<std::size_t, std::size_t>>;  // gradient, tower

  void add(Output output, Part part) {
    Parts& end = ends_.make(at(output.node().id()), output.node().outputs())[at(output.index())];
    end = lists_.united(end, lists_.one(part));
  }

  const Node* target(const PlanNode& write) const { return plan_.node(write.inputs[0].node).node; }

  // Finds what the outputs depend on. An end depends only on itself. A new value of a variable with
  // a gradient depends on nothing.
  void follow(const PlanNode& planned, std::span<Parts> outputs) {
    bool all_ends = true;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = end_at(planned, i);
      all_ends = all_ends && outputs[i];
    }
    if (all_ends || planned.op->metadata) return;
    const Parts all = is_condition(planned) ? condition(planned) : read_by(planned);
    for (Parts& output : outputs)
      if (!output) output = all;
  }

  // Such as whether all gradients of a tower are finite: one part, rather than all of those.
  static bool is_condition(const PlanNode& planned) {
    return planned.types.size() == 1 && planned.types[0].dtype == DType::kBool &&
           planned.types[0].shape.rank() == 0;
  }

  Parts condition(const PlanNode& planned) {
    const bool reads_some = std::ranges::any_of(planned.inputs, [&](const Value& input) {
      return parts_.at_output(at(input.node.value()), input.index) != nullptr;
    });
    if (!reads_some) return nullptr;
    conditions_.push_back(planned.node);
    return lists_.one({all_.size() + conditions_.size() - 1, 0, false});
  }

  std::string described(const Part& part, bool with_tower) const {
    if (part.gradient >= all_.size())
      return cat("result of ", conditions_[part.gradient - all_.size()]->describe());
    const CombinedGradient& used = all_[part.gradient];
    const Output value = (part.combined ? used.results : used.gradients)[part.tower];
    return cat(part.combined ? "combined " : "", "gradient of variable ",
               used.variables[part.tower].describe(),
               with_tower ? cat(" of tower ", part.tower) : "", ", ", value.node().describe());
  }

  // Null if the output is not an end.
  Parts end_at(const PlanNode& planned, std::size_t i) const {
    if (planned.fetch() >= 0) return nullptr;
    if (planned.feed() < 0) return ends_.at_output(at(planned.node->id()), i);
    const Output fed = plan_.feeds[at(planned.feed())].where;
    return ends_.at_output(at(fed.node().id()), at(fed.index()));
  }

  Parts read_by(const PlanNode& planned) {
    Parts all = nullptr;
    for (std::size_t i = at(planned.op->writes); i < planned.inputs.size(); ++i) {
      const Value input = planned.inputs[i];
      all = lists_.united(all, parts_.at_output(at(input.node.value()), at(input.index)));
    }
    return all;
  }

  void check(const PlanNode& write, const Places& places) {
    const Parts parts = read_by(write);
    if (!parts) return;
    bool own = false;
    for (const auto& [g, t] : places) {
      if (!std::ranges::binary_search(*parts, Part{g, t, true})) continue;
      own = true;
      const PlanNode*& before = applied_[g][target(write)];
      if (before && before != &write)
        throw InvalidArgument(cat("the combined gradient of variable ",
                                  all_[g].variables[t].describe(), " of tower ", t,
                                  " is applied twice: by ", before->node->describe(), " and by ",
                                  write.node->describe()));
      before = &write;
    }
    if (!own) refuse(write, places.front(), *parts);
  }

  [[noreturn]] void refuse(const PlanNode& write, std::pair<std::size_t, std::size_t> place,
                           const std::vector<Part>& parts) const {
    const Variable variable = all_[place.first].variables[place.second];
    const auto combined = std::ranges::find_if(parts, [](const Part& p) { return p.combined; });
    const Part part = combined == parts.end() ? parts[0] : *combined;
    const std::string what = cat(write.node->describe(), " updates variable ", variable.describe(),
                                 " of tower ", place.second, " by the ");
    if (!part.combined && part.gradient < all_.size())
      throw InvalidArgument(cat(what, "gradient of tower ", part.tower, " alone, ",
                                all_[part.gradient].gradients[part.tower].node().describe(),
                                ", which was combined with those of other towers; apply what "
                                "reduce() returns"));
    throw InvalidArgument(what + described(part, true));
  }

  // Equal copies must stay equal: a step updates all of them the same way, or none. A write that
  // depends on no gradient may set a copy, e.g. from one that was updated.
  void check_whole(std::size_t g) {
    const CombinedGradient& combined = all_[g];
    std::vector<std::size_t> done, missing;
    for (std::size_t t = 0; t < combined.towers(); ++t) {
      const Node* variable = &combined.variables[t].node();
      if (applied_[g].contains(variable))
        done.push_back(t);
      else if (!written_.contains(variable))
        missing.push_back(t);
    }
    if (done.empty()) return;
    const Node* update = update_of(g, done[0]).node;
    check_participants(combined, *update);
    require(missing.empty(), "this step updates variable ", combined.variables[done[0]].describe(),
            " on ", done.size(), " of ", combined.towers(), " towers, e.g. by ", update->describe(),
            ", but not its copy on tower ", missing.empty() ? 0 : missing[0], " (",
            combined.variables[missing.empty() ? 0 : missing[0]].name(),
            "), which would differ from then on; run the updates of all towers");
    const std::string options = update->raw_options().str();
    const std::vector<Part> of_first = sources(update_of(g, done[0]));
    for (const std::size_t t : done) {
      check_alike(g, done[0], options, t);
      const std::vector<Part> of_t = sources(update_of(g, t));
      if (of_t == of_first) continue;
      check_sources(g, done[0], of_first, t, of_t);
      check_sources(g, t, of_t, done[0], of_first);
    }
  }

  const PlanNode& update_of(std::size_t g, std::size_t t) const {
    return *applied_[g].at(&all_[g].variables[t].node());
  }

  // Checks that towers t and u update in the same way. `options`: of tower t.
  void check_alike(std::size_t g, std::size_t t, const std::string& options, std::size_t u) const {
    const PlanNode &first = update_of(g, t), &other = update_of(g, u);
    std::string what;
    if (first.op != other.op)
      what = "another op";
    else if (options != other.node->raw_options().str())
      what = "other options";
    for (std::size_t i = 0; what.empty() && i < first.inputs.size(); ++i)
      if (differ(first.inputs[i], other.inputs[i])) what = cat("another value of input ", i);
    require(what.empty(), other.node->describe(), " updates variable ",
            all_[g].variables[u].describe(), " of tower ", u, " with ", what, " than ",
            first.node->describe(), " its copy on tower ", t, "; they would differ from then on");
  }

  // Whether both are known before the run, and differ.
  bool differ(Value a, Value b) const {
    const PlanNode &one = plan_.node(a.node), &other = plan_.node(b.node);
    if (one.op != &kConst || other.op != &kConst || one.feed() >= 0 || other.feed() >= 0)
      return false;
    const auto value = [](const PlanNode& node) -> const Tensor& {
      return node.node->options<ConstantOptions>().value;
    };
    return one.node != other.node && !(value(one) == value(other));
  }

  // Checks that the update of tower u depends on everything that the update of tower t depends on.
  void check_sources(std::size_t g, std::size_t t, const std::vector<Part>& of_t, std::size_t u,
                     const std::vector<Part>& of_u) const {
    for (const Part& part : of_t) {
      if (std::ranges::binary_search(of_u, part)) continue;
      throw InvalidArgument(cat(update_of(g, t).node->describe(), " updates variable ",
                                all_[g].variables[t].describe(), " of tower ", t, " by the ",
                                described(part, !part.combined), ", too, but ",
                                update_of(g, u).node->describe(), " on tower ", u,
                                " does not; the copies would differ from then on"));
    }
  }

  // The gradients that an update depends on. It does not matter whose copy of a combined gradient
  // it reads.
  std::vector<Part> sources(const PlanNode& write) {
    std::vector<Part> parts = *read_by(write);
    for (Part& part : parts)
      if (part.combined) part.tower = 0;
    std::ranges::sort(parts);
    const auto rest = std::ranges::unique(parts);
    parts.erase(rest.begin(), rest.end());
    return parts;
  }

  // The update would leave out a copy whose tower was not in the table.
  void check_participants(const CombinedGradient& combined, const Node& update) {
    if (combined.towers() > 1 && combined.variables[0] == combined.variables[1])
      return;  // towers share it
    if (copies_.empty()) {
      const Graph& graph = update.graph();
      for (std::size_t id = 0; id < graph.size(); ++id)
        if (const Node& node = graph.node(id); node.is_variable())
          copies_[node.logical_name()].push_back(&node);
    }
    for (const Node* copy : copies_.at(combined.variables[0].logical_name()))
      require(written_.contains(copy) || places_.contains(copy), "this step updates variable ",
              combined.variables[0].describe(), " by the gradients of ", combined.towers(),
              " towers, e.g. by ", update.describe(), ", but its copy ", copy->describe(),
              " takes no part and would differ from then on; combine the gradients of all towers");
  }

  const PlanGraph& plan_;
  std::span<const CombinedGradient> all_;
  std::unordered_set<const Node*> written_;
  // Variables by logical name.
  std::unordered_map<std::string_view, std::vector<const Node*>> copies_;
  std::unordered_map<const Node*, Places> places_;  // of variables
  PartLists lists_;
  std::vector<const Node*> conditions_;
  PartsOf ends_;   // by id of the graph's node
  PartsOf parts_;  // by plan node; writes of variables with gradients have none
  // [gradient][variable]: the write that applies it.
  std::vector<std::unordered_map<const Node*, const PlanNode*>> applied_;
};

}  // namespace

void verify_updates(const PlanGraph& plan) {
  if (plan.writes) UpdateChecks(plan).run();
}

}  // namespace belfry
