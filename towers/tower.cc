#include "belfry/towers/tower.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

void add_named(std::vector<NamedOutput>& list, std::string_view what, std::string_view name,
               Output value, SourceLine site) {
  require(!name.empty(), what, " (", site, "): needs a name");
  require(static_cast<bool>(value), what, " '", name, "' (", site, ") is empty");
  for (const NamedOutput& other : list)
    require(other.name != name, what, " '", name, "' (", site,
            "): the tower has one of this name, ", other.value.node().describe());
  list.push_back({std::string(name), value});
}

void require_scalar(std::string_view what, Output value, SourceLine site) {
  require(static_cast<bool>(value), what, " (", site, ") is empty");
  require(value.shape().rank() == 0 && is_floating(value.dtype()), what, " (", site, "), ",
          value.node().describe(), ", must be a floating-point scalar, not ", value.type());
}

// Hosts read losses and metrics between steps, in types that they support.
Output in_32_bits(Output value, SourceLine site) {
  return is_half(value.dtype()) ? cast(value, DType::kF32, At(site)) : value;
}

}  // namespace

// Makes new variables local copies of tower 0's. A variable that tower 0 lacks, or that differs
// from tower 0's, becomes a plain one: replicate() then names both.
class Tower::CopiesOfMain final : public VariableGetter {
 public:
  explicit CopiesOfMain(const Tower& tower) : tower_(tower) {}

  void request(VariableRequest& request) override {
    request.options.collections = {std::string(kLocalVariables)};
    const Variable main = tower_.graph().stored_variable(request.name);
    if (main && main.shape() == request.shape && main.dtype() == request.options.dtype)
      request.options.copy_of = &main.node();
  }

 private:
  const Tower& tower_;
};

// Members are in the order in which the scopes are entered.
struct Tower::Scopes {
  std::optional<DeviceScope> device;
  std::optional<VariableScope> variables;
  std::optional<VariableScope> copies;
  std::optional<NameScope> names;
  std::optional<ReplicaScope> replica;
};

Tower::Tower(Graph& graph, std::string_view name, bool training, At at)
    : Tower(graph, {.name = std::string(name), .training = training}, at) {}

Tower::Tower(Graph& graph, TowerOptions options, At at)
    : TowerNodes(graph),
      options_(std::move(options)),
      variable_prefix_(options_.own_variables ? options_.name + "/" : std::string()),
      links_(*this, options_.here, options_.name,
             options_.total > 1 ? options_.collectives : nullptr),
      scopes_(std::make_unique<Scopes>()) {
  ScopeStack& outer = graph.scopes();
  const SourceLine site = outer.site_or(at.site);
  const std::string_view around = outer.replica_prefix();
  require(around.empty(), "tower '", options_.name, "' (", site, ") is built inside tower '",
          around.substr(0, around.rfind('/')), "'; towers do not nest: build it after that one");
  require(outer.variable_path().empty(), "tower '", options_.name, "' (", site,
          ") is built inside variable scope '", outer.variable_path(),
          "'; open the scope in the tower function");
  require(!options_.own_variables || !options_.name.empty(), "a tower (", site,
          ") with variables of its own needs a name, which begins theirs");
  require(!options_.own_variables || outer.variables().reuse == VariableReuse::kInherit, "tower '",
          options_.name, "' (", site,
          ") makes variables of its own, but is built in a variable scope ",
          "that reuses some; open the scope in the tower function");
  options_.call = ++outer.calls;
  if (options_.setter)
    scopes_->device.emplace(graph, *options_.setter, site);
  else if (!options_.device.empty())
    scopes_->device.emplace(graph, options_.device, site);
  // Each tower re-enters this scope, so that scopes with default names are the same in all.
  scopes_->variables.emplace(graph, options_.own_variables ? options_.name : std::string(),
                             options_.reuse, site);
  if (options_.own_variables) {
    copies_ = std::make_unique<CopiesOfMain>(*this);
    scopes_->copies.emplace(graph, *copies_, site);
  }
  if (!options_.name.empty()) {
    scopes_->names.emplace(graph, options_.name + "/", site);
    scopes_->replica.emplace(graph, options_.name + "/", options_.index, options_.call, site);
  }
  if (!options_.training || options_.index > 0)
    frozen_[std::string(kSummaries)] = graph.collection(kSummaries).size();
  if (!is_training()) frozen_.emplace(kUpdateOps, graph.collection(kUpdateOps).size());
}

