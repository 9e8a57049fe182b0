#include "belfry/tests/support/grad_check.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace {

std::vector<Output> placeholders(Graph& graph, std::span<const Tensor> inputs) {
  std::vector<Output> result;
  for (const Tensor& input : inputs)
    result.push_back(placeholder(graph, cat("x", result.size()), input.dtype(), input.shape()));
  return result;
}

Tensor random_like(const TensorType& type, unsigned seed) {
  Tensor tensor(type.shape, type.dtype);
  std::mt19937 bits(seed);
  for (double& value : tensor.mutable_data<double>()) value = bits() * 0x1p-31 - 1;
  return tensor;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data<double>().size(); ++i)
    sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

// One output of the builder, projected on a fixed random direction.
class Projection {
 public:
  Projection(const Builder& build, std::span<const Tensor> inputs, std::size_t output)
      : inputs_(inputs.begin(), inputs.end()), xs_(placeholders(graph_, inputs)) {
    y_ = build(xs_)[output];
    direction_ = random_like(y_.type(), 17);
    const Output initial = placeholder(graph_, "direction", y_.dtype(), y_.shape());
    direction_feed_ = {initial, direction_};
    for (const Output& x : xs_)
      if (x.dtype() == DType::kF64) floating_.push_back(x);
    gradients_ = gradients(y_, floating_, {.initial = {initial}});
  }

  // <direction, y> with input `i` replaced.
  double with(std::size_t i, const Tensor& value) const {
    std::vector<FeedValue> feeds = all_feeds();
    feeds[i].what = value;
    return dot(evaluate(y_, feeds), direction_);
  }

  // The gradient of <direction, y> with respect to input `i`; zeros if there is none.
  Tensor gradient(std::size_t i) const {
    const auto place = std::ranges::find(floating_, xs_[i]) - floating_.begin();
    const Output gradient = gradients_[static_cast<std::size_t>(place)];
    return gradient ? evaluate(gradient, all_feeds()) : Tensor(inputs_[i].shape(), DType::kF64);
  }

 private:
  std::vector<FeedValue> all_feeds() const {
    std::vector<FeedValue> feeds;
    for (std::size_t i = 0; i < xs_.size(); ++i) feeds.push_back({xs_[i], inputs_[i]});
    feeds.push_back(direction_feed_);
    return feeds;
  }

  Graph graph_;
  std::vector<Tensor> inputs_;
  std::vector<Output> xs_, floating_, gradients_;
  Output y_;
  Tensor direction_;
  FeedValue direction_feed_;
};

// If there are more elements than this, it takes differences along some of them, spread over the
// tensor, and along one random direction.
constexpr std::size_t kMostElements = 128;

class Comparison {
 public:
  Comparison(const Projection& projection, const Tensor& input, std::size_t i, double step)
      : projection_(projection),
        input_(input),
        i_(i),
        step_(step),
        analytic_(projection.gradient(i)) {
    require(analytic_.shape() == input.shape(), "gradient ", i, " has shape ", analytic_.shape(),
            " instead of ", input.shape());
  }

  void run(std::size_t output, GradientError& worst) const {
    const std::size_t elements = input_.data<double>().size();
    const std::size_t stride = elements > kMostElements ? elements / kMostElements : 1;
    for (std::size_t e = 0; e < elements; e += stride) {
      Tensor direction(input_.shape(), DType::kF64);
      direction.mutable_data<double>()[e] = 1;
      compare(direction, cat("output ", output, ", input ", i_, ", element ", e), worst);
    }
    if (stride > 1)
      compare(random_like({input_.shape(), DType::kF64}, 29),
              cat("output ", output, ", input ", i_, ", along a direction"), worst);
  }

 private:
  void compare(const Tensor& direction, const std::string& where, GradientError& worst) const {
    Tensor up = input_, down = input_;
    for (std::size_t e = 0; e < input_.data<double>().size(); ++e) {
      up.mutable_data<double>()[e] += step_ * direction.data<double>()[e];
      down.mutable_data<double>()[e] -= step_ * direction.data<double>()[e];
    }
    const double numeric = (projection_.with(i_, up) - projection_.with(i_, down)) / (2 * step_);
    const double exact = dot(analytic_, direction);
    const double error =
        std::abs(exact - numeric) / std::max({1.0, std::abs(exact), std::abs(numeric)});
    if (error <= worst.largest) return;  // NaN is taken, too
    worst = {std::isnan(error) ? HUGE_VAL : error,
             cat(where, ": analytic ", exact, ", numeric ", numeric)};
  }

  const Projection& projection_;
  const Tensor& input_;
  std::size_t i_;
  double step_;
  Tensor analytic_;
};

}  // namespace

GradientError gradient_error(const Builder& build, std::span<const Tensor> inputs, double step) {
  std::vector<bool> floating;
  {
    Graph graph;
    for (const Output& y : build(placeholders(graph, inputs)))
      floating.push_back(y.dtype() == DType::kF64);
  }
  GradientError worst;
  for (std::size_t output = 0; output < floating.size(); ++output) {
    if (!floating[output]) continue;
    const Projection projection(build, inputs, output);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].dtype() == DType::kF64)
        Comparison(projection, inputs[i], i, step).run(output, worst);
  }
  return worst;
}

}  // namespace belfry
