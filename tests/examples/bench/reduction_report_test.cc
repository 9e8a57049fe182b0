#include "belfry/examples/bench/reduction_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace reduction_report_test {

using testing::HasSubstr;

struct Reported {
  ReductionBenchOptions options{.devices = parse_devices("cpu:4"), .reduction = Reduction::kMean};
  ReductionBench bench{
      .elements = 1000,
      .bytes = 4000,
      .limit_seconds = 6e-6,
      .results = {
          {.strategy = "naive",
           .canonical = true,
           .in_place = {.seconds = 8e-6, .wrong = 3},
           .out_of_place = {.seconds = 250e-6, .wrong = 0}},
          {.strategy = "ring", .in_place = {.seconds = 0.02}, .out_of_place = {.seconds = 1e-6}},
          {.strategy = "hierarchical", .refusal = "K is odd"}}};
};

TEST(ReductionTable, PrintsTheColumnsOfNcclTestsThenOurs) {
  Reported reported;
  ReductionTable table(reported.options);
  EXPECT_THAT(table.head(),
              HasSubstr("#       size         count      type   redop    root     time   algbw   "
                        "busbw #wrong     time   algbw   busbw #wrong"));
  const std::string lines = table.lines(reported.bench);
  EXPECT_EQ(lines.substr(0, lines.find('\n')),
            "        4000          1000     float     avg      -1    250.0    0.02    0.02      0"
            "     8.00    0.50    0.75      3       6.00   75 %  naive (canonical)");
  EXPECT_THAT(lines, HasSubstr("     1.00    4.00    6.00    N/A    20000    0.00    0.00    N/A"
                               "       6.00    0 %  ring\n"));
  EXPECT_THAT(lines, HasSubstr("# hierarchical refused: K is odd\n"));
}

// The limit is 6 us. At 4.8 us the buffers may be in caches. Faster steps did not wait for the
// threads that the limit waits for, so they have no share of it.
TEST(ReductionTable, PrintsNoShareOfALimitThatLimitsNothing) {
  Reported reported;
  ReductionTable table(reported.options);
  reported.bench.results[0].in_place.seconds = 4.8e-6;
  EXPECT_THAT(table.lines(reported.bench), HasSubstr("6.00  125 %  naive (canonical)\n"));
  reported.bench.results[0].in_place.seconds = 4.7e-6;
  EXPECT_THAT(table.lines(reported.bench), HasSubstr("6.00      -  naive (canonical)\n"));
}

TEST(ReductionTable, PrintsTheReasonOfAutoAndPredictionsOverTimes) {
  Reported reported;
  ReductionResult& first = reported.bench.results[0];
  first.strategy = "auto";
  first.resolved = "naive";
  first.reason = "  naive 1 ms\nauto: naive\n";
  first.out_of_place.predicted = 200e-6;
  first.in_place.predicted = 10e-6;
  ReductionTable table(reported.options);
  const std::string lines = table.lines(reported.bench);
  EXPECT_THAT(lines, testing::StartsWith("#   naive 1 ms\n# auto: naive\n        4000  "));
  EXPECT_THAT(lines, HasSubstr("  auto -> naive (canonical), predicted 0.80 1.25 of it\n"));
  JsonValue list = JsonValue::array();
  append_json(reported.bench, reported.options, list);
  EXPECT_EQ(list.items().front().at("resolved").text(), "naive");
  EXPECT_DOUBLE_EQ(list.items().front().at("predicted_us").number(), 200);
  EXPECT_EQ(list.items().back().find("resolved"), nullptr);
}

// With the links of a file nothing is predicted for this machine, but a strategy is chosen.
TEST(ReductionTable, SaysWhatAutoChoseWithoutPredictionsToo) {
  Reported reported;
  reported.bench.results[0].strategy = "auto";
  reported.bench.results[0].resolved = "naive";
  JsonValue list = JsonValue::array();
  append_json(reported.bench, reported.options, list);
  EXPECT_EQ(list.items().front().at("resolved").text(), "naive");
  EXPECT_EQ(list.items().front().find("predicted_us"), nullptr);
}

// naive: 1.5 * 4000 bytes in 250 and 8 us, 0.024 and 0.75 GB/s; ring: in 1 us and 20 ms, 6 and
// 0.0003 GB/s.
TEST(ReductionTable, AveragesBandwidthPerStrategyAndSumsErrors) {
  Reported reported;
  ReductionTable table(reported.options);
  table.lines(reported.bench);
  EXPECT_EQ(table.wrong(), 3);
  EXPECT_EQ(table.summary(),
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.387  naive\n"
            "# Avg bus bandwidth    : 3.00015  ring\n");
}

