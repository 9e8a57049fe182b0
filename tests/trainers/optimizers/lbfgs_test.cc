#include "belfry/trainers/optimizers/lbfgs.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace lbfgs_test {

using Point = std::vector<double>;
// Returns the loss, and adds to the gradient, which begins as zeros.
using Loss = double (*)(const Point& x, Point& gradient);

double rosenbrock(const Point& x, Point& gradient) {
  double loss = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double off = x[i + 1] - x[i] * x[i];
    loss += 100 * off * off + (1 - x[i]) * (1 - x[i]);
    gradient[i] += -400 * x[i] * off - 2 * (1 - x[i]);
    gradient[i + 1] += 200 * off;
  }
  return loss;
}

// Second derivatives from 1 to 1e8.
double quadratic(const Point& x, Point& gradient) {
  double loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double weight = std::pow(10, 8 * static_cast<double>(i) / double(x.size() - 1));
    loss += weight * (x[i] - 1) * (x[i] - 1) / 2;
    gradient[i] = weight * (x[i] - 1);
  }
  return loss;
}

double beale(const Point& x, Point& gradient) {
  double loss = 0, power = 1;  // of x[1]
  for (const double wanted : {1.5, 2.25, 2.625}) {
    const double before = power, of = wanted == 1.5 ? 1 : wanted == 2.25 ? 2 : 3;
    power *= x[1];
    const double off = wanted - x[0] + x[0] * power;
    loss += off * off;
    gradient[0] += 2 * off * (power - 1);
    gradient[1] += 2 * off * x[0] * of * before;
  }
  return loss;
}

double himmelblau(const Point& x, Point& gradient) {
  const double a = x[0] * x[0] + x[1] - 11, b = x[0] + x[1] * x[1] - 7;
  gradient = {4 * x[0] * a + 2 * b, 2 * a + 4 * x[1] * b};
  return a * a + b * b;
}

double booth(const Point& x, Point& gradient) {
  const double a = x[0] + 2 * x[1] - 7, b = 2 * x[0] + x[1] - 5;
  gradient = {2 * a + 4 * b, 4 * a + 2 * b};
  return a * a + b * b;
}

// Least squares of a exp(-b t) + c.
double decay(const Point& x, Point& gradient) {
  double loss = 0;
  for (int i = 0; i < 20; ++i) {
    const double t = 4 * i / 19.0, power = std::exp(-x[1] * t);
    const double off = x[0] * power + x[2] - (2.5 * std::exp(-1.3 * t) + 0.5);
    loss += off * off;
    gradient[0] += 2 * off * power;
    gradient[1] += 2 * off * x[0] * -t * power;
    gradient[2] += 2 * off;
  }
  return loss;
}

// Least squares of a polynomial, to data that no polynomial has.
double polynomial(const Point& x, Point& gradient) {
  double loss = 0;
  for (int i = 0; i < 30; ++i) {
    const double t = i / 29.0;
    double off = -(3 - 2 * t + 0.5 * t * t + 0.1 * std::sin(17 * i)), power = 1;
    for (std::size_t j = 0; j < x.size(); ++j, power *= t) off += x[j] * power;
    loss += off * off;
    power = 1;
    for (std::size_t j = 0; j < x.size(); ++j, power *= t) gradient[j] += 2 * off * power;
  }
  return loss;
}

struct Found {
  MinimizeResult result;
  Point at;
};

Found minimize(Loss loss, Point point, const MinimizeOptions& options = {}) {
  const ObjectiveFunction objective{
      .evaluate =
          [&](Point& at) {
            ObjectiveFunction::Value value{.gradient = Point(at.size(), 0)};
            value.loss = loss(at, value.gradient);
            bool finite = std::isfinite(value.loss);
            for (const double slope : value.gradient) finite = finite && std::isfinite(slope);
            if (!finite) value.not_finite = "the loss or its gradient is not finite";
            return value;
          },
      .rounding = 8 * std::numeric_limits<double>::epsilon()};
  const MinimizeResult result = minimize_by_lbfgs(objective, point, options);
  return {result, point};
}

