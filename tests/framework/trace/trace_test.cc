// Traces of runs, as text and as files that the independent checker accepts.
#include "belfry/framework/trace/trace.h"

#include <atomic>
#include <thread>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/recording.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/sin.h"
#include "belfry/ops/square.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace trace_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The events of a phase, e.g. "X".
std::vector<JsonValue> events(const Trace& trace, std::string_view phase) {
  std::vector<JsonValue> found;
  const JsonValue file = JsonValue::parse(trace.str());
  for (const JsonValue& event : file.at("traceEvents").items())
    if (event.at("ph").text() == phase) found.push_back(event);
  return found;
}

// The names of processes.
std::vector<std::string> processes(const Trace& trace) {
  std::vector<std::string> names;
  for (const JsonValue& event : events(trace, "M"))
    if (event.at("name").text() == "process_name")
      names.push_back(event.at("args").at("name").text());
  return names;
}

// The slice of a node.
JsonValue slice(const Trace& trace, std::string_view name) {
  for (const JsonValue& event : events(trace, "X"))
    if (event.at("args").at("name").text() == name) return event;
  ADD_FAILURE() << "no slice of " << name;
  return JsonValue::object();
}

// Each device adds its share of a variable to a feed. The sums are combined, and written back. They
// are so large that workers share the work.
struct Net {
  explicit Net(int count) {
    x = placeholder(graph, "x", DType::kF32, {kSize});
    v = variable(graph, "v", {kSize}, {.initializer = init::ones()});
    std::vector<Output> parts;
    for (int d = 0; d < count; ++d) {
      DeviceScope on(graph, cpu(d));
      parts.push_back(add_n({x, v}));
    }
    const auto sums = all_reduce(parts);
    y = sums.back();
    Output norm;
    for (int d = 0; d < count; ++d) {
      DeviceScope on(graph, cpu(d));
      norm = d == 0 ? square(sums[0]) : add(norm, sums[static_cast<std::size_t>(d)]);
    }
    write = &assign(v, norm);
  }
  std::vector<FeedValue> feeds() const {
    return {{x, Tensor({kSize}, std::vector<float>(kSize, 1))}};
  }

  static constexpr std::int64_t kSize = 50'000;
  Graph graph;
  Output x, y;
  Variable v;
  Node* write;
};

TEST(Trace, OfManySessionsSatisfiesTheChecker) {
  std::vector<std::string> files;
  for (const int devices : {1, 2, 4})
    for (const int threads : {1, 2, 4}) {
      const Net net(devices);
      Session session(
          net.graph, {.device_count = {{"CPU", devices}}, .threads = threads, .all_workers = true});
      const std::vector<Fetch> fetches{net.y, *net.write};
      const Plan& plan =
          *session.prepare(fetches, std::vector<FeedType>{{net.x, {Net::kSize}}}).plan();
      Trace trace;
      session.run(fetches, net.feeds(), {.trace = &trace});
      files.push_back(temporary_path(".json"));
      trace.save(files.back());
      std::size_t on_strands = 0;
      for (const JsonValue& event : events(trace, "X"))
        on_strands += event.at("args").find("device") ? 1 : 0;
      EXPECT_GE(on_strands, plan.launches.size());
      const std::size_t workers = threads > 1 ? 1 : 0;
      EXPECT_EQ(processes(trace).size(), static_cast<std::size_t>(devices) + workers);
      EXPECT_EQ(processes(trace)[0], "/job:localhost/replica:0/task:0/device:CPU:0");
      EXPECT_EQ(events(trace, "s").size(), events(trace, "f").size());
      // Transfers: x and v to each other device; there and back for the sum; the norm from device
      // to device, and to the variable.
      const std::size_t others = static_cast<std::size_t>(devices) - 1;
      EXPECT_EQ(trace.transfers().size(), others * 5 + (others > 0 ? 1 : 0));
      EXPECT_EQ(trace.transferred_bytes(),
                static_cast<std::int64_t>(trace.transfers().size()) * 4 * Net::kSize);
      EXPECT_EQ(events(trace, "s").size(), trace.transfers().size());
    }
  const Finished done = check_traces(files);
  EXPECT_EQ(done.status, 0) << done.errors;
  for (const std::string& file : files) {
    EXPECT_THAT(done.output, HasSubstr(file));
    local_file_system().remove(file);
  }
}