TEST(ReductionTable, SaysSoWhereNothingWasChecked) {
  Reported reported;
  reported.bench.results.erase(reported.bench.results.begin());
  ReductionTable table(reported.options);
  table.lines(reported.bench);
  EXPECT_EQ(table.summary(),
            "# Out of bounds values : not checked\n# Avg bus bandwidth    : 3.00015\n");
}

TEST(ReductionReport, WritesTwoRecordsForEachStrategyThatWasTimed) {
  Reported reported;
  JsonValue list = JsonValue::array();
  append_json(reported.bench, reported.options, list);
  ASSERT_EQ(list.items().size(), 4u);
  const JsonValue& first = list.items().front();
  EXPECT_EQ(first.at("strategy").text(), "naive");
  EXPECT_EQ(first.at("canonical").str(), "true");
  EXPECT_EQ(first.at("devices").integer(), 4);
  EXPECT_EQ(first.at("processes").integer(), 1);
  EXPECT_EQ(first.at("device_type").text(), "cpu");
  EXPECT_EQ(first.at("dtype").text(), "f32");
  EXPECT_EQ(first.at("redop").text(), "avg");
  EXPECT_EQ(first.at("bytes").integer(), 4000);
  EXPECT_EQ(first.at("in_place").str(), "false");
  EXPECT_DOUBLE_EQ(first.at("time_us").number(), 250);
  EXPECT_DOUBLE_EQ(first.at("algbw").number(), 0.016);
  EXPECT_DOUBLE_EQ(first.at("busbw").number(), 0.024);
  EXPECT_EQ(first.at("wrong").integer(), 0);
  EXPECT_DOUBLE_EQ(first.at("limit_us").number(), 6);
  EXPECT_EQ(std::next(list.items().begin())->at("in_place").str(), "true");
  EXPECT_TRUE(list.items().back().at("wrong").kind() == JsonValue::Kind::kNull);
}

TEST(ReductionReport, WritesTheSameAsCsv) {
  JsonValue list = JsonValue::array();
  list.push(JsonValue::object().set("strategy", "naive").set("bytes", 8).set("wrong", JsonValue()));
  list.push(JsonValue::object().set("strategy", "ring").set("bytes", 16).set("wrong", 1));
  EXPECT_EQ(to_csv(list), "strategy,bytes,wrong\nnaive,8,\nring,16,1\n");
  EXPECT_EQ(to_csv(JsonValue::array()), "");
}

TEST(ReductionReport, LeavesCellsEmptyWhereOnlySomeRecordsHaveAMember) {
  JsonValue list = JsonValue::array();
  list.push(JsonValue::object().set("strategy", "naive").set("bytes", 8));
  list.push(JsonValue::object().set("strategy", "auto").set("resolved", "ring").set("bytes", 8));
  list.push(JsonValue::object().set("strategy", "ring").set("bytes", 16));
  EXPECT_EQ(to_csv(list), "strategy,bytes,resolved\nnaive,8,\nauto,8,ring\nring,16,\n");
}

TEST(ReductionReport, PrintsAndWritesTheFourCellsOfAnUpdate) {
  const ReductionBenchOptions options{.devices = parse_devices("cpu:2")};
  const UpdateBench bench{.elements = 8,
                          .bytes = 32,
                          .limit_seconds = 5e-6,
                          .cells = {{.seconds = 32e-6, .wrong = 0},
                                    {.fuse_updates = true, .seconds = 16e-6, .ratio = 2}}};
  EXPECT_EQ(update_lines(bench, "collective", options),
            "          32             8     float     sum  collective                 0"
            "               0     32.00    1.00       0\n"
            "          32             8     float     sum  collective                 1"
            "               0     16.00    2.00     N/A\n");
  JsonValue list = JsonValue::array();
  append_json(bench, "collective", options, list);
  EXPECT_EQ(
      to_csv(list),
      "strategy,canonical,devices,processes,device_type,dtype,redop,bytes,in_place,fuse_updates,"
      "share_replicas,time_us,algbw,busbw,wrong,limit_us,agg_iters,deterministic,ratio\n"
      "collective,true,2,1,cpu,f32,sum,32,true,false,false,32.0,0.001,0.001,0,5.0,1,false,1.0\n"
      "collective,true,2,1,cpu,f32,sum,32,true,true,false,16.0,0.002,0.002,,5.0,1,false,2.0\n");
}

}  // namespace reduction_report_test
}  // namespace belfry
