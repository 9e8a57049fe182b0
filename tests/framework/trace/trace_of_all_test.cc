// One trace of several processes, and its figures about their messages.
#include <map>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/recording.h"
#include "belfry/framework/trace/timeline.h"
#include "belfry/framework/trace/trace.h"
#include "belfry/ops/sin.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace trace_of_all_test {

using ::testing::ElementsAre;
using ::testing::StartsWith;

// Each process sends sin(x) to the others.
struct Rows {
  explicit Rows(ProcessPlace place)
      : graph(1, place),
        x(placeholder(graph, "x", DType::kF32, {1, 4})),
        all(gather_over_processes(sin(x), place)) {}

  Graph graph;
  Output x, all;
};

std::vector<TraceFile> files_of(int size) {
  std::vector<TraceFile> files(static_cast<std::size_t>(size));
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    Rows rows(processes->place());
    Session session(rows.graph, {.threads = 1, .processes = processes});
    Trace trace;
    session.run({rows.all}, {{rows.x, Tensor({1, 4}, std::vector<float>{1, 2, 3, 4})}},
                {.trace = &trace});
    files[static_cast<std::size_t>(processes->rank())] = trace_of_all(processes.get(), trace);
  });
  return files;
}

TEST(TraceOfAll, HasAProcessForEachRankAndIsRight) {
  const std::vector<TraceFile> files = files_of(3);
  EXPECT_EQ(files[1].text, "");
  EXPECT_EQ(files[2].text, "");
  const std::string path = temporary_path(".json");
  write_text_file(local_file_system(), path, files[0].text);
  const Finished checked = check_traces({path});
  EXPECT_NE(checked.status, 1) << checked.output << checked.errors;
  local_file_system().remove(path);
  std::vector<std::string> names;
  std::map<std::int64_t, int> sent;  // slices by process of the trace
  const JsonValue file = JsonValue::parse(files[0].text);
  for (const JsonValue& event : file.at("traceEvents").items()) {
    if (event.at("name").text() == "process_name")
      names.push_back(event.at("args").at("name").text());
    if (event.at("name").text() == "AllGather") ++sent[event.at("pid").integer()];
  }
  EXPECT_THAT(names,
              ElementsAre(StartsWith("rank 0, "), StartsWith("rank 1, "), StartsWith("rank 2, ")));
  EXPECT_THAT(sent, ElementsAre(testing::Pair(1, 1), testing::Pair(2, 1), testing::Pair(3, 1)));
}

// A message cannot end before all have sent theirs. So the slices of all ranks overlap on one
// clock, up to the error of the clocks.
TEST(TraceOfAll, AlignsTheClocksOfItsProcesses) {
  const JsonValue file = JsonValue::parse(files_of(2)[0].text);
  const JsonValue& clocks = file.at("otherData").at("clocks");
  ASSERT_EQ(clocks.items().size(), 2u);
  const double error = clocks.items().back().at("error_ns").number() / 1000;
  EXPECT_GT(error, 0);
  double last_start = 0, first_end = 1e300, first_start = 1e300;
  for (const JsonValue& event : file.at("traceEvents").items()) {
    if (const JsonValue* const start = event.find("ts"))
      first_start = std::min(first_start, start->number());
    if (event.at("name").text() != "AllGather") continue;
    const double start = event.at("ts").number();
    last_start = std::max(last_start, start);
    first_end = std::min(first_end, start + event.at("dur").number());
  }
  EXPECT_LE(last_start, first_end + error);
  EXPECT_GE(first_start, 0);
}

TEST(TraceOfAll, OfAProcessThatIsAloneIsItsOwn) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1, 4}), y = sin(x);
  Session session(graph, {.threads = 1});
  Trace trace;
  session.run({y}, {{x, Tensor({1, 4}, std::vector<float>{1, 2, 3, 4})}}, {.trace = &trace});
  const TraceFile file = trace_of_all(nullptr, trace);
  EXPECT_EQ(file.text, trace.str());
  EXPECT_EQ(file.communication.under_way, 0);
  EXPECT_FALSE(file.communication.hidden_share());
}

// The times are made up: sin(x) 0 to 10, its message 10 to 40, the gradient of the local sin 20 to
// 30.
TEST(CommunicationTime, IsHiddenWhileAGradientIsComputed) {
  Rows rows({0, 2});
  const Output dx = gradients({sin(rows.x)}, {rows.x})[0];
  Session session(rows.graph, {.dry_run = true, .planned_place = {0, 2}});
  const std::shared_ptr<const Plan> kept =
      session.prepare({rows.all, dx}, {{rows.x, Shape({1, 4})}}).plan();
  const Plan& plan = *kept;
  Timeline timeline;
  for (const Strand& strand : plan.strands) timeline.tracks.push_back({strand.device, 0});
  for (const LaunchIndex l : plan.launches.indices()) {
    const Launch& launch = plan.launches[l];
    const Node& node = *plan.node(launch.node).node;
    Timeline::Slice slice{
        .track = launch.strand.value(), .node = launch.node, .start = 0, .end = 10};
    if (&node.op() == &kAllGather) slice.start = 10, slice.end = 40;
    if (node.origin().forward) slice.start = 20, slice.end = 30;
    timeline.slices.push_back(slice);
  }
  const CommunicationTime found = communication_of(plan, timeline);
  EXPECT_EQ(found.under_way, 30);
  EXPECT_EQ(found.hidden, 10);
  EXPECT_DOUBLE_EQ(found.hidden_share().value_or(0), 1.0 / 3);
}

TEST(CommunicationTime, OfSeveralRunsIsTheirSum) {
  CommunicationTime sum{10, 5};
  sum += {30, 5};
  EXPECT_DOUBLE_EQ(sum.hidden_share().value_or(0), 0.25);
}

}  // namespace trace_of_all_test
}  // namespace belfry
