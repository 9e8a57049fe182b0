#include "belfry/trainers/core/partitioned_update.h"

#include <map>

#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/scattered_gradients.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/slice.h"
#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/optimizers/clipping.h"

namespace belfry {
namespace {

// The towers of one process, one after the other.
class PartUpdates {
 public:
  PartUpdates(const TrainerOptions& options, const GradientTable& gradients,
              const UpdateOptions& how)
      : options_(options),
        gradients_(gradients),
        how_(how),
        graph_(gradients.graph()),
        sums_(gradients, how.reduce, options.aggregation.bucket_mb),
        unscaling_(how.unscaling) {
    for (int v = 0; v < gradients.variables(); ++v) {
      const Variable variable = gradients.at(0, v).variable;
      parts_.push_back({variable.shape(), sums_.cuts(v)});
      own_.push_back({sums_.own_piece(v), variable});
    }
    const DeviceScope on(graph_, gradients_.device(0));
    const int batches = options.batches.gradient_accumulation_steps;
    if (batches > 1) add_up(batches);
    of_sums_ = unscaling_;
    if (options.log_gradient_norms) squares_ = squares();
    if (options.clip_value > 0) clip_each();
    if (options.clip_norm > 0) clip();
  }

  const AccumulationNodes& accumulation() const { return accumulation_; }
  const GradientSquares& logged_squares() const { return squares_; }
  const Unscaling& unscaling() const { return of_sums_; }

  Node& apply_to(int tower, At at) {
    std::vector<Gradient> row = own_;
    for (std::size_t v = 0; v < row.size(); ++v)
      row[v].variable = gradients_.at(tower, static_cast<int>(v)).variable;
    const auto gather = [&](std::span<Node* const> updates) {
      if (values_.empty()) values_ = gather_values(row, updates);
      return assign_values(row, updates);
    };
    const auto norms = [&](std::size_t v, std::span<const Output> rows) {
      std::vector<Output>& known = norms_[v];
      if (known.empty()) known = sums_.norms(static_cast<int>(v), rows);
      return known;
    };
    return options_.optimizer.apply_parts(row, {parts_, norms, gather}, at, how_.slots, unscaling_);
  }

 private:
  void add_up(int batches) {
    const BatchSums sums =
        sum_over_batches(GradientRows{own_}, batches, unscaling_.applied, parts_);
    accumulation_ = sums.nodes;
    own_ = sums.of_all[0];
    unscaling_ = sums.unscaling;
  }

  void clip_each() {
    GradientRows rows{own_};
    unscaling_ = clip_values(rows, options_.clip_value, unscaling_, gradients_.device(0));
    own_ = std::move(rows[0]);
  }

  GradientSquares squares() const {
    const NameScope names(graph_, "gradient_squares");
    GradientSquares squares;
    std::vector<Output> rows;
    for (const Gradient& gradient : own_) {
      squares.variables.emplace_back(gradient.variable.logical_name());
      rows.push_back(gradient.value);
    }
    squares.sums = {sums_.squares(rows)};
    return squares;
  }

  void clip() {
    const bool known = options_.log_gradient_norms && options_.clip_value == 0;
    unscaling_ = clipped((known ? squares_ : squares()).sums, options_.clip_norm, unscaling_,
                         gradients_.device(0));
  }

  // Gathers the updated parts of all processes, from the first tower of each.
  std::vector<ScatteredGradients::Gathered> gather_values(const std::vector<Gradient>& row,
                                                          std::span<Node* const> updates) const {
    const auto rank = static_cast<std::size_t>(graph_.process().rank);
    return sums_.gather([&](int variable) {
      const auto v = static_cast<std::size_t>(variable);
      const ControlDependencies after(graph_, std::vector<Node*>{updates[v]});
      const Output whole = row[v].variable.read("updated");
      const std::vector<std::int64_t>& cuts = parts_[v].cuts;
      return slice(flat_row(whole), {cuts[rank]}, {cuts[rank + 1] - cuts[rank]});
    });
  }

  std::vector<Node*> assign_values(const std::vector<Gradient>& row,
                                   std::span<Node* const> updates) const {
    std::vector<Node*> assigned;
    for (std::size_t v = 0; v < row.size(); ++v) {
      const ControlDependencies after(graph_, std::vector<Node*>{updates[v]});
      const auto& [values, of_variable] = values_[v];
      assigned.push_back(&assign_gathered(row[v].variable, values, of_variable, "gathered"));
    }
    return assigned;
  }

  const TrainerOptions& options_;
  const GradientTable& gradients_;
  const UpdateOptions& how_;
  Graph& graph_;
  const ScatteredGradients sums_;
  std::vector<VariablePart> parts_;
  std::vector<Gradient> own_;  // the parts of this process, and tower 0's variables
  AccumulationNodes accumulation_;
  GradientSquares squares_;                           // empty unless they are logged
  Unscaling unscaling_, of_sums_;                     // the second one before gradients are clipped
  std::map<std::size_t, std::vector<Output>> norms_;  // of what an optimizer asks for
  std::vector<ScatteredGradients::Gathered> values_;  // of all variables
};

}  // namespace

bool updates_parts(const TrainerOptions& options) {
  return options.aggregation.zero_stage > 0 && process_place(options.session).size > 1;
}

std::string partition_refusal(const TrainerOptions& options) {
  const AggregationOptions& aggregation = options.aggregation;
  if (aggregation.zero_stage == 0) return "";
  if (aggregation.allreduce != "collective")
    return cat(
        " scatters gradients by the strategy collective alone, and "
        "allreduce is ",
        aggregation.allreduce, "; use collective");
  if (aggregation.gradient_repacking > 0 || aggregation.small_tensors_kb > 0)
    return cat(" cuts buckets into parts, and ",
               aggregation.gradient_repacking > 0 ? "gradient_repacking" : "small_tensors_kb",
               " lays gradients out anew; leave one of them out");
  for (const Optimizer& optimizer : options.optimizers())
    if (!optimizer.takes_parts())
      return cat(" cuts the update of a variable into parts, and the optimizer ", optimizer.name(),
                 " does not say that an element changes by its own gradient and slots, and norms, "
                 "alone (Optimizer::Rule::takes_parts)");
  return "";
}

UpdateNodes update_parts(const TrainerOptions& options, const GradientTable& gradients,
                         const UpdateOptions& how) {
  PartUpdates updates(options, gradients, how);
  return {&apply_to_towers(gradients, {},
                           [&](int t, At at) -> Node& { return updates.apply_to(t, at); }),
          updates.accumulation(), updates.unscaling(), updates.logged_squares()};
}

}  // namespace belfry