TEST(Trace, TensorsOfABucketHaveAnArrowThereAndBackEach) {
  Graph graph;
  std::vector<std::vector<Output>> tensors(2);
  for (int i = 0; i < 4; ++i) {
    DeviceScope on(graph, cpu(i % 2));
    tensors[static_cast<std::size_t>(i / 2)].push_back(fill(graph, {3 + i / 2}, i));
  }
  const auto sums = all_reduce_bucket(tensors);
  std::vector<Fetch> fetches;
  for (int i = 0; i < 4; ++i) {
    DeviceScope on(graph, cpu(i % 2));
    fetches.emplace_back(
        square(sums[static_cast<std::size_t>(i / 2)][static_cast<std::size_t>(i % 2)]));
  }
  Session session(graph, {.device_count = {{"CPU", 2}}});
  Trace trace;
  session.run(fetches, {}, {.trace = &trace});
  EXPECT_EQ(trace.transfers().size(), 4u);
  EXPECT_EQ(events(trace, "s").size(), 4u);
}

TEST(Trace, PartsThatAnotherWorkerRanAreOnItsTrack) {
  const Net net(2);
  Session session(net.graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = true});
  std::atomic<std::thread::id> first{};
  std::atomic<bool> helped{false};
  // The owner of the launch continues once the other worker, which waits for the launch, helps.
  set_collective_hook([&](const Node&, WorkRange) {
    std::thread::id none{};
    const std::thread::id self = std::this_thread::get_id();
    if (!first.compare_exchange_strong(none, self) && none != self) helped = true;
    while (!helped) std::this_thread::yield();
  });
  Trace trace;
  session.run({*net.write}, {{net.x, net.feeds()[0].what}}, {.trace = &trace});
  set_collective_hook({});
  EXPECT_THAT(processes(trace), ElementsAre(StartsWith("/job"), StartsWith("/job"), "workers"));
  std::size_t strand_slices = 0, parts = 0;
  for (const JsonValue& event : events(trace, "X")) {
    if (event.at("name").text() != "AllReduce") continue;
    const bool is_part = event.at("pid").integer() == 3;
    ++(is_part ? parts : strand_slices);
    if (!is_part) continue;
    EXPECT_LT(event.at("args").at("begin").integer(), event.at("args").at("end").integer());
    EXPECT_EQ(event.at("args").at("name").text(), "AllReduce");
  }
  EXPECT_EQ(strand_slices, 1u);
  EXPECT_GE(parts, 1u);
}

TEST(Trace, SlicesSayWhatTheyRan) {
  Graph graph;
  Output x, y;
  {
    DeviceScope on(graph, cpu(1));
    x = fill(graph, {2, 3}, 1);
    y = sin(x, "wave");
  }
  const unsigned line = __LINE__ - 2;
  const Output g = gradients(y, {x}, {.colocate = true})[0];
  Session session(graph, {.device_count = {{"CPU", 2}}});
  Trace trace;
  session.run({y, g}, {}, {.trace = &trace});
  const JsonValue wave = slice(trace, "wave"), args = wave.at("args");
  EXPECT_EQ(wave.at("name").text(), "Sin");
  EXPECT_EQ(wave.at("cat").text(), "Op");
  EXPECT_EQ(wave.at("pid").integer(), 2);
  EXPECT_EQ(args.at("op").text(), "Sin");
  EXPECT_EQ(args.at("device").text(), cpu(1).str());
  EXPECT_EQ(args.at("input0").text(), std::string(x.name()));
  EXPECT_EQ(args.at("output_bytes").str(), "[24]");
  EXPECT_EQ(args.at("phase").text(), "other");  // no tower function has made it
  EXPECT_EQ(args.at("layer").text(), "wave");
  EXPECT_EQ(args.at("bytes").integer(), 48);
  EXPECT_EQ(args.at("flops").number(), 0);
  EXPECT_EQ(args.at("line").text(), cat("trace_test.cc:", line));
  EXPECT_EQ(args.find("forward"), nullptr);
  std::size_t gradients = 0;
  for (const JsonValue& event : events(trace, "X"))
    if (const JsonValue* forward = event.at("args").find("forward"))
      if (forward->text() == "wave") {
        const JsonValue& of_gradient = event.at("args");
        gradients += of_gradient.at("phase").text() == "gradient" ? 1 : 0;  // else its fetch
        EXPECT_EQ(of_gradient.at("layer").text(), "wave");
      }
  EXPECT_GE(gradients, 1u);  // the cosine
}

TEST(Trace, CountsMemoryOfArenasAndVariables) {
  Graph graph;
  const Variable v = variable(graph, "v", {100}, {.initializer = init::ones()});
  Session session(graph, {.device_count = {{"CPU", 2}}});
  Trace trace;
  session.run({add_n({v, v})}, {}, {.trace = &trace});
  std::vector<std::string> levels;
  for (const JsonValue& event : events(trace, "C"))
    levels.push_back(cat(event.at("pid").integer(), " ", event.at("args").str()));
  EXPECT_THAT(levels, ::testing::UnorderedElementsAre(
                          R"(1 {"arena":0,"variables":400})", R"(1 {"arena":400,"variables":400})",
                          R"(1 {"arena":0,"variables":400})", R"(2 {"arena":0,"variables":0})"));
}

