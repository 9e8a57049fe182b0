#include "belfry/trainers/commands/trace_summary.h"

#include <gmock/gmock.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace trace_summary_test {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kCpu = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr const char* kGpu = "/job:localhost/replica:0/task:0/device:GPU:1";

// A launch of `us` microseconds.
std::string launch(const char* op, double from, double us, const char* phase, const char* layer,
                   const char* device = kCpu, double flops = 0, int bytes = 0) {
  return cat(R"({"ph":"X","cat":"Op","name":")", op, R"(","pid":1,"tid":2,"ts":)", from,
             R"(,"dur":)", us, R"(,"args":{"name":"n","op":")", op, R"(","device":")", device,
             R"(","phase":")", phase, R"(","layer":")", layer, R"(","flops":)", flops,
             R"(,"bytes":)", bytes, "}}");
}

// A part that a worker ran of another's launch.
std::string part(const char* op, double from, double us, const char* phase, const char* layer) {
  return cat(R"({"ph":"X","cat":"Op","name":")", op, R"(","pid":2,"tid":3,"ts":)", from,
             R"(,"dur":)", us, R"(,"args":{"name":"n","op":")", op, R"(","phase":")", phase,
             R"(","layer":")", layer, R"(","begin":0,"end":1}})");
}

std::string trace(const std::string& workers, const std::vector<std::string>& events) {
  return cat("{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"transferred_bytes\":0,\"workers\":",
             workers, "},\n\"traceEvents\":[\n", join(events, ",\n"), "\n]}\n");
}

const TraceSum& row(const std::vector<TraceSum>& rows, std::string_view name) {
  for (const TraceSum& sum : rows)
    if (sum.name == name) return sum;
  throw InvalidArgument(cat("no row ", name));
}

std::string refusal(const std::string& text) {
  return message_of<InvalidArgument>([&] { sum_up_trace(text); });
}

// Two workers for 100 us: a convolution of 60, of which the other worker ran a part of 20, its
// gradient of 30, and an update of 10.
std::string two_workers() {
  return trace("[2]",
               {R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"a"}})",
                R"({"ph":"X","cat":"Op","name":"Variable","pid":1,"tid":2,"ts":0,"dur":0.002,)"
                R"("args":{"name":"w","op":"Variable"}})",
                launch("Conv2d", 10, 60, "forward", "conv0", kCpu, 4e6, 1000),
                part("Conv2d", 20, 20, "forward", "conv0"),
                launch("Conv2dGradFilter", 70, 30, "gradient", "conv0", kCpu, 2e6, 500),
                launch("FusedUpdate", 100, 10, "update", "train_op", kCpu, 0, 50)});
}

TEST(TraceSummary, AddsUpByPhaseOpAndLayer) {
  const TraceSummary summary = sum_up_trace(two_workers());
  EXPECT_EQ(summary.processes, 1);
  EXPECT_EQ(summary.workers, 2);
  EXPECT_EQ(summary.gpus, 0);
  EXPECT_DOUBLE_EQ(summary.seconds, 100e-6);
  EXPECT_EQ(summary.ops[0].name, "Conv2d");
  EXPECT_DOUBLE_EQ(summary.ops[0].seconds, 80e-6);
  EXPECT_EQ(summary.ops[0].calls, 1);
  EXPECT_EQ(summary.ops.size(), 3u);
  const TraceSum& conv0 = row(summary.layers, "conv0");
  EXPECT_DOUBLE_EQ(conv0.seconds, 110e-6);
  EXPECT_EQ(conv0.calls, 2);
  EXPECT_EQ(conv0.flops, 6e6);
  EXPECT_EQ(conv0.bytes, 1500);
  EXPECT_DOUBLE_EQ(row(summary.phases, "gradient").seconds, 30e-6);
  EXPECT_DOUBLE_EQ(row(summary.phases, "update").seconds, 10e-6);
  EXPECT_DOUBLE_EQ(row(summary.phases, "wait").seconds, 80e-6);  // 2 x 100 - 120
  EXPECT_DOUBLE_EQ(summary.all.seconds, 120e-6);
  EXPECT_EQ(summary.all.floor, 0);
}

