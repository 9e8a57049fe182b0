#include "belfry/framework/gradients/gradients.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/gradients/gradient_sum_impl.h"
#include "belfry/framework/gradients/recompute_impl.h"

namespace belfry {
namespace {

constexpr int kInitial = -1;  // consumer of a gradient that comes from outside

class Backward {
 public:
  Backward(std::span<const Output> ys, std::span<const Output> xs, const GradientOptions& options)
      : graph_(ys[0].graph()),
        ys_(ys),
        xs_(xs.begin(), xs.end()),
        options_(options),
        recomputation_(graph_, options.recompute),
        wanted_(xs_.begin(), xs_.end()),
        stop_(options.stop.begin(), options.stop.end()) {}

  std::vector<Output> build() {
    mark_between();
    seed();
    // Creation order is a topological order, so the highest remaining node has all its uses.
    for (const int id : between_ | std::views::reverse) visit(graph_.node(index(id)));
    std::vector<Output> result;
    for (const Output& x : xs_) {
      result.push_back(total(x));
      if (!result.back() && options_.unconnected == UnconnectedGradients::kZero)
        result.back() = zeros(x);
    }
    if (options_.gate == GradientGate::kGraph) make_available_together(graph_, result);
    return result;
  }

 private:
  // Whether gradients reach `input`. A stopped tensor passes nothing on, but gets a gradient if it
  // is an x itself.
  bool reached(const Output& input) const {
    return is_floating(input.dtype()) && (!stop_.contains(input) || wanted_.contains(input));
  }
  bool leads_on(const Output& input) const {
    return reached(input) && is_between(input.node().id());
  }

  // Nodes that depend on an x and on which a y depends.
  void mark_between() {
    const std::vector<int> needed = find_needed();
    for (const int id : needed) {
      const bool depends =
          is_x_.contains(id) ||
          std::ranges::any_of(graph_.node(index(id)).inputs(), [&](const Output& input) {
            return reached(input) && is_between(input.node().id());
          });
      if (depends) between_.push_back(id);
    }
  }

  // Nodes on which a y depends, in order. Nodes before all xs are left out: they depend on none.
  std::vector<int> find_needed() {
    for (const Output& x : xs_) is_x_.insert(x.node().id());
    const int first = is_x_.empty() ? static_cast<int>(graph_.size()) : *is_x_.begin();
    std::unordered_set<int> seen;
    std::vector<int> needed;
    const auto want = [&](const Output& output) {
      const int id = output.node().id();
      if (id >= first && seen.insert(id).second) needed.push_back(id);
    };
    for (const Output& y : ys_) want(y);
    for (std::size_t i = 0; i < needed.size(); ++i)
      for (const Output& input : graph_.node(index(needed[i])).inputs())
        if (reached(input)) want(input);
    std::ranges::sort(needed);
    return needed;
  }

  static std::size_t index(int id) { return static_cast<std::size_t>(id); }

  bool is_between(int id) const { return std::ranges::binary_search(between_, id); }

  void seed() {
    for (std::size_t i = 0; i < ys_.size(); ++i) {
      const Output& y = ys_[i];
      if (!is_between(y.node().id())) continue;
      ForwardScope forward(graph_, y.node());
      std::optional<Beside> beside;
      if (options_.colocate) beside.emplace(y);
      Output initial = i < options_.initial.size() ? options_.initial[i] : Output();
      if (!initial) initial = fill_like(y, 1, "grad_y");
      check_shape(initial, y, y.node(), "the initial gradient");
      uses_[y].push_back({kInitial, i, initial});
    }
  }

  void visit(Node& node) {
    std::vector<Output> grads;
    bool any = false;
    for (std::size_t i = 0; i < node.outputs(); ++i) {
      const Output output = node.output(i);
      const bool passes = is_floating(output.dtype()) && !stop_.contains(output);
      grads.push_back(passes ? total(output) : Output());
      any = any || grads.back();
    }
    if (any && std::ranges::any_of(node.inputs(), [&](const Output& i) { return leads_on(i); }))
      differentiate(node, std::move(grads));
  }

  void differentiate(Node& node, std::vector<Output> grads) {
    const Op& op = node.op();
    require<NotFoundError>(op.gradient, "No gradient defined for operation '", node.name(),
                           "' (op type: ", op.name, "), built at ", node.origin().site, ": ",
                           op.no_gradient ? op.no_gradient : "its Op has none",
                           "; use stop_gradient on its result, or an op that has one");
    recomputation_.enter(node, grads);
    const Recomputation::Scope again(recomputation_);
    ForwardScope forward(graph_, node);
    NameScope names(graph_, cat(node.logical_name(), "_grad"));
    if (!op.missing_grads)
      for (std::size_t i = 0; i < grads.size(); ++i)
        if (!grads[i] && is_floating(node.output_type(i).dtype)) grads[i] = zeros(node.output(i));
    std::optional<ColocateWith> beside;
    if (options_.colocate) beside.emplace(node.output());
    std::vector<Output> inputs = op.gradient(node, grads);
    require<InternalError>(inputs.size() == node.inputs().size(), node.describe(),
                           ": its gradient has ", inputs.size(), " results for ",
                           node.inputs().size(), " inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!leads_on(node.input(i))) inputs[i] = {};
      if (inputs[i]) check_shape(inputs[i], node.input(i), node, "the gradient of input ", i);
    }
    const auto count = std::ranges::count_if(inputs, [](const Output& g) { return bool(g); });
    if (options_.gate == GradientGate::kOp && count > 1) make_available_together(graph_, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]) uses_[node.input(i)].push_back({node.id(), i, inputs[i]});
  }

