// The independent checker finds faults of a trace.
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace check_trace_test {

using ::testing::HasSubstr;

// Two tracks in two processes, a nested slice, an arrow and a counter.
const std::string kNames =
    R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"cpu:0"}},)"
    R"({"ph":"M","name":"process_name","pid":2,"args":{"name":"cpu:1"}},)"
    R"({"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"strand 0"}},)"
    R"({"ph":"M","name":"thread_name","pid":2,"tid":2,"args":{"name":"strand 0"}})";

std::string slice(int track, const char* start, const char* duration) {
  return cat(R"(,{"ph":"X","cat":"Op","name":"Add","pid":)", track, R"(,"tid":)", track,
             R"(,"ts":)", start, R"(,"dur":)", duration, "}");
}

std::string flow(char phase, int track, const char* time, const char* more = R"("bp":"e",)",
                 int id = 7) {
  return cat(R"(,{"ph":")", phase, R"(","cat":"DataFlow","name":"x",)", more, R"("id":)", id,
             R"(,"pid":)", track, R"(,"tid":)", track, R"(,"ts":)", time, "}");
}

std::string counter(const char* value) {
  return cat(R"(,{"ph":"C","name":"memory","pid":1,"ts":0.000,"args":{"arena":)", value, "}}");
}

std::string enqueued(const char* value) {
  return cat(R"(,{"ph":"X","name":"Add","pid":1,"tid":1,"ts":5.000,"dur":1.000,"args":)",
             R"({"enqueued":)", value, "}}");
}

const std::string kSlices = slice(1, "0.000", "10.000") + slice(1, "2.000", "3.500") +
                            slice(1, "10.000", "0.002") + slice(2, "12.000", "0.002");
const std::string kFlow = flow('s', 1, "10.001", "") + flow('f', 2, "12.001");

struct Broken {
  const char* what;
  std::string events;
  const char* message;
};

TEST(CheckTrace, AcceptsARightTraceAndSaysWhatIsInIt) {
  const std::string path = temporary_path(".json");
  const std::string text = cat("{\"traceEvents\":[", kNames, kSlices, kFlow, counter("0"), "]}");
  write_text_file(local_file_system(), path, text);
  const Finished done = check_traces({path, path});
  local_file_system().remove(path);
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_EQ(done.output, cat(path, ": 4 slices, 1 arrows\n", path, ": 4 slices, 1 arrows\n"));
}

