// Tests the program optimizer_steps, whose output scripts/compare_with_torch reads.
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace optimizer_steps_test {

std::vector<double> doubles_of(const Safetensors& file, const std::string& name) {
  const auto bytes = file.values(file.tensors().at(name));
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(OptimizerSteps, AreThoseOfPlainGradientDescentAndMomentum) {
  if (kSanitized) GTEST_SKIP() << "benchmarks are not built";
  const std::string path = temporary_path(".safetensors");
  const Finished done = run_built("optimizer_steps", {path});
  ASSERT_EQ(done.status, 0) << done.errors;
  const Safetensors file(local_file_system().read(path, 1 << 24), path);
  EXPECT_EQ(file.tensors().size(), 2u + 2 * 20 * 12);
  const std::vector<double> first = doubles_of(file, "first"), slope = doubles_of(file, "slope");
  std::vector<double> plain = first, moved = first, sum(first.size());
  for (int step = 1; step <= 20; ++step) {
    const std::vector<double> sgd = doubles_of(file, cat("sgd/", step)),
                              momentum = doubles_of(file, cat("momentum/", step));
    for (std::size_t i = 0; i < first.size(); ++i) {
      plain[i] -= 0.1 * (0.5 * plain[i] + slope[i] + 0.2 * plain[i]);
      sum[i] = 0.8 * sum[i] + 0.5 * moved[i] + slope[i] + 0.2 * moved[i];
      moved[i] -= 0.1 * sum[i];
      EXPECT_NEAR(sgd[i], plain[i], 1e-12) << step;
      EXPECT_NEAR(momentum[i], moved[i], 1e-12) << step;
    }
  }
}

// Rows: a tenth of the rate, no decay, frozen, and no group.
TEST(OptimizerSteps, FollowGroupsOfVariables) {
  if (kSanitized) GTEST_SKIP() << "benchmarks are not built";
  const std::string path = temporary_path(".safetensors");
  ASSERT_EQ(run_built("optimizer_steps", {path}).status, 0);
  const Safetensors file(local_file_system().read(path, 1 << 24), path);
  const std::vector<double> slope = doubles_of(file, "slope");
  std::vector<double> w = doubles_of(file, "first");
  constexpr double kRates[] = {0.01, 0.1, 0, 0.1}, kDecays[] = {0.2, 0, 0.2, 0.2};
  for (int step = 1; step <= 20; ++step) {
    const std::vector<double> sgd = doubles_of(file, cat("sgd_groups/", step));
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= kRates[i / 3] * (0.5 * w[i] + slope[i] + kDecays[i / 3] * w[i]);
      EXPECT_NEAR(sgd[i], w[i], 1e-12) << step;
    }
  }
}

}  // namespace optimizer_steps_test
}  // namespace belfry
