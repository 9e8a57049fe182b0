#include "belfry/trainers/commands/plot_runs.h"

#include <cmath>

#include <gmock/gmock.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/util/xml.h"

namespace belfry {
namespace plot_runs_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunStats made(int steps, const std::function<double(int)>& loss) {
  RunStats stats{.name = "made"};
  for (int step = 1; step <= steps; ++step) {
    stats.training.push_back({step, loss(step)});
    stats.speed.push_back({step, 1000});
  }
  return stats;
}

TEST(PlotRuns, DrawsMetricAndSpeedOfEachRun) {
  RunStats one = made(10, [](int step) { return 1.0 / step; });
  one.validation = {{5, 0.3}, {10, 0.2}};
  const std::string svg = plot_runs(std::vector{one, made(20, [](int) { return 0.5; })});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr(">loss of 2 runs<"), HasSubstr(">loss<"),
                         HasSubstr(">examples per second<"), HasSubstr(">validation<"),
                         HasSubstr(">training<")));
  EXPECT_EQ(count(svg, ">made<"), 2u);
  EXPECT_THAT(plot_runs(std::vector{one}), HasSubstr(">loss of made<"));
}

TEST(PlotRuns, ThinsManySteps) {
  const std::string svg =
      plot_runs(std::vector{made(100000, [](int step) { return step % 10 + 1.0; })});
  EXPECT_LT(svg.size(), 200000u);
  EXPECT_THAT(svg, AllOf(HasSubstr(">training, mean<"), HasSubstr(">training, each step<")));
}

TEST(PlotRuns, ChoosesAScaleThatShowsSmallValuesToo) {
  const std::vector<RunStats> runs = {made(50, [](int step) { return step == 30 ? 500 : 0.1; })};
  EXPECT_THAT(plot_runs(runs), HasSubstr("loss (logarithmic)"));
  EXPECT_THAT(plot_runs(runs, {.scale = Axis::Scale::kLinear}), Not(HasSubstr("logarithmic")));
  EXPECT_THAT(plot_runs(std::vector{made(9, [](int step) { return step - 5.0; })}),
              Not(HasSubstr("logarithmic")));
}

TEST(PlotRuns, DrawsRunsThatDiverged) {
  const std::string svg = plot_runs(std::vector{made(500, [](int) { return NAN; })});
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_THAT(svg, HasSubstr(">not finite<"));
}

TEST(PlotRuns, RefusesRunsWithoutSteps) {
  EXPECT_THROW(plot_runs(std::vector{RunStats{.name = "new"}}), InvalidArgument);
}

}  // namespace plot_runs_test
}  // namespace belfry