Tower::~Tower() {
  for (const auto& [key, size] : frozen_) {
    std::vector<Node*>& nodes = graph().collection(key);
    nodes.resize(std::min(nodes.size(), size));
  }
}

void Tower::loss(Output value, At at) {
  require_scalar("the loss", value, at.site);
  require(!loss_, "the loss (", at.site, "): the tower has one, ",
          loss_ ? loss_.node().describe() : std::string(), "; add them up");
  loss_ = in_32_bits(value, at.site);
}

void Tower::loss(std::string_view name, Output value, At at) {
  require(!loss_ || !losses_.empty(), "the loss '", name, "' (", at.site,
          "): the tower has one without a name, ", loss_ ? loss_.node().describe() : std::string(),
          "; name both");
  metric(name, value, at);
  losses_.emplace_back(name);
  const AutocastScope as_they_are(graph(), {}, at.site);
  const Output own = metrics_.back().value;
  loss_ = loss_ ? add(loss_, own, At(at.site)) : own;
}

void Tower::metric(std::string_view name, Output value, At at) {
  require_scalar(cat("metric '", name, "'"), value, at.site);
  add_metric({std::string(name), in_32_bits(value, at.site), {}, {}}, at.site);
}

void Tower::metric(std::string_view name, MetricSums sums, At at) {
  const auto metric = [&] { return cat("metric '", name, "' (", at.site, ")"); };
  require(static_cast<bool>(sums.sums), metric(), " has no sums");
  require(is_floating(sums.sums.dtype()) && sums.sums.shape().is_fully_known(), metric(), ", ",
          sums.sums.node().describe(),
          ", must be floating-point sums over the samples, of a shape ", "that is known, not ",
          sums.sums.type(), "; use reduce_sum(x, {0})");
  require(!sums.ends.empty(), metric(), " does not say how its sums end");
  for (const MetricEnd& end : sums.ends)
    require(static_cast<bool>(end.of), metric(), ": the end '", end.name, "' has no function");
  const Output wide =
      sums.sums.dtype() == DType::kF64 ? sums.sums : cast(sums.sums, DType::kF64, At(at.site));
  add_metric({std::string(name), wide, std::move(sums.ends), {}}, at.site);
}

void Tower::metric(std::string_view name, MetricScores scores, At at) {
  const auto metric = [&] { return cat("metric '", name, "' (", at.site, ")"); };
  require(scores.scores && scores.labels, metric(), " has no scores or no labels");
  require(static_cast<bool>(scores.of), metric(), " does not say how its scores end");
  const Output &x = scores.scores, &labels = scores.labels;
  require(is_floating(x.dtype()) && x.shape().rank() > 0 && x.shape().compatible(labels.shape()),
          metric(), ": scores ", x.type(), " and labels ", labels.type(),
          " must have one shape, of samples, and scores be floating-point");
  const AutocastScope as_they_are(graph(), {}, at.site);
  const auto column = [&](Output of) {
    return reshape(cast(of, DType::kF64, At(at.site)), {kUnknownSize, 1}, At(at.site));
  };
  add_metric({std::string(name),
              concat({column(x), column(labels)}, 1, At(at.site)),
              {},
              std::move(scores.of)},
             at.site);
}

// Names of values differ, too: other parts of the program know values alone.
void Tower::add_metric(TowerMetric metric, SourceLine site) {
  require(!metric.name.empty(), "metric (", site, "): needs a name");
  std::vector<std::string> names = metric.value_names();
  for (const TowerMetric& other : metrics_)
    for (const std::string& name : other.value_names())
      require(std::ranges::find(names, name) == names.end(), "metric '", name, "' (", site,
              "): the tower has one of this name, ", other.value.node().describe());
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  require(twice == names.end(), "metric '", metric.name, "' (", site, "): two of its values are ",
          "called '", twice == names.end() ? std::string() : *twice, "'");
  metrics_.push_back(std::move(metric));
}

void Tower::output(std::string_view name, Output value, At at) {
  add_named(outputs_, "output", name, value, at.site);
}

}  // namespace belfry