TEST(TraceSummary, ComparesTheArithmeticWithThePeakOfAWorker) {
  const UnitPeak peak = read_unit_peak(
      R"({"devices":1,"device_type":"cpu","threads":4,"copy_gbs":80,"matmul_tflops":{"f32":0.4}})",
      "f32");
  EXPECT_FALSE(peak.on_gpus);
  EXPECT_DOUBLE_EQ(peak.flops, 1e11);
  EXPECT_DOUBLE_EQ(peak.bytes, 20e9);
  const TraceSummary summary = sum_up_trace(two_workers(), peak);
  EXPECT_DOUBLE_EQ(summary.ops[0].floor, 40e-6);
  EXPECT_DOUBLE_EQ(summary.all.floor, 60e-6);
  const std::string text = to_text(summary, 1);
  EXPECT_THAT(text, AllOf(HasSubstr("a step of 0.100 ms, 2 workers; peak of each worker 100.0 "
                                    "GFLOP/s, 20.0 GB/s\n"),
                          HasSubstr("and 2 more (--top=0 shows all)"), HasSubstr("conv0")));
  EXPECT_THAT(text, testing::ContainsRegex("Conv2d +0.080 +40.0 +1 +0.004 +0.000 +0.040 +50.0\n"));
  const JsonValue json = to_json(summary);
  EXPECT_DOUBLE_EQ(json.at("total").at("floor_share").number(), 0.5);
  EXPECT_EQ(json.at("ops").items().size(), 3u);
  EXPECT_DOUBLE_EQ(json.at("peak").at("tflops").number(), 0.1);
}

TEST(TraceSummary, WithoutAPeakHasNoFloor) {
  const TraceSummary summary = sum_up_trace(two_workers());
  EXPECT_THAT(to_text(summary, 0), testing::Not(HasSubstr("peak")));
  EXPECT_EQ(to_json(summary).at("total").at("floor_ms").kind(), JsonValue::Kind::kNull);
}

// Streams of one GPU may run at once. Its peak is no floor of hosts.
TEST(TraceSummary, CountsGpusAndProcesses) {
  const TraceSummary summary =
      sum_up_trace(trace("[1,1]", {launch("MatMul", 0, 40, "forward", "fc", kGpu, 8e6, 0),
                                   launch("AllReduce", 20, 40, "messages", "fc", kGpu),
                                   launch("MatMul", 0, 10, "forward", "fc", kCpu, 8e6, 0),
                                   launch("AllGather", 10, 90, "messages", "values", kCpu)}),
                   read_unit_peak(R"({"devices":2,"device_type":"gpu","threads":8,"copy_gbs":80,)"
                                  R"("matmul_tflops":{"f32":0.8,"bf16":1.6}})",
                                  "bf16"));
  EXPECT_EQ(summary.processes, 2);
  EXPECT_EQ(summary.workers, 2);
  EXPECT_EQ(summary.gpus, 1);
  EXPECT_DOUBLE_EQ(summary.all.floor, 10e-6);
  // 3 x 100, without 60 of the GPU and 10 of a worker: messages have their own thread.
  EXPECT_DOUBLE_EQ(row(summary.phases, "wait").seconds, 230e-6);
}

TEST(TraceSummary, RefusesWhatIsNoTraceAndNamesTheLine) {
  constexpr const char* kNone = "this is no trace that Belfry has written";
  EXPECT_THAT(refusal("hello"), HasSubstr(kNone));
  EXPECT_THAT(refusal(R"({"traceEvents":[]})"), HasSubstr(kNone));
  EXPECT_THAT(refusal(trace("[2]", {R"({"ph":"X","args":{}})", R"({"ph":"X","cut)"})),
              AllOf(HasSubstr("line 5: "), HasSubstr(kNone), HasSubstr("or it is damaged")));
  EXPECT_THAT(refusal(trace("7", {})), HasSubstr("line 2: "));
  EXPECT_THAT(refusal(trace("[2]", {launch("Relu", 0, -5, "forward", "fc0")})), HasSubstr(kNone));
  EXPECT_THAT(refusal(trace("[2]", {launch("Relu", 0, 5, "forward", "fc0", kCpu, 1e300)})),
              HasSubstr(kNone));
  const std::string whole = two_workers();
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 3)),
              HasSubstr("the trace is incomplete: its end is missing"));
  EXPECT_THAT(refusal(trace("[2]", {R"({"ph":"X","ts":0,"dur":1,"args":{"op":"Relu"}})"})),
              HasSubstr("the trace says of no launch what it computes: an older version wrote it"));
}

TEST(TraceSummary, RefusesPeaksThatAreNone) {
  const auto peak_refusal = [](const char* text) {
    return message_of<InvalidArgument>([&] { read_unit_peak(text, "tf32"); });
  };
  EXPECT_THAT(peak_refusal("{}"), HasSubstr("device_type"));
  EXPECT_THAT(peak_refusal(R"({"device_type":"gpu","matmul_tflops":{"f32":1,"bf16":2}})"),
              HasSubstr("has no peak of products in tf32, only in f32, bf16 (--precision)"));
  EXPECT_THAT(peak_refusal(R"({"device_type":"gpu","devices":0,"copy_gbs":1,)"
                           R"("matmul_tflops":{"tf32":1}})"),
              HasSubstr("has a peak of 0"));
}

}  // namespace trace_summary_test
}  // namespace belfry
