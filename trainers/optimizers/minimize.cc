#include "belfry/trainers/optimizers/minimize.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/not_finite.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradients.h"

namespace belfry {
namespace {
namespace minimize_loss {

// Sums of losses have about so many times the rounding error of one number.
constexpr double kRoundings = 8;

bool is_real(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// Calls f(span of T) for a tensor of f32 or f64.
template <class F>
void with_elements(const Tensor& tensor, F f) {
  if (tensor.dtype() == DType::kF32)
    f(tensor.data<float>());
  else
    f(tensor.data<double>());
}

void check_loss(const Session& session, Output loss, SourceLine site) {
  require(static_cast<bool>(loss), "minimize (", site, "): the loss is empty");
  const TensorText text(loss.node().name(), loss.type(), loss.node().origin().site);
  require(&loss.node().graph() == &session.graph(), "minimize (", site, "): the loss ", text,
          " is of another graph than the session");
  require(session.graph().process().size == 1, "minimize (", site,
          ") works in one process, but this graph is of ", session.graph().process().size);
  require(loss.shape().rank() == 0, "minimize (", site, "): the loss ", text,
          " must be a scalar; take its mean or its sum");
  require(is_real(loss.dtype()), "minimize (", site, "): the loss ", text, " must be f32 or f64");
}

void check_variable(const Session& session, Variable variable, SourceLine site) {
  require(static_cast<bool>(variable), "minimize (", site, "): a variable is empty");
  require(&variable.node().graph() == &session.graph(), "minimize (", site, "): the variable ",
          variable.describe(), " is of another graph than the session");
  require(is_real(variable.dtype()), "minimize (", site, "): the variable ", variable.describe(),
          " must be f32 or f64");
}

}  // namespace minimize_loss
}  // namespace

struct LossMinimizer::State {
  // A variable with its replicas, which have equal values.
  struct Parameter {
    std::vector<Variable> replicas;
    std::vector<std::size_t> gradients;  // numbers of the fetches with the gradients of replicas
  };

  Session& session;
  Output loss;
  std::vector<Parameter> parameters;
  std::vector<Fetch> fetches;  // the loss and the gradients

