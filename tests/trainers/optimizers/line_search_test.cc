#include "belfry/trainers/optimizers/line_search.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace line_search_test {

using Line = std::function<LinePoint(double)>;

// (x - 3)^2.
LinePoint parabola(double x) { return {x, (x - 3) * (x - 3), 2 * (x - 3)}; }

void expect_wolfe(const LinePoint& from, const LinePoint& found, const LineSearchOptions& options) {
  EXPECT_GT(found.step, 0);
  EXPECT_LE(found.loss, from.loss + options.decrease * found.step * from.slope);
  EXPECT_LE(std::abs(found.slope), -options.curvature * from.slope);
}

TEST(LineSearch, FindsTheMinimumOfAParabolaByOneCubic) {
  // Of a first step that is far off, the search may change ten times as much at once.
  const std::pair<double, std::size_t> trials_from[] = {{0.01, 4}, {0.5, 2}, {5.9, 2}, {100, 3}};
  for (const auto& [first, trials] : trials_from) {
    std::vector<double> steps;
    const LinePoint found =
        search_line(parabola(0), [&](double step) { return steps.push_back(step), parabola(step); },
                    {.first_step = first, .curvature = 0.01});
    EXPECT_NEAR(found.step, 3, 1e-9) << first;
    EXPECT_EQ(steps.size(), trials) << first;
  }
}

TEST(LineSearch, TakesTheFirstStepIfItMeetsBothConditions) {
  int trials = 0;
  const LinePoint found = search_line(
      parabola(0), [&](double step) { return ++trials, parabola(step); }, {.first_step = 2});
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(trials, 1);
}

// Two functions of Moré and Thuente (1994), from first steps of all sizes.
TEST(LineSearch, MeetsBothConditionsForHardLosses) {
  const std::pair<const char*, Line> lines[] = {
      {"-x / (x^2 + 2)",
       [](double x) {
         return LinePoint{x, -x / (x * x + 2), (x * x - 2) / ((x * x + 2) * (x * x + 2))};
       }},
      {"x^5 - 2 x^4, moved", [](double x) {
         return LinePoint{x, std::pow(x + 0.004, 5) - 2 * std::pow(x + 0.004, 4),
                          5 * std::pow(x + 0.004, 4) - 8 * std::pow(x + 0.004, 3)};
       }}};
  for (const auto& [name, line] : lines)
    for (const double first : {1e-3, 1e-1, 1e1, 1e3})
      for (const double curvature : {0.3, 0.6, 0.9}) {
        SCOPED_TRACE(testing::Message() << name << " from " << first << ", " << curvature);
        const LineSearchOptions options{
            .first_step = first, .curvature = curvature, .most_trials = 40};
        expect_wolfe(line(0), search_line(line(0), line, options), options);
      }
}

// log(3 - x) - like losses have no value beyond 3.
TEST(LineSearch, ReturnsFromStepsWhoseLossIsNotFinite) {
  const Line barrier = [](double x) {
    return LinePoint{x, -x - std::log(3 - x), -1 + 1 / (3 - x)};
  };
  for (const double first : {2.5, 3.0, 50.0, 1e4}) {
    const LineSearchOptions options{.first_step = first, .curvature = 0.1};
    const LinePoint found = search_line(barrier(0), barrier, options);
    expect_wolfe(barrier(0), found, options);
    EXPECT_NEAR(found.step, 2, 0.2);
  }
}

TEST(LineSearch, EndsWithStepZeroIfNoStepLowersTheLoss) {
  int trials = 0;
  const LinePoint found = search_line({0, 1, -1},
                                      [&](double step) {
                                        return ++trials, LinePoint{step, 2, -1};
                                      },
                                      {});
  EXPECT_EQ(found.step, 0);
  EXPECT_EQ(trials, 20);
}

TEST(LineSearch, KeepsTheLowestPointWhereTheLossHasNoEnd) {
  const LinePoint found = search_line({0, 0, -1},
                                      [](double step) {
                                        return LinePoint{step, -step, -1};
                                      },
                                      {.most_trials = 3});
  EXPECT_EQ(found.step, 111);
}

// The slope alone says that 2 is better than 0, as the loss of 2 is rounded up.
TEST(LineSearch, TrustsSlopesWhereRoundingHidesTheDecrease) {
  const auto rounded = [](double step) {
    return LinePoint{step, step == 0 ? 1 : 1 + 0x1p-52, (step - 2) * 1e-13};
  };
  EXPECT_EQ(search_line(rounded(0), rounded, {.first_step = 2}).step, 0);
  EXPECT_EQ(search_line(rounded(0), rounded, {.first_step = 2, .rounding = 1e-15}).step, 2);
}

TEST(LineSearch, RefusesADirectionInWhichTheLossRises) {
  EXPECT_THROW(search_line({0, 1, 0.5}, parabola, {}), InvalidArgument);
  EXPECT_THROW(search_line({0, 1, NAN}, parabola, {}), InvalidArgument);
}

}  // namespace line_search_test
}  // namespace belfry
