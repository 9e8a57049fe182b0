#include "belfry/trainers/runs/run_stats.h"

#include <cmath>

#include <gmock/gmock.h>

#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/trainers/runs/saved_runs.h"
#include "belfry/tests/trainers/util/xml.h"
#include "belfry/trainers/runs/plot_runs.h"

namespace belfry {
namespace run_stats_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunStats read(const std::string& text, const std::string& metric = "loss") {
  StatsReader reader("stats.jsonl", metric);
  reader.add(std::as_bytes(std::span(text)));
  return reader.finish();
}

constexpr char kLines[] =
    R"({"step":1,"epoch":1,"loss":0.5,"accuracy":0.25,"examples_per_second":100,"seconds":1})"
    "\n"
    R"({"step":2,"epoch":1,"loss":"nan","accuracy":0.5,"examples_per_second":200,"seconds":2})"
    "\n"
    R"({"step":2,"epoch":1,"validation_loss":"-inf","validation_accuracy":0.75})"
    "\n";

TEST(RunStats, AreReadByMetric) {
  const RunStats loss = read(kLines);
  ASSERT_EQ(loss.training.size(), 2u);
  EXPECT_EQ(loss.training[0].step, 1);
  EXPECT_EQ(loss.training[0].value, 0.5);
  EXPECT_TRUE(std::isnan(loss.training[1].value));
  ASSERT_EQ(loss.validation.size(), 1u);
  EXPECT_EQ(loss.validation[0].value, -INFINITY);
  EXPECT_EQ(loss.speed.at(1).value, 200);
  EXPECT_EQ(read(kLines, "accuracy").validation.at(0).value, 0.75);
}

TEST(RunStats, AreTheSameInWhateverPartsTheyCome) {
  StatsReader reader("stats.jsonl", "loss");
  for (const char& c : std::string_view(kLines)) reader.add(std::as_bytes(std::span(&c, 1)));
  EXPECT_EQ(reader.finish().training.size(), 2u);
}

TEST(RunStats, EndWithTheLastWholeLine) {
  EXPECT_EQ(read(std::string(kLines) + R"({"step":3,"loss":0.)").training.size(), 2u);
  EXPECT_EQ(read(std::string(kLines) + R"({"step":3,"loss":0.25})").training.size(), 2u);
  EXPECT_TRUE(read("").training.empty());
  EXPECT_TRUE(read(R"({"step":1,"lo)").training.empty());
}

TEST(RunStats, HoldTheLaterOfTwoStepsOfOneNumber) {
  const RunStats stats = read(std::string(kLines) + "{\"step\":1,\"loss\":7}\n");
  ASSERT_EQ(stats.training.size(), 1u);
  EXPECT_EQ(stats.training[0].value, 7);
}

TEST(RunStats, NameTheLineThatIsNone) {
  const auto refusal = [](const std::string& text) {
    return message_of<IoError>([&] { read(text); });
  };
  EXPECT_THAT(refusal("{\"step\":1}\nnonsense\n"), HasSubstr("stats.jsonl: line 2 is none"));
  EXPECT_THAT(refusal("{\"loss\":1}\n"), HasSubstr("no member 'step'"));
  EXPECT_THAT(refusal("{\"step\":1,\"loss\":\"high\"}\n"), HasSubstr("expected a number, "));
  EXPECT_THAT(refusal(std::string((1 << 20) + 1, ' ')), HasSubstr("line 1 has more than"));
}

TEST(RunStats, NameTheMetricsThatThereAre) {
  EXPECT_THAT(message_of<NotFound>([] { read(kLines, "error"); }),
              AllOf(HasSubstr("no line has the metric 'error'"), HasSubstr("accuracy"),
                    Not(HasSubstr("validation_"))));
}

using RunStatsTest = SavedRunsTest;

TEST_F(RunStatsTest, AreThoseOfTheDirectoryOrTheFile) {
  files_.create_directory(at("run"));
  write_text_file(files_, at("run/stats.jsonl"), kLines);
  EXPECT_EQ(read_run_stats(at("run"), "loss").name, "run");
  EXPECT_EQ(read_run_stats(at("run/"), "loss").training.size(), 2u);
  EXPECT_EQ(read_run_stats(at("run/stats.jsonl"), "loss").training.size(), 2u);
  EXPECT_THROW(read_run_stats(at("other"), "loss"), NotFound);
}

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

}  // namespace run_stats_test
}  // namespace belfry
