#include "belfry/allreduce/simulation/goodput.h"

#include <cmath>
#include <numbers>

namespace belfry {

double young_interval(const FaultCosts& faults) {
  return std::sqrt(2 * faults.save * faults.between);
}

double daly_interval(const FaultCosts& faults) {
  const double ratio = faults.save / (2 * faults.between);
  if (ratio >= 1) return faults.between;
  return young_interval(faults) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - faults.save;
}

double goodput(const FaultCosts& faults, double interval) {
  const double between = faults.between;
  return interval / (between * std::exp(faults.restart / between) *
                     std::expm1((interval + faults.save) / between));
}

double expected_largest(int n) {
  if (n < 2) return 0;
  // The integral of x times the density of the largest, n f(x) F(x)^(n-1).
  constexpr double kEnd = 9;
  constexpr int kSteps = 3600;
  double sum = 0;
  for (int i = 1; i < kSteps; ++i) {
    const double x = -kEnd + 2 * kEnd * i / kSteps;
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double below = std::erfc(-x / std::numbers::sqrt2) / 2;
    sum += x * n * density * std::pow(below, n - 1);
  }
  return sum * 2 * kEnd / kSteps;
}

}  // namespace belfry