  static std::vector<Parameter> parameters_of(const Session& session,
                                              const std::vector<Variable>& variables,
                                              SourceLine site);
  void add_gradients(At at);
  std::vector<double> read() const;
  void round(std::vector<double>& point) const;
  void write(const std::vector<double>& point) const;
  ObjectiveFunction::Value evaluate(std::span<const FeedValue> feeds) const;
  std::string not_finite(const std::vector<Tensor>& values) const;
};

// The originals of the variables, once each, with all their replicas.
std::vector<LossMinimizer::State::Parameter> LossMinimizer::State::parameters_of(
    const Session& session, const std::vector<Variable>& variables, SourceLine site) {
  require(!variables.empty(), "minimize (", site, ") got no variables; list those to be found");
  std::vector<const Node*> originals;
  for (const Variable variable : variables) {
    minimize_loss::check_variable(session, variable, site);
    const Node* const original = &original_of(variable.node());
    if (std::find(originals.begin(), originals.end(), original) == originals.end())
      originals.push_back(original);
  }
  std::vector<Parameter> parameters(originals.size());
  for (const Variable variable : session.graph().variables()) {
    const auto found = std::find(originals.begin(), originals.end(), &original_of(variable.node()));
    if (found == originals.end()) continue;
    parameters[static_cast<std::size_t>(found - originals.begin())].replicas.push_back(variable);
  }
  return parameters;
}

void LossMinimizer::State::add_gradients(At at) {
  std::vector<Variable> replicas;
  for (const auto& parameter : parameters)
    replicas.insert(replicas.end(), parameter.replicas.begin(), parameter.replicas.end());
  const std::vector<Output> values = gradients(loss, replicas, {.colocate = true}, at);
  fetches.emplace_back(loss);
  std::size_t next = 0;
  for (auto& parameter : parameters) {
    for (std::size_t i = 0; i < parameter.replicas.size(); ++i) {
      const Output& value = values[next++];
      if (!value) continue;
      parameter.gradients.push_back(fetches.size());
      fetches.emplace_back(value);
    }
    require(!parameter.gradients.empty(), "minimize (", at.site, "): the loss ",
            loss.node().describe(), " does not depend on the variable ",
            parameter.replicas[0].describe(), "; leave the variable out, or use it in the loss");
  }
}

// All variables, one after the other.
std::vector<double> LossMinimizer::State::read() const {
  std::vector<double> point;
  for (const auto& parameter : parameters)
    minimize_loss::with_elements(session.read(parameter.replicas[0]), [&](auto elements) {
      point.insert(point.end(), elements.begin(), elements.end());
    });
  return point;
}

// To what the variables can hold, so that moves are what they seem.
void LossMinimizer::State::round(std::vector<double>& point) const {
  auto next = point.begin();
  for (const auto& parameter : parameters) {
    const auto end = next + parameter.replicas[0].shape().elements();
    if (parameter.replicas[0].dtype() == DType::kF32)
      std::transform(next, end, next, [](double x) { return static_cast<float>(x); });
    next = end;
  }
}

void LossMinimizer::State::write(const std::vector<double>& point) const {
  auto next = point.begin();
  for (const auto& parameter : parameters) {
    const Variable first = parameter.replicas[0];
    const auto end = next + first.shape().elements();
    Tensor value(first.shape(), first.dtype());
    if (first.dtype() == DType::kF32)
      std::transform(next, end, value.mutable_data<float>().begin(),
                     [](double x) { return static_cast<float>(x); });
    else
      std::copy(next, end, value.mutable_data<double>().begin());
    for (const Variable replica : parameter.replicas) session.write(replica, value);
    next = end;
  }
}

ObjectiveFunction::Value LossMinimizer::State::evaluate(std::span<const FeedValue> feeds) const {
  const std::vector<Tensor> values = session.run(fetches, feeds);
  ObjectiveFunction::Value value;
  minimize_loss::with_elements(values[0], [&](auto elements) { value.loss = elements[0]; });
  value.not_finite = not_finite(values);
  for (const auto& parameter : parameters) {
    const std::size_t begin = value.gradient.size();
    value.gradient.resize(begin +
                          static_cast<std::size_t>(values[parameter.gradients[0]].elements()));
    for (const std::size_t i : parameter.gradients)
      minimize_loss::with_elements(values[i], [&](auto elements) {
        for (std::size_t e = 0; e < elements.size(); ++e) value.gradient[begin + e] += elements[e];
      });
  }
  return value;
}

std::string LossMinimizer::State::not_finite(const std::vector<Tensor>& values) const {
  const auto bad = [&](std::size_t i) {
    return find_not_finite(values[i].dtype(), {values[i].raw(), values[i].bytes()});
  };
  if (const auto found = bad(0))
    return cat("the loss ", loss.node().describe(), " is ", found->value);
  for (const auto& parameter : parameters)
    for (const std::size_t i : parameter.gradients)
      if (const auto found = bad(i))
        return cat("the gradient of ", parameter.replicas[0].describe(), " has ", *found);
  return "";
}

LossMinimizer::LossMinimizer(Session& session, Output loss, const std::vector<Variable>& variables,
                             At at) {
  minimize_loss::check_loss(session, loss, at.site);
  state_.reset(new State{session, loss, State::parameters_of(session, variables, at.site), {}});
  state_->add_gradients(at);
}

LossMinimizer::~LossMinimizer() = default;

MinimizeResult LossMinimizer::run(const MinimizeOptions& options,
                                  std::span<const FeedValue> feeds) {
  const double epsilon = state_->loss.dtype() == DType::kF32
                             ? std::numeric_limits<float>::epsilon()
                             : std::numeric_limits<double>::epsilon();
  std::vector<double> reached = state_->read(), written;
  const auto write = [&](const std::vector<double>& point) {
    if (point != written) state_->write(point);
    written = point;
  };
  const ObjectiveFunction objective{.evaluate =
                                        [&](std::vector<double>& point) {
                                          state_->round(point);
                                          write(point);
                                          return state_->evaluate(feeds);
                                        },
                                    .reach = write,
                                    .rounding = minimize_loss::kRoundings * epsilon};
  try {
    const MinimizeResult result = minimize_by_lbfgs(objective, reached, options);
    write(reached);
    return result;
  } catch (...) {
    try {
      if (!written.empty()) write(reached);
    } catch (const std::exception&) {  // the first error says more
    }
    throw;
  }
}

MinimizeResult minimize(Session& session, Output loss, const std::vector<Variable>& variables,
                        const MinimizeOptions& options, std::span<const FeedValue> feeds, At at) {
  return LossMinimizer(session, loss, variables, at).run(options, feeds);
}

}  // namespace belfry
