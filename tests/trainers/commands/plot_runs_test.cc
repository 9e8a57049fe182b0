#include "belfry/trainers/commands/plot_runs.h"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/trainers/util/gnuplot_text.h"

namespace belfry {
namespace plot_runs_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunStats made(int steps, const std::function<double(int)>& loss) {
  MetricStats losses{.metric = "loss"}, speeds{.metric = "examples_per_second"};
  for (int step = 1; step <= steps; ++step) {
    losses.training.push_back({step, loss(step)});
    speeds.training.push_back({step, 1000});
  }
  return {.name = "made", .metrics = {losses, speeds}};
}

std::string commands(std::vector<RunStats> runs, const PlotOptions& options = {}) {
  return plot_runs(runs, options).commands;
}

// What gnuplot says of commands that it cannot draw; "" if it draws them, be it with a warning.
std::string complaint(const std::string& commands) {
  const std::string path = temporary_path(".gp");
  write_text_file(local_file_system(), path, "set terminal svg\n" + commands);
  const Finished done = run_program("gnuplot", {path});
  std::filesystem::remove(path);
  EXPECT_THAT(done.output, AllOf(HasSubstr("<svg "), HasSubstr("</svg>")));
  return done.status == 0 ? "" : done.errors;
}

TEST(PlotRuns, DrawsEachMetricOfEachRun) {
  RunStats one = made(10, [](int step) { return 1.0 / step; });
  one.metrics[0].validation = {{5, 0.3}, {10, 0.2}};
  const std::string text = commands({one, made(20, [](int) { return 0.5; })});
  EXPECT_THAT(text, AllOf(HasSubstr("layout 2,1 title '2 runs'"), HasSubstr("set ylabel 'loss'"),
                          HasSubstr("set ylabel 'examples_per_second'"),
                          HasSubstr("title 'made, validation'"), HasSubstr("\n5\t0.3\t")));
  EXPECT_EQ(complaint(text), "");
  EXPECT_THAT(commands({one}), HasSubstr("title 'made'"));
}

TEST(PlotRuns, AveragesNeighboursOfManySteps) {
  const std::string text = commands({made(100000, [](int step) { return step % 10 + 1.0; })});
  EXPECT_LT(text.size(), 50000u);
  EXPECT_THAT(text, AllOf(HasSubstr("filledcurves"), HasSubstr("\t5.5\t1\t10\n")));
  EXPECT_EQ(complaint(text), "");
}

TEST(PlotRuns, ChoosesAScaleThatShowsSmallValuesToo) {
  const RunStats spike = made(50, [](int step) { return step == 30 ? 500 : 0.1; });
  EXPECT_THAT(commands({spike}), HasSubstr("\nset logscale y"));
  EXPECT_THAT(commands({spike}, {.logarithmic = false}), Not(HasSubstr("\nset logscale y")));
  EXPECT_THAT(commands({made(9, [](int step) { return step - 5.0; })}),
              Not(HasSubstr("\nset logscale y")));
}

TEST(PlotRuns, DrawsRunsThatDiverged) {
  const std::string all = commands({made(500, [](int) { return NAN; })});
  EXPECT_THAT(all, HasSubstr("set label 'not finite' at first 1, graph"));
  EXPECT_EQ(complaint(all), "");
  const std::string some = commands({made(9, [](int step) { return step < 4 ? 1.0 : INFINITY; })});
  EXPECT_THAT(some, AllOf(HasSubstr("at first 4, graph"), Not(HasSubstr("inf"))));
  EXPECT_EQ(complaint(some), "");
}

TEST(PlotRuns, DrawsAnyValuesAndNames) {
  for (const double value : {0.0, -1e300, 1e-320, 1e18, -3.0}) {
    RunStats run = made(3, [&](int step) { return step == 2 ? value : 1; });
    run.name = "it's `rm` {a}_b \n%d\x01";
    EXPECT_EQ(complaint(commands({run})), "") << value;
  }
}

TEST(PlotRuns, RefusesRunsWithoutSteps) {
  EXPECT_THROW(commands({RunStats{.name = "new", .metrics = {{"loss"}}}}), InvalidArgument);
  EXPECT_THROW(commands({}), InvalidArgument);
}

TEST(GnuplotText, QuotesWhatWouldEndAString) {
  EXPECT_EQ(gnuplot_string("it's\na\x7f"), "'it''s?a?'");
}

}  // namespace plot_runs_test
}  // namespace belfry
