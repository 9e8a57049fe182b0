#include "belfry/trainers/program/report.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace belfry {
namespace report_test {

using testing::HasSubstr;
using testing::Not;

Report example() {
  return {
      .program = "mnist",
      .flags =
          JsonValue::object().set("rate", 0.5).set("layers", 3).set("deep", true).set("name", "x"),
      .options = JsonValue::object().set("trainer", "replicated").set("async", JsonValue()),
      .devices = {DeviceSpec::local("CPU", 0), DeviceSpec::local("CPU", 2)},
      .threads = 2,
      .peak_bytes = {{"/job:localhost/replica:0/task:0/device:CPU:0", 3 << 20}},
      .memory = {.planned_bytes = 4 << 20,
                 .rss_before_plan_bytes = 5 << 20,
                 .peak_rss_bytes = 10 << 20},
      .update = {.allreduce_requested = "auto",
                 .optimizer = "adamw",
                 .optimizer_options = JsonValue::object().set("beta1", 0.5),
                 .learning_rate = "0.5, warm-up of 9 steps",
                 .weight_decay = 0.125,
                 .groups = "b:rate=2",
                 .canonical = false},
      .batches = {.global_batch_size = 128,
                  .k_dependent_because = "",
                  .device_metrics = std::vector<std::string>{"f1"}},
      .left_out = 2,
      .progress = {.steps = 702,
                   .epochs = 3,
                   .startup_seconds = 0.25,
                   .seconds = 12.5,
                   .speed = {.examples_per_second = 1000.25,
                             .tokens_per_second = 64016,
                             .mfu = 0.375,
                             .communication_hidden_share = 0.625}},
      .losses = {.loss = 0.125,
                 .divergence = {.loss_since = 12, .variable = "'w' f32[] has nan at element 0"},
                 .validation_loss = 0.25,
                 .validation_accuracy = 0.9871,
                 .has_accuracy = true,
                 .metrics = {{"loss", 0.125},
                             {"accuracy", 0.875},
                             {"top5", 0.5},
                             {"validation_loss", 0.25},
                             {"validation_accuracy", 0.9871},
                             {"validation_macro_f1_of_classes", 0.75}},
                 .scale = 1024,
                 .skipped = 7},
      .variables = {.params_hash = "00000000000000ab",
                    .state_hash = "00000000000000cd",
                    .replicas_equal = true,
                    .replicas_shared = 3}};
}

TEST(ReportJson, HasEveryField) {
  const nlohmann::json json = nlohmann::json::parse(to_json(example()).str());
  nlohmann::json unread = json;
  const auto field = [&](const char* name) {
    unread.erase(name);
    return json.at(name);
  };
  EXPECT_EQ(field("k_independent"), true);
  EXPECT_TRUE(field("k_dependent_because").is_null());
  EXPECT_EQ(field("metrics_depend_on_devices"), nlohmann::json{"f1"});
  EXPECT_EQ(field("program"), "mnist");
  EXPECT_EQ(field("devices"), (nlohmann::json{"/job:localhost/replica:0/task:0/device:CPU:0",
                                              "/job:localhost/replica:0/task:0/device:CPU:2"}));
  EXPECT_EQ(field("flags"),
            (nlohmann::json{{"rate", 0.5}, {"layers", 3}, {"deep", true}, {"name", "x"}}));
  EXPECT_EQ(field("processes"), 1);
  EXPECT_EQ(field("hosts"), nlohmann::json::array());
  EXPECT_EQ(field("trainer"), "replicated");
  EXPECT_EQ(field("allreduce_requested"), "auto");
  EXPECT_EQ(field("canonical"), false);
  EXPECT_EQ(field("optimizer"), "adamw");
  EXPECT_EQ(field("optimizer_options"), (nlohmann::json{{"beta1", 0.5}}));
  EXPECT_EQ(field("learning_rate"), "0.5, warm-up of 9 steps");
  EXPECT_EQ(field("weight_decay"), 0.125);
  EXPECT_EQ(field("group"), "b:rate=2");
  EXPECT_TRUE(field("async").is_null());
  EXPECT_EQ(field("global_batch_size"), 128);
  EXPECT_EQ(field("bad_records"), 2);
  EXPECT_EQ(field("loss_scale"), 1024);
  EXPECT_EQ(field("skipped_steps"), 7);
  EXPECT_EQ(field("threads"), 2);
  EXPECT_EQ(field("steps"), 702);
  EXPECT_EQ(field("epochs"), 3);
  EXPECT_EQ(field("startup_seconds"), 0.25);
  EXPECT_EQ(field("seconds"), 12.5);
  EXPECT_EQ(field("examples_per_second"), 1000.25);
  EXPECT_EQ(field("tokens_per_second"), 64016);
  EXPECT_EQ(field("mfu"), 0.375);
  EXPECT_EQ(field("communication_hidden_share"), 0.625);
  EXPECT_EQ(field("loss"), 0.125);
  EXPECT_EQ(field("first_nonfinite_step"), 12);
  EXPECT_EQ(field("nonfinite_variable"), "'w' f32[] has nan at element 0");
  EXPECT_EQ(field("validation_loss"), 0.25);
  EXPECT_EQ(field("validation_accuracy"), 0.9871);
  EXPECT_EQ(field("metrics"), (nlohmann::json{{"loss", 0.125},
                                              {"accuracy", 0.875},
                                              {"top5", 0.5},
                                              {"validation_loss", 0.25},
                                              {"validation_accuracy", 0.9871},
                                              {"validation_macro_f1_of_classes", 0.75}}));
  EXPECT_EQ(field("params_hash"), "00000000000000ab");
  EXPECT_EQ(field("state_hash"), "00000000000000cd");
  EXPECT_EQ(field("replicas_equal"), true);
  EXPECT_EQ(field("replicas_shared"), 3);
  EXPECT_EQ(field("peak_bytes")["/job:localhost/replica:0/task:0/device:CPU:0"], 3 << 20);
  EXPECT_EQ(field("planned_bytes"), 4 << 20);
  EXPECT_EQ(field("rss_before_plan_bytes"), 5 << 20);
  EXPECT_EQ(field("peak_rss_bytes"), 10 << 20);
  EXPECT_EQ(field("restart"), nlohmann::json()) << "it was none";
  EXPECT_EQ(unread, nlohmann::json::object()) << "fields that this test does not read";
}

TEST(ReportJson, NamesTheHostOfEachProcess) {
  Report report = example();
  report.hosts = {"node7", "node7", "node8"};
  const nlohmann::json json = nlohmann::json::parse(to_json(report).str());
  EXPECT_EQ(json["processes"], 3);
  EXPECT_EQ(json["hosts"], (nlohmann::json{"node7", "node7", "node8"}));
}

TEST(ReportJson, HasNullForWhatDoesNotExist) {
  Report report = example();
  report.update.allreduce_requested = "";
  report.losses.validation_accuracy.reset();
  report.losses.has_accuracy = false;
  report.losses.validation_loss.reset();
  report.losses.loss = std::nan("");
  report.losses.scale.reset();
  report.losses.skipped.reset();
  report.losses.divergence = {};
  const nlohmann::json json = nlohmann::json::parse(to_json(report).str());
  EXPECT_TRUE(json["loss_scale"].is_null());
  EXPECT_TRUE(json.at("first_nonfinite_step").is_null());
  EXPECT_TRUE(json.at("nonfinite_variable").is_null());
  EXPECT_TRUE(json["skipped_steps"].is_null());
  EXPECT_TRUE(json["allreduce_requested"].is_null());
  EXPECT_TRUE(json.at("validation_loss").is_null());
  EXPECT_TRUE(json["loss"].is_null());
  report.losses.loss.reset();
  EXPECT_TRUE(nlohmann::json::parse(to_json(report).str())["loss"].is_null());
}

TEST(ReportTable, ShowsTheResultsToPeople) {
  const std::string table = to_table(example());
  for (const char* part : {"702", "12.50", "1000", "0.125", "98.71 %", "1024", "7 steps",
                           "00000000000000ab", "yes", "peak CPU:0          3.00 MiB",
                           "                      training      validation\n"
                           "  loss                0.125         0.25\n"
                           "  accuracy            87.50 %       98.71 %\n"
                           "  top5                0.5\n"
                           "  validation_macro_f1_of_classes  0.75\n"})
    EXPECT_THAT(table, HasSubstr(part)) << part;
  Report without = example();
  without.losses.metrics.clear();
  without.losses.scale.reset();
  EXPECT_THAT(to_table(without), Not(HasSubstr("loss")));
}

}  // namespace report_test
}  // namespace belfry
