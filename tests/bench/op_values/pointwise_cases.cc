// The ops of ops/pointwise.
#include "belfry/belfry.h"
#include "belfry/tests/bench/op_values/op_cases.h"
#include "belfry/tests/support/op_test.h"

namespace belfry::bench {
namespace {

// One floating input of any shape.
OpCase of_one(std::string name, std::function<Output(Output)> op, double low = -3,
              double high = 3) {
  return {std::move(name), [=](Random& random) -> OpUse {
            return {[=](Inputs x) { return op(x[0]); }, {random.values(random.shape(), low, high)}};
          }};
}

// The shape with some of its first dimensions left out, and some of the others 1.
Shape repeated_to(const Shape& shape, Random& random) {
  const auto from = static_cast<std::size_t>(random.integer(0, static_cast<int>(shape.rank())));
  std::vector<std::int64_t> dims;
  for (std::size_t axis = from; axis < shape.rank(); ++axis)
    dims.push_back(random.integer(0, 2) == 0 ? 1 : shape[axis]);
  return Shape(std::move(dims));
}

// Two floating inputs that broadcast, with many ties if they are integers.
OpCase of_two(std::string name, std::function<Built(Output, Output)> op, double low = -2,
              bool integers = true) {
  return {std::move(name), [=](Random& random) -> OpUse {
            Shape a = random.shape(), b = repeated_to(a, random);
            if (random.coin()) std::swap(a, b);
            const auto values = [&](const Shape& shape) {
              return integers ? to(random.integers(shape, -2, 2), DType::kF64)
                              : random.values(shape, low, 2);
            };
            return {[=](Inputs x) { return op(x[0], x[1]); }, {values(a), values(b)}};
          }};
}

// An activation with one parameter, between 0.5 and 2.
OpCase activation(std::string name, std::string parameter,
                  std::function<Output(Output, double)> op) {
  return {std::move(name), [=](Random& random) -> OpUse {
            const double value = 0.5 * random.integer(1, 4);
            return {[=](Inputs x) { return op(x[0], value); },
                    {random.values(random.shape(), -5, 5)},
                    JsonValue::object().set(parameter, value)};
          }};
}

OpUse pow_scalar_use(Random& random) {
  const double y = 0.5 * random.integer(-5, 14);
  const bool integer = y == static_cast<int>(y) && y > 0;
  return {[=](Inputs x) { return pow(x[0], y); },
          {random.values(random.shape(), integer ? -2 : 0.25)},
          JsonValue::object().set("exponent", y)};
}

OpUse clip_use(Random& random) {
  const double low = 0.5 * random.integer(-3, 0), high = 0.5 * random.integer(0, 3);
  return {[=](Inputs x) { return clip(x[0], low, high); },
          {random.values(random.shape())},
          JsonValue::object().set("low", low).set("high", high)};
}

Built truths_of(Output a, Output b) {
  std::vector<Output> truths{equal(a, b),       not_equal(a, b),  less(a, b),
                             less_equal(a, b),  greater(a, b),    greater_equal(a, b),
                             logical_and(a, b), logical_or(a, b), logical_not(a),
                             isnan(a / b),      isfinite(a / b)};
  for (Output& truth : truths) truth = cast(truth, a.dtype());
  return truths;
}

OpUse where_use(Random& random) {
  const Shape shape = random.shape();
  return {[](Inputs x) { return where(not_equal(x[0], 0), x[1], x[2]); },
          {random.integers(repeated_to(shape, random), 0, 1),
           random.values(repeated_to(shape, random)), random.values(repeated_to(shape, random))}};
}

OpUse log_softmax_use(Random& random) {
  const Shape shape = random.shape();
  const int axis =
      random.integer(-static_cast<int>(shape.rank()), static_cast<int>(shape.rank()) - 1);
  return {[=](Inputs x) { return log_softmax(x[0], axis); },
          {random.values(shape)},
          JsonValue::object().set("axis", axis)};
}

OpUse logsumexp_use(Random& random) {
  const Shape shape = random.shape();
  const int axis = random.integer(0, static_cast<int>(shape.rank()) - 1);
  const bool kept = random.coin();
  return {[=](Inputs x) {
            return logsumexp(x[0], axis, kept ? ReducedAxes::kKept : ReducedAxes::kDropped);
          },
          {random.values(shape)},
          JsonValue::object().set("axis", axis).set("kept", kept)};
}

}  // namespace

std::vector<OpCase> pointwise_cases() {
  return {of_one("abs", [](Output x) { return abs(x); }),
          of_one("sign", [](Output x) { return sign(x); }),
          of_one("floor", [](Output x) { return floor(x); }),
          of_one("ceil", [](Output x) { return ceil(x); }),
          of_one("round", [](Output x) { return round(x); }),
          of_one(
              "log1p", [](Output x) { return log1p(x); }, -0.75, 4),
          of_one("expm1", [](Output x) { return expm1(x); }),
          of_one("erf", [](Output x) { return erf(x); }),
          of_one(
              "hard_swish", [](Output x) { return hard_swish(x); }, -5, 5),
          of_one(
              "hard_sigmoid", [](Output x) { return hard_sigmoid(x); }, -5, 5),
          activation("leaky_relu", "slope", [](Output x, double a) { return leaky_relu(x, a); }),
          activation("elu", "alpha", [](Output x, double a) { return elu(x, a); }),
          activation("softplus", "beta", [](Output x, double b) { return softplus(x, b); }),
          of_two("maximum", [](Output a, Output b) { return maximum(a, b); }),
          of_two("minimum", [](Output a, Output b) { return minimum(a, b); }),
          of_two(
              "pow", [](Output a, Output b) { return pow(a, b); }, 0.25, false),
          {"pow_scalar", pow_scalar_use},
          {"clip", clip_use},
          [] {
            OpCase truths = of_two("truths", truths_of);
            truths.derivatives = 0;
            return truths;
          }(),
          {"where", where_use},
          {"log_softmax", log_softmax_use},
          {"logsumexp", logsumexp_use}};
}

}  // namespace belfry::bench
