// Each optimizer changes a variable step by step.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/trainers/optimizers/optimizer_support.h"

namespace belfry {
namespace standard_optimizers_test {

using optimizer_support::expect_near;
using optimizer_support::sequence;
using testing::AllOf;
using testing::HasSubstr;

TEST(Sgd, MovesAgainstTheGradient) { expect_near(sequence(sgd(0.1), 3), {0.95, 0.9, 0.85}); }

TEST(Momentum, AccumulatesGradients) {
  // m = 0.5, 0.95, 1.355; w = 1 - 0.1 * (the sum of m).
  expect_near(sequence(momentum(0.1, 0.9), 3), {0.95, 0.855, 0.7195});
}

TEST(Adam, CorrectsTheBiasOfItsMoments) {
  std::vector<double> wanted;
  double w = 1, m = 0, v = 0;
  for (int t = 1; t <= 5; ++t) {
    m = 0.8 * m + 0.2 * 0.5;
    v = 0.95 * v + 0.05 * 0.25;
    w -= 0.01 * std::sqrt(1 - std::pow(0.95, t)) / (1 - std::pow(0.8, t)) * m /
         (std::sqrt(v) + 1e-8);
    wanted.push_back(w);
  }
  // With a constant gradient, each step moves w by the rate.
  EXPECT_NEAR(wanted[0], 0.99, 1e-8);
  expect_near(sequence(adam({.rate = 0.01, .beta1 = 0.8, .beta2 = 0.95}), 5), wanted);
}

// The following oracles are PyTorch's loops, written out. The gradient of sequence() is 0.5.
TEST(Sgd, AddsWeightDecayAsPyTorch) {
  std::vector<double> wanted;
  double w = 1;
  for (int t = 1; t <= 4; ++t) wanted.push_back(w -= 0.1 * (0.5 + 0.2 * w));
  expect_near(sequence(sgd(0.1, {.weight_decay = 0.2}), 4), wanted);
  expect_near(sequence(sgd(0.1).with_weight_decay(0.2), 4), wanted);
}

TEST(Momentum, LooksAheadAndDecaysAsPyTorch) {
  for (const bool nesterov : {false, true}) {
    std::vector<double> wanted;
    double w = 1, buffer = 0;
    for (int t = 1; t <= 5; ++t) {
      const double g = 0.5 + 0.2 * w;
      buffer = 0.9 * buffer + g;
      w -= 0.1 * (nesterov ? g + 0.9 * buffer : buffer);
      wanted.push_back(w);
    }
    expect_near(sequence(momentum(0.1, {.nesterov = nesterov, .weight_decay = 0.2}), 5), wanted);
  }
}

TEST(RmsProp, FollowsPyTorch) {
  for (const double momentum : {0.0, 0.6}) {
    std::vector<double> wanted;
    double w = 1, square = 0, buffer = 0;
    for (int t = 1; t <= 5; ++t) {
      const double g = 0.5 + 0.2 * w;
      square = 0.9 * square + 0.1 * g * g;
      buffer = momentum * buffer + g / (std::sqrt(square) + 0.01);
      w -= 0.1 * buffer;
      wanted.push_back(w);
    }
    const RmsPropOptions options{
        .alpha = 0.9, .epsilon = 0.01, .momentum = momentum, .weight_decay = 0.2};
    expect_near(sequence(rms_prop(0.1, options), 5), wanted);
  }
}

// A variable of ones with a gradient of 0.5, after three steps of AdamW.
double after_adamw(Shape shape) {
  Graph graph;
  const Variable w =
      variable(graph, "w", shape, {.dtype = DType::kF64, .initializer = init::constant(1)});
  const Gradient g{init::constant(0.5)(graph, shape, DType::kF64), w};
  Node& step = adamw(0.1, {.epsilon = 0.01, .weight_decay = 0.2}).apply({&g, 1});
  Session session(graph);
  for (int i = 0; i < 3; ++i) session.run({step});
  return session.read(w).data<double>()[0];
}

TEST(AdamW, DecaysAsPyTorchWhatHasTwoDimensionsAndNothingElse) {
  const auto wanted = [](double decay) {
    double w = 1, m = 0, v = 0;
    for (int t = 1; t <= 3; ++t) {
      w *= 1 - 0.1 * decay;
      m = 0.9 * m + 0.1 * 0.5;
      v = 0.999 * v + 0.001 * 0.25;
      const double root = std::sqrt(v) / std::sqrt(1 - std::pow(0.999, t));
      w -= 0.1 / (1 - std::pow(0.9, t)) * m / (root + 0.01);
    }
    return w;
  };
  EXPECT_NEAR(after_adamw({2, 3}), wanted(0.2), 1e-12);
  EXPECT_NEAR(after_adamw({2, 1, 1, 2}), wanted(0.2), 1e-12);
  EXPECT_NEAR(after_adamw({6}), wanted(0), 1e-12);
  EXPECT_NEAR(after_adamw({}), wanted(0), 1e-12);
}

// Three steps of LAMB by one gradient, written as in the paper.
std::vector<double> plain_lamb(std::vector<double> w, const std::vector<double>& g, double decay) {
  std::vector<double> m(w.size()), v(w.size()), u(w.size());
  for (int t = 1; t <= 3; ++t) {
    double of_w = 0, of_u = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.999, t));
      u[i] = m_hat / (std::sqrt(v_hat) + 0.01) + decay * w[i];
      of_w += w[i] * w[i];
      of_u += u[i] * u[i];
    }
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * std::sqrt(of_w / of_u) * u[i];
  }
  return w;
}