TEST(CheckTrace, NamesTheEventThatIsWrong) {
  const std::vector<Broken> all = {
      {"overlap", slice(1, "0.000", "5.000") + slice(1, "4.999", "5.000"), "overlaps event 4 (X"},
      {"same slice twice", slice(1, "0.000", "5.000") + slice(1, "0.000", "5.000"), "overlaps"},
      {"ends with its outer one", slice(1, "0.000", "5.000") + slice(1, "1.000", "4.000"),
       "overlaps"},
      {"negative time", slice(1, "-1.000", "5.000"), "ts is -1.000"},
      {"negative duration", slice(1, "1.000", "-5.000"), "dur is -5.000"},
      {"two decimals", slice(1, "1.50", "5.000"), "ts is 1.50"},
      {"four decimals", slice(1, "1.500", "5.0001"), "dur is 5.0001"},
      {"exponent", slice(1, "1e3", "5.000"), "ts is 1e3"},
      {"text as time", slice(1, "\"1.000\"", "5.000"), "needs a number as ts"},
      {"no duration", R"(,{"ph":"X","name":"Add","pid":1,"tid":1,"ts":1.000})", "as dur"},
      {"no end", kSlices + flow('s', 1, "10.001", ""), "has no f event"},
      {"no start", kSlices + flow('f', 2, "12.001"), "has no s event"},
      {"two ends", kSlices + kFlow + flow('f', 2, "12.001"), "repeats flow 7"},
      {"two starts", kSlices + kFlow + flow('s', 1, "10.001", ""), "repeats flow 7"},
      {"start at the edge", kSlices + flow('s', 1, "10.000", "") + flow('f', 2, "12.001"),
       "event 8 (s 'x') at 10.000 is not strictly inside"},
      {"end at the edge", kSlices + flow('s', 1, "10.001", "") + flow('f', 2, "12.002"),
       "event 9 (f 'x') at 12.002 is not strictly inside"},
      {"end outside", kSlices + flow('s', 1, "10.001", "") + flow('f', 2, "13.000"),
       "not strictly inside"},
      {"end on a track without slices",
       slice(1, "0.000", "9.000") + flow('s', 1, "1.000", "") + flow('f', 2, "1.000"),
       "not strictly inside"},
      {"end before start",
       kSlices + slice(2, "1.000", "1.000") + flow('s', 1, "10.001", "") + flow('f', 2, "1.500"),
       "is before its start"},
      {"no bp", kSlices + flow('s', 1, "10.001", "") + flow('f', 2, "12.001", ""), "has no \"bp\""},
      {"other names",
       kSlices + flow('s', 1, "10.001", "") +
           R"(,{"ph":"f","bp":"e","cat":"DataFlow","name":"y","id":7,"pid":2,"tid":2,"ts":12.001})",
       "another name"},
      {"process without name", slice(3, "0.000", "1.000"), "process 3 without name"},
      {"track without name", R"(,{"ph":"X","name":"Add","pid":1,"tid":2,"ts":1.000,"dur":1.000})",
       "track without name"},
      {"name taken", R"(,{"ph":"M","name":"process_name","pid":3,"args":{"name":"cpu:1"}})",
       "name that is taken"},
      {"negative counter", counter("-1"), "counts arena as -1"},
      {"text in counter", counter("\"1\""), "instead of a number"},
      {"starts before it was enqueued", enqueued(R"("5.001")"), "starts before it was enqueued"},
      {"number as time of enqueueing", enqueued("4.000"), "was enqueued at"},
      {"unknown phase", R"(,{"ph":"B","name":"Add","pid":1,"tid":1,"ts":1.000})", "unknown phase"},
      {"no number", counter("NaN"), "NaN is no number"},
      {"no JSON", ",", "cannot be read as JSON"},
      {"member twice", R"(,{"ph":"M","ph":"M","name":"x","pid":1})", "repeats a member"},
  };
  std::vector<std::string> paths;
  for (const Broken& broken : all) {
    paths.push_back(temporary_path(".json"));
    write_text_file(local_file_system(), paths.back(),
                    cat("{\"traceEvents\":[", kNames, broken.events, "]}"));
  }
  const Finished together = check_traces(paths);
  EXPECT_EQ(together.status, 1) << together.errors;
  EXPECT_EQ(together.output, "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t line = together.errors.find(paths[i] + ": ");
    ASSERT_NE(line, std::string::npos) << all[i].what;
    const std::string message =
        together.errors.substr(line, together.errors.find('\n', line) - line);
    EXPECT_THAT(message, HasSubstr(all[i].message)) << all[i].what;
    local_file_system().remove(paths[i]);
  }
}

TEST(CheckTrace, MissesTheArrowsOfTransfers) {
  const std::string path = temporary_path(".json");
  const auto check = [&](const std::string& transfers, const std::string& events) {
    write_text_file(local_file_system(), path,
                    cat(R"({"otherData":{"transfers":[)", transfers, R"(]},"traceEvents":[)",
                        kNames, events, "]}"));
    return check_traces({path});
  };
  const std::string transfer = R"({"name":"x","from":"cpu:0","to":"cpu:1","bytes":4})";
  EXPECT_EQ(check("", kSlices).status, 0);
  EXPECT_EQ(check(transfer, kSlices + kFlow).status, 0);
  EXPECT_THAT(check(transfer + "," + transfer, kSlices).errors,
              HasSubstr("has 2 transfers, but no arrows"));
  local_file_system().remove(path);
}

TEST(CheckTrace, RefusesAnyOneWrongFileAndWhatIsNoTrace) {
  const std::string good = temporary_path(".json"), bad = temporary_path(".json");
  write_text_file(local_file_system(), good, cat("{\"traceEvents\":[", kNames, kSlices, "]}"));
  write_text_file(local_file_system(), bad, "[]");
  EXPECT_EQ(check_traces({good}).status, 0);
  EXPECT_EQ(check_traces({bad, good}).status, 1);
  local_file_system().remove(good);
  local_file_system().remove(bad);
  EXPECT_EQ(check_traces({good}).status, 1);
  EXPECT_EQ(check_traces({}).status, 2);
}

}  // namespace check_trace_test
}  // namespace belfry
