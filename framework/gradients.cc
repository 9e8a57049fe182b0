#include "belfry/framework/gradients.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/state.h"
#include "belfry/framework/log.h"
#include "belfry/framework/scopes.h"

namespace belfry {
namespace {

// Builds for one node at a time: nodes made inside remember it.
class ForwardScope {
 public:
  ForwardScope(Graph& graph, const Node& node) : graph_(graph), outer_(graph.scopes().forward) {
    graph_.scopes().forward = &node;
  }
  ~ForwardScope() { graph_.scopes().forward = outer_; }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  Graph& graph_;
  const Node* outer_;
};

// One contribution to the gradient of an output: from input `slot` of `consumer`.
struct Use {
  int consumer;
  std::size_t slot;
  Output value;
};

class Backward {
 public:
  Backward(Output y, std::span<const Output> xs, const GradientOptions& options)
      : graph_(y.graph()), y_(y), xs_(xs.begin(), xs.end()), options_(options) {}

  std::vector<Output> build() {
    mark_between();
    seed();
    // Creation order is a topological order, so the highest node left has all its uses.
    for (int id = y_.node().id(); id >= 0; --id)
      if (between_[static_cast<std::size_t>(id)]) visit(graph_.node(static_cast<std::size_t>(id)));
    std::vector<Output> result;
    for (const Output& x : xs_) result.push_back(total(x));
    return result;
  }

 private:
  bool stopped(const Output& output) const {
    return std::ranges::find(options_.stop, output) != options_.stop.end();
  }

  // Nodes that depend on an x and on which y depends.
  void mark_between() {
    const auto count = static_cast<std::size_t>(y_.node().id()) + 1;
    std::vector<char> needed(count), depends(count);
    needed[count - 1] = true;
    for (std::size_t id = count; id-- > 0;)
      if (needed[id])
        for (const Output& input : graph_.node(id).inputs())
          if (!stopped(input)) needed[static_cast<std::size_t>(input.node().id())] = true;
    for (const Output& x : xs_)
      if (static_cast<std::size_t>(x.node().id()) < count)
        depends[static_cast<std::size_t>(x.node().id())] = true;
    between_.resize(count);
    for (std::size_t id = 0; id < count; ++id) {
      if (!needed[id]) continue;
      for (const Output& input : graph_.node(id).inputs())
        if (!stopped(input) && is_floating(input.dtype()) &&
            depends[static_cast<std::size_t>(input.node().id())])
          depends[id] = true;
      between_[id] = depends[id];
    }
  }

  void seed() {
    if (!between_.back()) return;
    std::optional<ColocateWith> beside;
    if (options_.colocate) beside.emplace(y_);
    Output initial;
    if (!options_.initial.empty()) initial = options_.initial.front();
    if (!initial) initial = fill_like(y_, 1, "grad_y");
    check_shape(initial, y_, y_.node(), "the initial gradient");
    uses_[key(y_)].push_back({y_.node().id() + 1, 0, initial});
  }

  void visit(Node& node) {
    std::vector<Output> grads;
    bool any = false;
    for (std::size_t i = 0; i < node.outputs(); ++i) {
      const bool differentiable = is_floating(node.output_type(i).dtype);
      grads.push_back(differentiable ? total(node.output(i)) : Output());
      any = any || grads.back();
    }
    const bool leads_on = std::ranges::any_of(node.inputs(), [&](const Output& input) {
      return !stopped(input) && between_[static_cast<std::size_t>(input.node().id())];
    });
    if (!any || !leads_on) return;
    differentiate(node, grads);
  }