// Three steps by the optimizer, with a gradient that is `scale` times too large.
std::vector<double> after_lamb(const Shape& shape, const std::vector<double>& w,
                               const std::vector<double>& g, double scale = 1) {
  Graph graph;
  const Initializer first = [&](Graph& in, const Shape& of, DType) {
    return constant(in, Tensor(of, w));
  };
  const Variable variable =
      belfry::variable(graph, "w", shape, {.dtype = DType::kF64, .initializer = first});
  std::vector<double> scaled = g;
  for (double& value : scaled) value *= scale;
  const Gradient gradient{constant(graph, Tensor(shape, scaled)), variable};
  Unscaling unscaling;
  if (scale != 1) unscaling.factor = constant(graph, 1 / scale, DType::kF32);
  Node& step = lamb(0.1, {.epsilon = 0.01, .weight_decay = 0.2})
                   .apply({&gradient, 1}, {}, OptimizerSlots::kMake, unscaling);
  Session session(graph);
  for (int i = 0; i < 3; ++i) session.run({step});
  const Tensor after = session.read(variable);
  return {after.data<double>().begin(), after.data<double>().end()};
}

TEST(Lamb, ScalesTheStepOfAdamByTheNormOfTheVariable) {
  const std::vector<double> w{1, -2, 3, 0.5}, g{0.5, -1, 0.25, 2};
  // The ratio is f32, so results are only near.
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
  };
  near(after_lamb({2, 2}, w, g), plain_lamb(w, g, 0.2));
  near(after_lamb({4}, w, g), plain_lamb(w, g, 0));
  near(after_lamb({2, 2}, w, g, 4), plain_lamb(w, g, 0.2));
}

TEST(Lamb, MovesAVariableOfZerosByTheStepOfAdamItself) {
  const std::vector<double> after = after_lamb({2}, {0, 0}, {1, 1});
  EXPECT_LT(after[0], -0.09);
}

TEST(Adam, AddsWeightDecayToTheGradientOrShrinksTheVariable) {
  for (const bool decoupled : {false, true}) {
    std::vector<double> wanted;
    double w = 1, m = 0, v = 0;
    for (int t = 1; t <= 20; ++t) {
      const double g = 0.5 + (decoupled ? 0 : 0.2 * w);
      if (decoupled) w *= 1 - 0.1 * 0.2;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      w -= 0.1 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m /
           (std::sqrt(v) + 1e-8);
      wanted.push_back(w);
    }
    const Optimizer made = adam({.rate = 0.1, .weight_decay = 0.2});
    expect_near(
        sequence(made.with_decay_form(decoupled ? DecayForm::kDecoupled : DecayForm::kCoupled), 20),
        wanted);
  }
}

