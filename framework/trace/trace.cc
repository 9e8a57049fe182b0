#include "belfry/framework/trace/trace.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/recording.h"
#include "belfry/framework/trace/timeline.h"

namespace belfry {
namespace {

// Nanoseconds as microseconds: "12.500".
std::string micros(std::int64_t nanoseconds) {
  const std::string digits = std::to_string(1000 + nanoseconds % 1000);
  return cat(nanoseconds / 1000, ".", std::string_view(digits).substr(1));
}

// Prints a timeline. Processes are numbered from 1 in the order of devices, `workers` last; tracks
// go on from there, because a viewer takes the thread with its process's number for the main one.
class TracePrinter {
 public:
  TracePrinter(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
               const Timeline& timeline)
      : plan_(plan), devices_(devices), timeline_(timeline) {}

  // All events: metadata, then the rest in order of time, one per line.
  std::string run() {
    name_processes();
    name_tracks();
    for (const Timeline::Slice& slice : timeline_.slices) add_slice(slice);
    for (std::size_t a = 0; a < timeline_.arrows.size(); ++a) add_arrow(a);
    add_levels();
    std::ranges::stable_sort(events_, {}, &Event::time);
    std::string text;
    for (const Event& event : events_) text += cat(text.empty() ? "" : ",\n", event.text);
    return text;
  }

 private:
  struct Event {
    std::int64_t time;
    std::string text;
  };

  int process(int device) const {
    return device == Timeline::kWorkers ? static_cast<int>(devices_.size()) + 1 : device + 1;
  }

  void name_processes() {
    const auto name = [&](int device, const std::string& text) {
      const std::string where = cat(R"("pid":)", process(device));
      add_metadata("process_name", where, "name", text);
      add_metadata("process_sort_index", where, "sort_index", process(device));
    };
    for (std::size_t d = 0; d < devices_.size(); ++d)
      name(static_cast<int>(d), devices_[d]->spec.str());
    if (!timeline_.tracks.empty() && timeline_.tracks.back().device == Timeline::kWorkers)
      name(Timeline::kWorkers, "workers");
  }

  void name_tracks() {
    for (std::size_t t = 0; t < timeline_.tracks.size(); ++t) {
      const Timeline::Track& track = timeline_.tracks[t];
      const char* const kind = track.device == Timeline::kWorkers ? "worker " : "strand ";
      add_metadata("thread_name", where(static_cast<int>(t)), "name", cat(kind, track.index));
      add_metadata("thread_sort_index", where(static_cast<int>(t)), "sort_index", track.index);
    }
  }

  std::string where(int track) const {
    return cat(R"("pid":)", process(timeline_.tracks[at(track)].device), R"(,"tid":)",
               process(Timeline::kWorkers) + 1 + track);
  }

  void add_metadata(const char* what, const std::string& where, const char* key, Json value) {
    Json args = Json::object();
    args.set(key, std::move(value));
    events_.push_back(
        {-1, cat(R"({"ph":"M","name":")", what, "\",", where, R"(,"args":)", args.str(), "}")});
  }

  void add_slice(const Timeline::Slice& slice) {
    const PlanNode& node = plan_.node(slice.node);
    events_.push_back(
        {slice.start,
         cat(R"({"ph":"X","cat":"Op","name":)", Json(node.op->name).str(), ",", where(slice.track),
             R"(,"ts":)", micros(slice.start), R"(,"dur":)", micros(slice.end - slice.start),
             R"(,"args":)", (slice.is_part ? part_args(slice) : args(slice)).str(), "}")});
  }

  Json args(const Timeline::Slice& slice) const {
    const PlanNode& node = plan_.node(slice.node);
    Json args = Json::object();
    args.set("name", node.name());
    args.set("op", node.op->name);
    args.set("device", devices_[at(timeline_.tracks[at(slice.track)].device)]->spec.str());
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      args.set(cat("input", i), plan_.name(node.inputs[i]));
    Json bytes = Json::array();
    for (const TensorType& type : node.types) bytes.push(type.bytes());
    args.set("output_bytes", std::move(bytes));
    args.set("line", node.node->origin().site.str());
    if (const Node* forward = node.node->origin().forward) args.set("forward", forward->name());
    if (slice.enqueued >= 0) args.set("enqueued", micros(slice.enqueued));
    return args;
  }

  Json part_args(const Timeline::Slice& slice) const {
    Json args = Json::object();
    args.set("name", plan_.node(slice.node).name());
    args.set("op", plan_.node(slice.node).op->name);
    args.set("begin", slice.range.begin);
    args.set("end", slice.range.end);
    return args;
  }

  void add_arrow(std::size_t a) {
    const Timeline::Arrow& arrow = timeline_.arrows[a];
    const Timeline::Slice& from = timeline_.slices[at(arrow.from)];
    const Timeline::Slice& to = timeline_.slices[at(arrow.to)];
    const std::string name =
        cat(plan_.name(arrow.value), ": ", plan_.type(arrow.value).bytes(), " bytes");
    const std::string common =
        cat(R"("cat":"DataFlow","name":)", Json(name).str(), R"(,"id":)", a + 1, ",");
    const std::int64_t leaves = from.end - 1, arrives = to.start + 1;
    events_.push_back({leaves, cat(R"({"ph":"s",)", common, where(from.track), R"(,"ts":)",
                                   micros(leaves), "}")});
    events_.push_back({arrives, cat(R"({"ph":"f","bp":"e",)", common, where(to.track), R"(,"ts":)",
                                    micros(arrives), "}")});
  }

  void add_levels() {
    std::vector<std::int64_t> variables(devices_.size());
    for (const BufferRecord& buffer : plan_.buffers)
      if (buffer.kind == BufferKind::kState) variables[at(buffer.device)] += buffer.bytes;
    for (const Timeline::Level& level : timeline_.levels)
      events_.push_back({level.time, cat(R"({"ph":"C","cat":"Memory","name":"memory","pid":)",
                                         process(level.device), R"(,"ts":)", micros(level.time),
                                         R"(,"args":{"arena":)", level.bytes, R"(,"variables":)",
                                         variables[at(level.device)], "}}")});
  }

  const Plan& plan_;
  const std::vector<std::unique_ptr<Device>>& devices_;
  const Timeline& timeline_;
  std::vector<Event> events_;
};

}  // namespace

Trace::Trace(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
             const Recording& recording) {
  Json list = Json::array();
  for (const TransferRecord& record : plan.transfers) {
    transfers_.push_back({record.name, devices[at(record.from)]->spec.str(),
                          devices[at(record.to)]->spec.str(), record.bytes});
    Json transfer = Json::object();
    transfer.set("name", record.name);
    transfer.set("from", transfers_.back().from);
    transfer.set("to", transfers_.back().to);
    transfer.set("bytes", record.bytes);
    list.push(std::move(transfer));
  }
  const Timeline timeline = make_timeline(plan, recording);
  text_ = cat("{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"transferred_bytes\":",
              transferred_bytes(), ",\"transfers\":", list.str(), "},\n\"traceEvents\":[\n",
              TracePrinter(plan, devices, timeline).run(), "\n]}\n");
}

std::int64_t Trace::transferred_bytes() const {
  std::int64_t bytes = 0;
  for (const Transfer& transfer : transfers_) bytes += transfer.bytes;
  return bytes;
}

const std::string& Trace::str() const {
  require(!empty(),
          "the trace is empty; give it to a run: session.run({y}, {}, {.trace = &trace})");
  return text_;
}

void Trace::save(const std::string& path, FileSystem& files) const {
  write_text_file(files, path, str());
}

}  // namespace belfry