  void differentiate(Node& node, const std::vector<Output>& grads) {
    const Op& op = node.op();
    if (!op.gradient)
      throw NotFound(cat("no gradient defined for ", node.describe(), ": ",
                         op.no_gradient ? op.no_gradient : "give its Op one"));
    std::optional<ColocateWith> beside;
    if (options_.colocate) beside.emplace(node.output());
    ForwardScope forward(graph_, node);
    NameScope names(graph_, cat(node.logical_name(), "_grad"));
    std::vector<Output> inputs = op.gradient(node, grads);
    require<Internal>(inputs.size() == node.inputs().size(), node.describe(), ": its gradient has ",
                      inputs.size(), " results for ", node.inputs().size(), " inputs");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Output input = node.input(i);
      if (!inputs[i] || stopped(input)) continue;
      if (!between_[static_cast<std::size_t>(input.node().id())]) continue;
      check_shape(inputs[i], input, node, cat("the gradient of input ", i));
      uses_[key(input)].push_back({node.id(), i, inputs[i]});
    }
  }

  void check_shape(Output grad, Output of, const Node& node, const std::string& what) const {
    require(grad.shape().compatible(of.shape()) && grad.dtype() == of.dtype(), node.describe(),
            ": ", what, " is ", grad.type(), ", but should be ", of.type());
  }

  // The sum of all contributions to an output, made once.
  Output total(const Output& output) {
    const auto found = uses_.find(key(output));
    if (found == uses_.end()) return {};
    std::vector<Use>& uses = found->second;
    if (uses.size() > 1) {
      std::ranges::sort(uses, [](const Use& a, const Use& b) {
        return std::pair(a.consumer, a.slot) < std::pair(b.consumer, b.slot);
      });
      std::vector<Output> values;
      for (const Use& use : uses) values.push_back(use.value);
      std::optional<ColocateWith> beside;
      if (options_.colocate) beside.emplace(output);
      ForwardScope forward(graph_, output.node());
      uses = {{0, 0, add_n(values, At(cat(output.node().logical_name(), "_grad/AddN")))}};
    }
    return uses.front().value;
  }

  static std::pair<int, int> key(const Output& output) {
    return {output.node().id(), output.index()};
  }

  Graph& graph_;
  Output y_;
  std::vector<Output> xs_;
  const GradientOptions& options_;
  std::vector<char> between_;
  std::map<std::pair<int, int>, std::vector<Use>> uses_;
};

}  // namespace

std::vector<Output> gradients(Output y, std::span<const Output> xs, GradientOptions options,
                              At at) {
  require(static_cast<bool>(y), "gradients (", at.site.str(), "): y is empty");
  require(is_floating(y.dtype()), "gradients (", at.site.str(), ") of ", y.node().describe(),
          ": y must be floating point, not ", name_of(y.dtype()));
  Graph& graph = y.graph();
  SiteScope site(graph, at.site);
  NameScope names(graph, at.name.empty() ? "gradients" : at.name);
  return Backward(y, xs, options).build();
}

std::vector<Output> gradients(Output y, std::initializer_list<Output> xs, GradientOptions options,
                              At at) {
  return gradients(y, std::span(xs.begin(), xs.size()), std::move(options), at);
}

std::vector<Output> gradients(Output y, std::span<const Variable> xs, GradientOptions options,
                              At at) {
  // A read passes its gradient on to the variable, so the variable's is the sum over its reads.
  std::vector<Output> refs;
  for (const Variable& x : xs) refs.push_back(x.ref());
  return gradients(y, refs, std::move(options), at);
}

std::vector<Gradient> compute_gradients(Output loss, std::span<const Variable> variables,
                                        GradientOptions options, At at) {
  require(!variables.empty(), "no variables to optimize (", at.site.str(),
          "): create trainable variables before asking for gradients");
  require(loss.shape().rank() == 0, "the loss ", loss.node().describe(), " has shape ",
          loss.shape(), ", but must be a scalar; take its mean");
  const std::vector<Output> values = gradients(loss, variables, std::move(options), at);
  std::vector<Gradient> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i])
      result.push_back({values[i], variables[i]});
    else
      log_warning("variable '", variables[i].name(), "' does not influence the loss ",
                  loss.node().describe(), "; it is not trained");
  }
  require(!result.empty(), "no gradients for any variable: ", loss.node().describe(),
          " depends on none of them");
  return result;
}

}  // namespace belfry