TEST(AmsGrad, FollowsPyTorchsAdamWithAmsgrad) {
  for (const bool decoupled : {false, true}) {
    std::vector<double> wanted;
    double w = 1, m = 0, v = 0, most = 0;
    for (int t = 1; t <= 20; ++t) {
      const double g = 0.5 + (decoupled ? 0 : 2 * w);
      if (decoupled) w *= 1 - 0.1 * 2;
      m = 0.9 * m + 0.1 * g;
      v = 0.5 * v + 0.5 * g * g;
      most = std::max(most, v);
      const double root = std::sqrt(most) / std::sqrt(1 - std::pow(0.5, t));
      w -= 0.1 / (1 - std::pow(0.9, t)) * m / (root + 0.01);
      wanted.push_back(w);
    }
    if (!decoupled) {
      EXPECT_GT(most, 2 * v) << "the largest must count";
    }
    const Optimizer made = amsgrad(0.1, {.beta2 = 0.5, .epsilon = 0.01, .weight_decay = 2});
    expect_near(
        sequence(made.with_decay_form(decoupled ? DecayForm::kDecoupled : DecayForm::kCoupled), 20),
        wanted);
  }
}

TEST(Adagrad, FollowsPyTorch) {
  for (const double decay : {0.0, 0.2}) {
    std::vector<double> wanted;
    double w = 1, square = 0;
    for (int t = 1; t <= 20; ++t) {
      const double g = 0.5 + decay * w;
      square += g * g;
      w -= 0.1 * g / (std::sqrt(square) + 0.01);
      wanted.push_back(w);
    }
    expect_near(sequence(adagrad(0.1, {.epsilon = 0.01, .weight_decay = decay}), 20), wanted);
  }
}

TEST(Momentum, TakesDecoupledDecay) {
  std::vector<double> wanted;
  double w = 1, buffer = 0;
  for (int t = 1; t <= 20; ++t) {
    buffer = 0.9 * buffer + 0.5;
    w = w * (1 - 0.1 * 0.2) - 0.1 * buffer;
    wanted.push_back(w);
  }
  const Optimizer made = momentum(0.1).with_weight_decay(0.2);
  expect_near(sequence(made.with_decay_form(DecayForm::kDecoupled), 20), wanted);
}

// 20 steps from these values in f64, by a gradient that is `scale` times too large, and is a half
// of the values plus `slope`.
std::vector<double> after_steps(const Optimizer& optimizer, const Shape& shape,
                                const std::vector<double>& w, const std::vector<double>& slope,
                                double scale = 1) {
  Graph graph;
  const Initializer first = [&](Graph& in, const Shape& of, DType) {
    return constant(in, Tensor(of, w));
  };
  const Variable x = variable(graph, "w", shape, {.dtype = DType::kF64, .initializer = first});
  const Output g = (x * 0.5 + constant(graph, Tensor(shape, slope))) * scale;
  const Gradient gradient{g, x};
  Unscaling unscaling;
  if (scale != 1) unscaling.factor = constant(graph, 1 / scale, DType::kF32);
  Node& step = optimizer.apply({&gradient, 1}, {}, OptimizerSlots::kMake, unscaling);
  Session session(graph);
  for (int i = 0; i < 20; ++i) session.run({step});
  const Tensor after = session.read(x);
  return {after.data<double>().begin(), after.data<double>().end()};
}

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

void expect_all_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-11) << i;
}

const std::vector<double> kFirst{1, -2, 3, 0.5}, kSlope{0.5, -1, 0.25, 2};

