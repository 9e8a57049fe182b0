#include "belfry/trainers/runs/run_stats.h"

#include <cmath>

#include <gmock/gmock.h>

#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/trainers/runs/saved_runs.h"

namespace belfry {
namespace run_stats_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

RunStats read(const std::string& text, const std::vector<std::string>& metrics) {
  StatsReader reader("stats.jsonl", metrics);
  reader.add(std::as_bytes(std::span(text)));
  return reader.finish();
}

MetricStats read(const std::string& text, const std::string& metric = "loss") {
  return read(text, std::vector{metric}).metrics.at(0);
}

constexpr char kLines[] =
    R"({"step":1,"epoch":1,"loss":0.5,"accuracy":0.25,"examples_per_second":100,"seconds":1})"
    "\n"
    R"({"step":2,"epoch":1,"loss":"nan","accuracy":0.5,"examples_per_second":200,"seconds":2})"
    "\n"
    R"({"step":2,"epoch":1,"validation_loss":"-inf","validation_accuracy":0.75})"
    "\n";

TEST(RunStats, AreReadByMetric) {
  const MetricStats loss = read(kLines);
  ASSERT_EQ(loss.training.size(), 2u);
  EXPECT_EQ(loss.training[0].step, 1);
  EXPECT_EQ(loss.training[0].value, 0.5);
  EXPECT_TRUE(std::isnan(loss.training[1].value));
  ASSERT_EQ(loss.validation.size(), 1u);
  EXPECT_EQ(loss.validation[0].value, -INFINITY);
  const RunStats two = read(kLines, std::vector<std::string>{"examples_per_second", "loss"});
  EXPECT_EQ(two.metrics.at(0).training.at(1).value, 200);
  EXPECT_EQ(two.metrics.at(1).training.at(0).value, 0.5);
  EXPECT_EQ(read(kLines, "accuracy").validation.at(0).value, 0.75);
}

// As runs write them now; kLines has how they were written before.
TEST(RunStats, TakeNullForNaN) {
  const MetricStats loss = read(R"({"step":1,"loss":null})"
                                "\n");
  ASSERT_EQ(loss.training.size(), 1u);
  EXPECT_TRUE(std::isnan(loss.training[0].value));
}

TEST(RunStats, AreTheSameInWhateverPartsTheyCome) {
  const std::vector<std::string> metrics = {"loss"};
  StatsReader reader("stats.jsonl", metrics);
  for (const char& c : std::string_view(kLines)) reader.add(std::as_bytes(std::span(&c, 1)));
  EXPECT_EQ(reader.finish().metrics.at(0).training.size(), 2u);
}

TEST(RunStats, EndWithTheLastWholeLine) {
  EXPECT_EQ(read(std::string(kLines) + R"({"step":3,"loss":0.)").training.size(), 2u);
  EXPECT_EQ(read(std::string(kLines) + R"({"step":3,"loss":0.25})").training.size(), 2u);
  EXPECT_TRUE(read("").training.empty());
  EXPECT_TRUE(read(R"({"step":1,"lo)").training.empty());
}

TEST(RunStats, HoldTheLaterOfTwoStepsOfOneNumber) {
  const MetricStats stats = read(std::string(kLines) + "{\"step\":1,\"loss\":7}\n");
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
  EXPECT_THAT(message_of<NotFoundError>([] { read(kLines, "error"); }),
              AllOf(HasSubstr("no line has the metric 'error'"), HasSubstr("accuracy"),
                    Not(HasSubstr("validation_"))));
}

using RunStatsTest = SavedRunsTest;

TEST_F(RunStatsTest, AreThoseOfTheDirectoryOrTheFile) {
  files_.create_directory(at("run"));
  write_text_file(files_, at("run/stats.jsonl"), kLines);
  const std::vector<std::string> metrics = {"loss"};
  EXPECT_EQ(read_run_stats(at("run"), metrics).name, "run");
  for (const char* path : {"run/", "run/stats.jsonl"})
    EXPECT_EQ(read_run_stats(at(path), metrics).metrics.at(0).training.size(), 2u) << path;
  EXPECT_THROW(read_run_stats(at("other"), metrics), NotFoundError);
}

}  // namespace run_stats_test
}  // namespace belfry
