#include "belfry/trainers/commands/simulation_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace simulation_report_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Layers of 1 ms forward and 2 ms backward, on hosts of 4 devices with slow links between hosts.
SimulationReport report_of(const std::vector<int>& devices) {
  SimulationReport report{.work = {.name = "net",
                                   .sample = "image",
                                   .layers = {{"low", 1e3, 1e9, 10}, {"high", 1e8, 1e9, 10}}},
                          .cluster = {.name = "boxes",
                                      .memory_bytes = 1e9,
                                      .flops = {{"f32", 1e12}},
                                      .devices_per_host = 4,
                                      .link = {1e-6, LinkRate(1e12)},
                                      .network = {1e-6, LinkRate(1e9)}}};
  for (const int count : devices)
    report.steps.push_back(simulate_step(report.work, report.cluster, report.training, count));
  return report;
}

TEST(SimulationReport, HasALinePerNumberOfDevices) {
  const SimulationReport report = report_of({1, 8});
  const std::string text = to_text(report);
  EXPECT_THAT(text, HasSubstr("net on boxes, 1 image per device and step\n"));
  EXPECT_THAT(text, HasSubstr("      1      1    6.000 ms"));
  EXPECT_THAT(text, AllOf(HasSubstr("compute"), HasSubstr("link")));
  EXPECT_THAT(text, HasSubstr("1.20 GB (too much)"));
  EXPECT_THAT(text, Not(HasSubstr("goodput")));
  EXPECT_EQ(report.efficiency(report.steps[0]), 1);
  EXPECT_LT(report.efficiency(report.steps[1]), 0.1);
}

TEST(SimulationReport, StatesTheGoodputIfThereAreFaults) {
  SimulationReport report = report_of({1, 8});
  report.faults = {.between = 3.6e6, .save = 10, .restart = 60, .intervals = {600}};
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("best interval"), HasSubstr("saving every 600 s"),
                                     HasSubstr("125.00 h")));
}

TEST(SimulationReport, ExplainsWhatAStepWaitsFor) {
  const SimulationReport report = report_of({8});
  const std::string text = explain(report, report.steps[0]);
  EXPECT_THAT(text, HasSubstr("A step of 8 devices of boxes takes "));
  EXPECT_THAT(text, HasSubstr("it waits for sums of gradients; the longest such piece is \"sum of "
                              "high\""));
  EXPECT_THAT(text, HasSubstr("it computes; "));
  EXPECT_THAT(text, Not(HasSubstr("slowest device")));
}

TEST(SimulationReport, IsATimelineToo) {
  const SimulationReport report = report_of({8});
  std::string threads;
  double end = 0;
  const JsonValue trace = step_trace(report.steps[0]);
  for (const JsonValue& event : trace.at("traceEvents").items()) {
    if (event.at("ph").text() == "M") threads += event.at("args").at("name").text() + " ";
    if (event.at("ph").text() == "X")
      end = std::max(end, event.at("ts").number() + event.at("dur").number());
  }
  EXPECT_EQ(threads, "input feed host compute link ");
  EXPECT_NEAR(end, report.steps[0].seconds * 1e6, 1e-3);
}

}  // namespace simulation_report_test
}  // namespace belfry