// Evaluations of SciPy's L-BFGS-B, with ftol = 1e-15 and gtol = 1e-9.
TEST(Lbfgs, ReachesMinimaFromSteepBeginningsAsFastAsSciPy) {
  struct Problem {
    const char* name;
    Loss loss;
    Point from;
    int scipy;
    double lowest = 0;
  };
  const Problem problems[] = {
      {"rosenbrock", rosenbrock, {-1.2, 1}, 46},
      {"rosenbrock", rosenbrock, {-120, 100}, 148},
      {"rosenbrock", rosenbrock, {120, 100}, 129},
      {"rosenbrock", rosenbrock, {-1000, 1000}, 255},
      {"rosenbrock", rosenbrock, {1e4, -1e4}, 404},
      {"rosenbrock", rosenbrock, {-50, 3}, 77},
      {"rosenbrock", rosenbrock, {10, -500}, 165},
      {"rosenbrock", rosenbrock, {3, 100}, 120},
      {"rosenbrock", rosenbrock, {1e-3, 30}, 58},
      {"rosenbrock", rosenbrock, {-1e5, 1}, 119},
      {"rosenbrock", rosenbrock, {-1.2, 1, -1.2, 1, -1.2, 1, -1.2, 1, -1.2, 1}, 94},
      {"rosenbrock", rosenbrock, {-12, 10, -12, 10, -12, 10, -12, 10, -12, 10}, 103},
      {"quadratic", quadratic, Point(10, 0), 833},
      {"quadratic", quadratic, Point(10, 100), 1650},
      {"quadratic", quadratic, {1e6, -1e3}, 26},
      {"beale", beale, {1, 1}, 18},
      {"beale", beale, {3.5, 1.5}, 20},
      {"beale", beale, {0, 0}, 15},
      {"beale", beale, {4, 4}, 30},
      {"himmelblau", himmelblau, {0, 0}, 18},
      {"himmelblau", himmelblau, {-100, 80}, 23},
      {"himmelblau", himmelblau, {1000, 1000}, 35},
      {"himmelblau", himmelblau, {5, -5}, 14},
      {"booth", booth, {0, 0}, 7},
      {"booth", booth, {1e5, -1e4}, 17},
      {"booth", booth, {-3, 8}, 11},
      {"decay", decay, {1, 1, 0}, 16},
      {"decay", decay, {10, 0.1, -3}, 62},
      {"decay", decay, {1, 5, 1}, 24},
      {"polynomial", polynomial, Point(3, 0), 19, 0.1449},
      {"polynomial", polynomial, Point(5, 0), 48, 0.1445},
      {"polynomial", polynomial, Point(3, 1e4), 50, 0.1449},
  };
  for (const Problem& problem : problems) {
    const Found found = minimize(problem.loss, problem.from);
    SCOPED_TRACE(testing::Message()
                 << problem.name << " from " << testing::PrintToString(problem.from) << ": "
                 << found.result.str());
    EXPECT_LT(found.result.loss, problem.lowest + (problem.lowest > 0 ? 1e-4 : 1e-10));
    EXPECT_LE(found.result.evaluations, 1.5 * problem.scipy);
    EXPECT_TRUE(found.result.end == MinimizeEnd::kGradient ||
                found.result.end == MinimizeEnd::kChange);
  }
}

// Across the valley y = x^2 the loss is up to 1e13 times as steep as along it. A move across it
// hardly lowers the loss, and leaves a small part of the first gradient.
TEST(Lbfgs, IsNotEndedByACrossedValley) {
  for (const double x : {-1e5, -1000.0, -10.0, 1.0, 20.0, 1e4})
    for (const double y : {-1e5, -100.0, 0.0, 5.0, 1000.0, 2e4, 5e5}) {
      const Found found = minimize(rosenbrock, {x, y});
      EXPECT_LT(found.result.loss, 1e-10) << x << " " << y << ": " << found.result.str();
    }
}

TEST(Lbfgs, SaysThatALossIsUnbounded) {
  const Loss line = [](const Point& x, Point& gradient) { return gradient = {-1}, 1e6 - x[0]; };
  const Loss hill = [](const Point& x, Point& gradient) {
    return gradient = {-2 * x[0], 2 * x[1]}, x[1] * x[1] - x[0] * x[0];
  };
  const Loss cubic = [](const Point& x, Point& gradient) {
    return gradient = {3 * x[0] * x[0]}, x[0] * x[0] * x[0];
  };
  const Loss power = [](const Point& x, Point& gradient) {
    return gradient = {-std::exp(x[0])}, -std::exp(x[0]);
  };
  const std::pair<Loss, Point> losses[] = {
      {line, {0}}, {line, {1e3}}, {hill, {1, 3}}, {cubic, {-1}}, {power, {0}}};
  for (const auto& [loss, from] : losses) {
    const Found found = minimize(loss, from);
    EXPECT_EQ(found.result.end, MinimizeEnd::kUnbounded) << found.result.str();
    EXPECT_LT(found.result.loss, -1e15);
    EXPECT_LE(found.result.evaluations, 60) << found.result.str();
  }
  EXPECT_THAT(minimize(line, {0}).result.str(), testing::HasSubstr("unbounded below"));
}

// exp(-x) falls for ever, to a loss of 0.
TEST(Lbfgs, DoesNotCallALossUnboundedThatIsNot) {
  const Loss falling = [](const Point& x, Point& gradient) {
    return gradient = {-std::exp(-x[0])}, std::exp(-x[0]);
  };
  EXPECT_NE(minimize(falling, {0}).result.end, MinimizeEnd::kUnbounded);
  // The first move is 1e20 times too short, and changes no bit of the variables.
  const Found far = minimize(booth, {1e4, 0}, {.first_move = 1e-18});
  EXPECT_NEAR(far.at[0], 1, 1e-6) << far.result.str();
}

// There is no loss where x is negative, or 1e20 times too far off.
TEST(Lbfgs, ShortensStepsToWhereTheLossIsNotFinite) {
  const Loss barrier = [](const Point& x, Point& gradient) {
    return gradient = {1 - 1 / x[0]}, x[0] - std::log(x[0]);
  };
  for (const double from : {1e-6, 0.5, 5.0, 1e6})
    EXPECT_NEAR(minimize(barrier, {from}).at[0], 1, 1e-6) << from;
  const Loss steep = [](const Point& x, Point& gradient) {
    const double power = std::exp(x[0] * x[0]);
    return gradient = {2 * x[0] * power}, power;
  };
  for (const double first : {1.0, 1e3, 1e12})
    EXPECT_NEAR(minimize(steep, {20}, {.first_move = first}).at[0], 0, 1e-6) << first;
}

// Rounding raises the loss, far above its own precision: the gradient is right.
TEST(Lbfgs, BlamesNoGradientForARoughLoss) {
  const Loss rough = [](const Point& x, Point& gradient) {
    return gradient = {2 * x[0]}, (x[0] * x[0] + 1e12) - 1e12 + 1;
  };
  const Found found = minimize(rough, {1e-4});
  EXPECT_NE(found.result.end, MinimizeEnd::kContradiction) << found.result.str();
}

}  // namespace lbfgs_test
}  // namespace belfry