// The loop of the paper.
std::vector<double> plain_lion(double decay) {
  std::vector<double> w = kFirst, m(4);
  for (int t = 0; t < 20; ++t)
    for (std::size_t i = 0; i < 4; ++i) {
      const double g = 0.5 * w[i] + kSlope[i], ahead = 0.9 * m[i] + 0.1 * g;
      w[i] -= 0.1 * ((ahead > 0 ? 1 : -1) + decay * w[i]);
      m[i] = 0.99 * m[i] + 0.01 * g;
    }
  return w;
}

TEST(Lion, FollowsItsPaper) {
  const Optimizer made = lion(0.1, {.weight_decay = 0.2});
  expect_all_near(after_steps(made, {2, 2}, kFirst, kSlope), plain_lion(0.2));
  expect_all_near(after_steps(made, {2, 2}, kFirst, kSlope, 4), plain_lion(0.2));
  expect_all_near(after_steps(made, {4}, kFirst, kSlope), plain_lion(0));
}

// The loop of the paper. Without `scales`, of variables that are not scaled.
std::vector<double> plain_lars(double decay, bool nesterov, bool scales) {
  std::vector<double> w = kFirst, buffer(4), g(4);
  for (int t = 0; t < 20; ++t) {
    for (std::size_t i = 0; i < 4; ++i) g[i] = 0.5 * w[i] + kSlope[i];
    const double ratio = scales ? 0.05 * norm_of(w) / (norm_of(g) + decay * norm_of(w) + 0.01) : 1;
    for (std::size_t i = 0; i < 4; ++i) {
      const double d = ratio * (g[i] + decay * w[i]);
      buffer[i] = 0.8 * buffer[i] + d;
      w[i] -= 0.1 * (nesterov ? d + 0.8 * buffer[i] : buffer[i]);
    }
  }
  return w;
}

TEST(Lars, FollowsItsPaper) {
  for (const bool nesterov : {false, true}) {
    const Optimizer made = lars(0.1, {.momentum = 0.8,
                                      .trust_coefficient = 0.05,
                                      .epsilon = 0.01,
                                      .nesterov = nesterov,
                                      .weight_decay = 0.2});
    const std::vector<double> wanted = plain_lars(0.2, nesterov, true);
    expect_all_near(after_steps(made, {2, 2}, kFirst, kSlope), wanted);
    expect_all_near(after_steps(made, {2, 2}, kFirst, kSlope, 4), wanted);
    expect_all_near(after_steps(made, {4}, kFirst, kSlope), plain_lars(0, nesterov, false));
  }
}

TEST(Optimizer, WithDecayFormIsForRulesThatTakeBoth) {
  EXPECT_EQ(adamw(0.1).decay_form(), DecayForm::kDecoupled);
  EXPECT_EQ(sgd(0.1).with_decay_form(DecayForm::kDecoupled).decay_form(), DecayForm::kDecoupled);
  for (const Optimizer& own : {lamb(0.1), lars(0.1)}) {
    EXPECT_NO_THROW(own.with_decay_form(own.decay_form()));
    EXPECT_THROW(own.with_decay_form(DecayForm::kDecoupled), InvalidArgument);
  }
}

TEST(Optimizer, WithOptionChangesOneNumberAndKeepsTheRest) {
  const Optimizer made =
      momentum(0.1, {.momentum = 0.5, .nesterov = true}).with_weight_decay(0.2).with_averages({});
  const Optimizer changed = made.with_option("momentum", 0.25);
  EXPECT_EQ(changed.rate().at({}), 0.1);
  EXPECT_EQ(changed.weight_decay(), 0.2);
  EXPECT_TRUE(changed.averages());
  EXPECT_EQ(changed.kind(), "momentum");
  ASSERT_EQ(changed.options().size(), 2);
  EXPECT_EQ(changed.options()[0].value, 0.25);
  EXPECT_EQ(changed.options()[1].value, 1) << "nesterov";
  expect_near(sequence(momentum(0.1, 0.5).with_option("nesterov", 1), 4),
              sequence(momentum(0.1, {.momentum = 0.5, .nesterov = true}), 4));
  EXPECT_EQ(adam({.rate = 0.1, .name = "other"}).with_option("beta1", 0.5).name(), "other");
  try {
    adam(0.1).with_option("momentum", 0.5);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the optimizer Adam has no option momentum; it has beta1, "
                                        "beta2, epsilon"));
  }
  EXPECT_THROW(sgd(0.1).with_option("momentum", 0.5), InvalidArgument);
}