  // Zeros of the type of `like`.
  Output zeros(const Output& like) {
    std::optional<Beside> beside;
    if (options_.colocate) beside.emplace(like);
    if (like.node().is_variable()) return fill(graph_, like.shape(), 0, like.dtype(), "zeros");
    return fill_like(like, 0, "zeros");
  }

  void check_shape(Output grad, Output of, const Node& node, const auto&... what) const {
    require(grad.shape().compatible(of.shape()) && grad.dtype() == of.dtype(), node.describe(),
            ": ", what..., " is ", grad.type(), ", but should be ", of.type());
  }

  // The sum of all contributions to an output, made once.
  Output total(const Output& output) {
    const auto found = uses_.find(output);
    if (found == uses_.end()) return {};
    std::vector<GradientUse>& uses = found->second;
    if (uses.size() > 1) {
      std::ranges::sort(uses, {},
                        [](const GradientUse& use) { return std::pair(use.consumer, use.slot); });
      ForwardScope forward(graph_, output.node());
      const std::string name = cat(output.node().logical_name(), "_grad/AddN");
      uses = {{kInitial, 0, sum_uses(uses, name, options_.colocate ? output : Output())}};
    }
    return uses.front().value;
  }

  Graph& graph_;
  std::span<const Output> ys_;
  std::vector<Output> xs_;
  const GradientOptions& options_;
  Recomputation recomputation_;
  std::unordered_set<Output> wanted_, stop_;
  std::set<int> is_x_;        // nodes of xs
  std::vector<int> between_;  // in order
  std::unordered_map<Output, std::vector<GradientUse>> uses_;
};

void require_same_graph(std::span<const Output> outputs, std::string_view what, const Output& y,
                        SourceLine site) {
  for (const Output& output : outputs) {
    if (!output && what == "initial") continue;
    require(static_cast<bool>(output), "gradients (", site, "): an Output of `", what,
            "` is empty; build it first");
    require(&output.graph() == &y.graph(), "gradients (", site, "): '", output.name(), "' of `",
            what, "` belongs to another graph than '", y.name(), "'");
  }
}

std::string names_of(std::span<const Variable> variables) {
  std::vector<std::string> names;
  for (const Variable& v : variables) names.push_back(cat("'", v.name(), "'"));
  return join(names);
}

}  // namespace

std::vector<Output> gradients(std::span<const Output> ys, std::span<const Output> xs,
                              GradientOptions options, At at) {
  require(!ys.empty() && ys[0], "gradients (", at.site, "): y is empty");
  require_same_graph(ys, "ys", ys[0], at.site);
  require_same_graph(xs, "xs", ys[0], at.site);
  require_same_graph(options.initial, "initial", ys[0], at.site);
  require_same_graph(options.stop, "stop", ys[0], at.site);
  require(options.initial.size() <= ys.size(), "gradients (", at.site,
          "): ", options.initial.size(), " initial gradients, but ", ys.size(),
          " tensors to start from");
  for (const Output& y : ys)
    require(is_floating(y.dtype()), "gradients (", at.site, ") of ", y.node().describe(),
            ": y must be floating point, not ", name_of(y.dtype()));
  Graph& graph = ys[0].graph();
  require(!graph.open(), "gradients (", at.site, "): not all towers are built that take part ",
          "in ", graph.open() ? graph.open()->describe() : std::string(),
          "; differentiate after replicate(), all towers' losses at once");
  SiteScope site(graph, at.site);
  NameScope names(graph, at.name.empty() ? "gradients" : at.name);
  return Backward(ys, xs, options).build();
}

std::vector<Output> gradients(Output y, std::span<const Output> xs, GradientOptions options,
                              At at) {
  return gradients(std::span<const Output>(&y, 1), xs, std::move(options), at);
}

std::vector<Output> gradients(Output y, std::initializer_list<Output> xs, GradientOptions options,
                              At at) {
  return gradients(y, std::span(xs.begin(), xs.size()), std::move(options), at);
}

std::vector<Output> gradients(Output y, std::span<const Variable> xs, GradientOptions options,
                              At at) {
  // A read passes its gradient on to the variable, so the variable's gradient is the sum over its
  // reads.
  std::vector<Output> refs;
  for (const Variable& x : xs) refs.push_back(x.ref());
  return gradients(y, refs, std::move(options), at);
}

std::vector<Gradient> compute_gradients(Output loss, std::span<const Variable> variables,
                                        GradientOptions options, At at) {
  require(!variables.empty(), "No variables to optimize. compute_gradients (", at.site,
          ") got an empty list; make trainable variables first");
  require(static_cast<bool>(loss), "compute_gradients (", at.site, "): the loss is empty");
  require(loss.shape().rank() == 0, "the loss ", loss.node().describe(), " has shape ",
          loss.shape(), ", but must be a scalar; take its mean");
  const std::vector<Output> values = gradients(loss, variables, std::move(options), at);
  std::vector<Gradient> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) {
      result.push_back({values[i], variables[i]});
      continue;
    }
    // Replicas, and towers that share variables, say this once.
    const std::string warning =
        cat("variable '", variables[i].logical_name(), "' (built at ",
            variables[i].node().origin().site, ") does not influence the loss; it is not trained");
    if (first_time_logged(warning)) log_warning(warning);
  }
  require(!result.empty(), "No gradients provided for any variable: [", names_of(variables),
          "]. compute_gradients (", at.site, "): the loss ", loss.node().describe(),
          " depends on none of them");
  return result;
}

}  // namespace belfry
