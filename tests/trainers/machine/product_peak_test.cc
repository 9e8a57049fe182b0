#include "belfry/trainers/machine/product_peak.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/plan/plan.h"
#include "belfry/trainers/util/clock.h"

namespace belfry {
namespace product_peak_test {

// With matrices of 1024 x 1024, 16-bit types would take minutes.
TEST(MeasurePeak, TakesSecondsForEachType) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
    const double start = seconds_now();
    const double peak = measure_peak({.devices = {DeviceSpec::local("CPU", 0)},
                                      .session = {.threads = 1},
                                      .precision = precision});
    EXPECT_GT(peak, 0);
    EXPECT_LT(seconds_now() - start, 60) << name_of(precision);
  }
}

TEST(Products, RunNothingElse) {
  for (const Precision precision : {Precision::kF32, Precision::kBf16, Precision::kF16}) {
    std::vector<std::string> ops;
    ProductOptions options{.devices = {DeviceSpec::local("CPU", 0)},
                           .session = {.threads = 1},
                           .precision = precision,
                           .size = 16,
                           .chain = 3};
    options.session.plan_hook = [&](Plan& plan) {
      if (!ops.empty()) return;
      for (const Launch& launch : plan.launches) ops.emplace_back(plan.node(launch.node).op->name);
    };
    Products(options).run();
    EXPECT_THAT(ops, testing::ElementsAre("MatMul", "MatMul", "MatMul", "NoOp"))
        << name_of(precision);
  }
}

}  // namespace product_peak_test
}  // namespace belfry