TEST(Trace, TimesHaveThreeDecimals) {
  Graph graph;
  const Output x = fill(graph, {2}, 1);
  const auto devices = cpu_devices(1);
  Recording recording;
  recording.launches = {{12'500, 1'012'507}, {2'000'000, 2'000'000}};
  const Trace trace(compiled(devices, {x}), devices, recording);
  EXPECT_THAT(trace.str(), HasSubstr(R"("ts":12.500,"dur":1000.007,)"));
  EXPECT_THAT(trace.str(), HasSubstr(R"("ts":2000.000,"dur":0.002,)"));
}

TEST(Trace, NamesOfAnyLettersAreJson) {
  Graph graph;
  const SourceLine odd{"dir/a\"b\\\n\xff.cc", 7};
  const Output x = fill(graph, {2}, 1, DType::kF32, At(odd));
  Session session(graph);
  Trace trace;
  session.run({x}, {}, {.trace = &trace});
  EXPECT_THAT(slice(trace, "Fill").at("args").at("line").text(), StartsWith("a\"b\\\n"));
  const std::string file = temporary_path(".json");
  trace.save(file);
  const Finished done = check_traces({file});
  EXPECT_EQ(done.status, 0) << done.errors;
  local_file_system().remove(file);
}

TEST(Trace, HoldsTheLastRunAndOutlivesItsSession) {
  Trace trace;
  EXPECT_TRUE(trace.empty());
  {
    const Net net(2);
    Session session(net.graph, {.device_count = {{"CPU", 2}}});
    session.run({net.y}, {{net.x, net.feeds()[0].what}}, {.trace = &trace});
    EXPECT_EQ(trace.transfers().size(), 4u);
    session.run({add_n({net.v, net.v})}, {}, {.trace = &trace});
  }
  EXPECT_TRUE(trace.transfers().empty());
  EXPECT_EQ(trace.transferred_bytes(), 0);
  EXPECT_THAT(trace.str(), HasSubstr("AddN"));
  EXPECT_EQ(trace.str().find("AllReduce"), std::string::npos);
}

TEST(Trace, OfAPreparedStepRecordsTheRunItIsGivenTo) {
  const Net net(2);
  Session session(net.graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = true});
  CompiledStep& step = session.prepare({net.y}, {FeedType{net.x, {Net::kSize}}});
  const Tensor feeds[] = {net.feeds()[0].what};
  step.run(feeds);
  const Tensor plain = step.fetched(0);
  const std::vector<float> before(plain.data<float>().begin(), plain.data<float>().end());
  Trace trace;
  step.run(feeds, {.trace = &trace});
  const std::string text = trace.str();
  step.run(feeds);
  EXPECT_EQ(trace.str(), text);
  EXPECT_EQ(step.fetched(0), Tensor({Net::kSize}, before));
  std::size_t fetches = 0;
  for (const JsonValue& event : events(trace, "X"))
    fetches += event.at("args").at("name").text() == "AllReduce/fetch" ? 1 : 0;
  EXPECT_EQ(fetches, 1u);
}

TEST(Trace, OfARunThatThrowsIsEmpty) {
  const Net net(2);
  Session session(net.graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = true});
  Trace trace;
  session.run({net.y}, {{net.x, net.feeds()[0].what}}, {.trace = &trace});
  EXPECT_FALSE(trace.empty());
  set_collective_hook([](const Node&, WorkRange) { throw CommError("lost a peer"); });
  EXPECT_THROW(session.run({net.y}, {{net.x, net.feeds()[0].what}}, {.trace = &trace}), CommError);
  set_collective_hook({});
  EXPECT_TRUE(trace.empty());
  session.run({net.y}, {{net.x, net.feeds()[0].what}}, {.trace = &trace});
  EXPECT_FALSE(trace.empty());
  EXPECT_THROW(session.run({net.y}, {}, {.trace = &trace}), InvalidArgument);  // x is not fed
  EXPECT_TRUE(trace.empty());
}

TEST(Trace, ThatIsEmptyOrCannotBeWrittenSaysSo) {
  Trace trace;
  EXPECT_THAT(message_of<InvalidArgument>([&] { trace.save("x.json"); }),
              HasSubstr("the trace is empty"));
  Graph graph;
  const Output x = fill(graph, {2}, 1);
  Session session(graph);
  session.run({x}, {}, {.trace = &trace});
  EXPECT_THAT(message_of<IoError>([&] { trace.save("/nowhere/x.json"); }),
              HasSubstr("/nowhere/x.json"));
}

}  // namespace trace_test
}  // namespace belfry