TEST(Optimizer, TakesTheNumbersOfItsRangeAlone) {
  const auto refusal = [](const Optimizer& optimizer, const char* option, double value) {
    try {
      optimizer.with_option(option, value);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::string& name : optimizer_names()) {
    const Optimizer made = make_optimizer(name);
    for (const OptimizerOption& option : made.options()) {
      EXPECT_EQ(refusal(made, option.name.c_str(), option.value), "") << name;
      for (const double wrong : {-0.5, std::nan("")})
        EXPECT_THAT(refusal(made, option.name.c_str(), wrong),
                    HasSubstr("the option " + option.name + " of the optimizer " + made.name() +
                              " must be "));
    }
  }
  EXPECT_EQ(refusal(adam(0.1), "epsilon", 0),
            "the option epsilon of the optimizer Adam must be a finite number > 0, not 0");
  EXPECT_EQ(refusal(lars(0.1), "epsilon", 0), "");
  EXPECT_THAT(refusal(adam(0.1), "beta2", 1), HasSubstr("a number >= 0 and below 1, not 1"));
  EXPECT_THAT(refusal(rms_prop(0.1), "alpha", 1.5), HasSubstr("at most 1, not 1.5"));
  EXPECT_THAT(refusal(momentum(0.1), "nesterov", 0.5), HasSubstr("0 or 1, not 0.5"));
  EXPECT_THROW(adam({.beta1 = 1}), InvalidArgument);
}

TEST(Optimizer, IsMadeByItsName) {
  for (const std::string& name : optimizer_names()) {
    const Optimizer made = make_optimizer(name);
    EXPECT_EQ(made.kind(), name);
    EXPECT_GT(made.rate().at({}), 0) << name;
    EXPECT_TRUE(made.takes_loss_scale() && made.takes_parts()) << name;
    for (const OptimizerOption& option : made.options())
      EXPECT_NO_THROW(made.with_option(option.name, option.value)) << name << " " << option.name;
    EXPECT_LT(sequence(made, 3).back(), 1) << name;
  }
  EXPECT_THAT(optimizer_names(), testing::IsSupersetOf({"lars", "lion", "adagrad", "amsgrad"}));
  try {
    make_optimizer("adamx");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no optimizer 'adamx'"), HasSubstr("adamw")));
  }
}

// A rule that takes no weight decay.
Optimizer own_rule() {
  return Optimizer({.name = "Own", .rate = 0.1, .update = [](const Optimizer::Update& u) -> Node& {
                      return u.gradient.node();
                    }});
}

TEST(Optimizer, WithWeightDecayIsForRulesThatTakeIt) {
  EXPECT_EQ(momentum(0.1, {.weight_decay = 0.2}).weight_decay(), 0.2);
  EXPECT_EQ(adamw(0.1).weight_decay(), 0.01);
  EXPECT_EQ(adamw(0.1).with_weight_decay(0).weight_decay(), 0);
  EXPECT_EQ(rms_prop(0.1).with_weight_decay(1e-4).weight_decay(), 1e-4);
  EXPECT_EQ(own_rule().with_weight_decay(0).weight_decay(), 0);
  try {
    own_rule().with_weight_decay(0.5);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the optimizer Own takes no weight decay"),
                                    HasSubstr("0.5"), HasSubstr("adamw")));
  }
  for (const double decay : {-0.5, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(sgd(0.1).with_weight_decay(decay), InvalidArgument);
}

TEST(Optimizer, WithRateKeepsTheRule) {
  expect_near(sequence(momentum(0.5).with_rate(0.1), 2), {0.95, 0.855});
}

}  // namespace standard_optimizers_test
}  // namespace belfry
