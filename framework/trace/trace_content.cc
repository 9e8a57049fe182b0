#include "belfry/framework/trace/trace_content.h"

#include <algorithm>
#include <set>
#include <utility>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/launch_work.h"
#include "belfry/framework/trace/timeline.h"

namespace belfry {
namespace {

// Makes events of a timeline. Owners are numbered in the order of devices, `workers` last.
class ContentMaker {
 public:
  ContentMaker(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
               const Timeline& timeline)
      : plan_(plan), devices_(devices), timeline_(timeline) {}

  TraceContent run() {
    name_owners_and_tracks();
    for (const Timeline::Slice& slice : timeline_.slices) add_slice(slice);
    for (std::size_t a = 0; a < timeline_.arrows.size(); ++a) add_arrow(a);
    add_levels();
    std::ranges::stable_sort(made_.events, {}, &TraceContent::Event::time);
    made_.communication = communication_of(plan_, timeline_);
    return std::move(made_);
  }

 private:
  int owner(int device) const {
    return device == Timeline::kWorkers ? static_cast<int>(devices_.size()) : device;
  }

  void name_owners_and_tracks() {
    for (const std::unique_ptr<Device>& device : devices_)
      made_.owners.push_back({device->spec.str(), device->spec.short_str()});
    if (!timeline_.tracks.empty() && timeline_.tracks.back().device == Timeline::kWorkers)
      made_.owners.push_back({"workers", ""});
    for (const Timeline::Track& track : timeline_.tracks) {
      const char* const kind = track.device == Timeline::kWorkers ? "worker " : "strand ";
      made_.tracks.push_back({owner(track.device), track.index, cat(kind, track.index)});
    }
  }

  void add_slice(const Timeline::Slice& slice) {
    made_.events.push_back({.time = slice.start,
                            .phase = 'X',
                            .owner = made_.tracks[at(slice.track)].owner,
                            .track = slice.track,
                            .category = "Op",
                            .name = plan_.node(slice.node).op->name,
                            .args = (slice.is_part ? part_args(slice) : args(slice)).str(),
                            .duration = slice.end - slice.start,
                            .enqueued = slice.enqueued});
  }

  JsonValue args(const Timeline::Slice& slice) const {
    const PlanNode& node = plan_.node(slice.node);
    JsonValue args = JsonValue::object();
    args.set("name", node.name());
    args.set("op", node.op->name);
    args.set("device", devices_[at(timeline_.tracks[at(slice.track)].device)]->spec.str());
    if (node.launches()) add_work(args, slice);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      args.set(cat("input", i), plan_.name(node.inputs[i]));
    JsonValue bytes = JsonValue::array();
    for (const TensorType& type : node.types) bytes.push(type.bytes());
    args.set("output_bytes", std::move(bytes));
    args.set("line", node.node->origin().site.str());
    if (const Node* forward = node.node->origin().forward) args.set("forward", forward->name());
    return args;
  }

  // What `belfry trace summary` adds up.
  void add_work(JsonValue& args, const Timeline::Slice& slice) const {
    LaunchWork work = work_of(plan_, slice.node, slice.shard);
    const PlanNode& node = plan_.node(slice.node);
    if (node.op->collective) {  // GPUs may share it
      const WorkRange all =
          whole_range(*node.op, node.participants(), plan_.input_types(node), node.types);
      const double share = static_cast<double>(slice.range.size()) /
                           static_cast<double>(std::max<std::int64_t>(1, all.size()));
      work.bytes = static_cast<std::int64_t>(share * static_cast<double>(work.bytes));
    }
    add_place(args, slice);
    args.set("flops", work.flops).set("bytes", work.bytes);
  }

  void add_place(JsonValue& args, const Timeline::Slice& slice) const {
    args.set("phase", phase(slice)).set("layer", layer_of(*plan_.node(slice.node).node));
  }

  const char* phase(const Timeline::Slice& slice) const {
    const bool of_strand = !slice.is_part && at(slice.track) < plan_.strands.size();
    if (of_strand && plan_.strands[StrandIndex(slice.track)].communicates) return "messages";
    return phase_of(plan_.node(slice.node));
  }

  // "conv0" of "tower1/conv0/Conv2d", and of the nodes of its gradient.
  static std::string_view layer_of(const Node& node) {
    const Node* const forward = node.origin().forward;
    const std::string_view name = (forward ? *forward : node).logical_name();
    const std::size_t slash = name.rfind('/');
    return slash == std::string_view::npos ? name : name.substr(0, slash);
  }

  JsonValue part_args(const Timeline::Slice& slice) const {
    JsonValue args = JsonValue::object();
    args.set("name", plan_.node(slice.node).name());
    args.set("op", plan_.node(slice.node).op->name);
    add_place(args, slice);
    args.set("begin", slice.range.begin);
    args.set("end", slice.range.end);
    return args;
  }

  void add_arrow(std::size_t a) {
    const Timeline::Arrow& arrow = timeline_.arrows[a];
    const std::string name =
        cat(plan_.name(arrow.value), ": ", plan_.type(arrow.value).bytes(), " bytes");
    const auto add = [&](char phase, int track, std::int64_t time) {
      made_.events.push_back({.time = time,
                              .phase = phase,
                              .owner = made_.tracks[at(track)].owner,
                              .track = track,
                              .category = "DataFlow",
                              .name = name,
                              .arrow = static_cast<std::int64_t>(a) + 1});
    };
    const Timeline::Slice& from = timeline_.slices[at(arrow.from)];
    const Timeline::Slice& to = timeline_.slices[at(arrow.to)];
    add('s', from.track, from.end - 1);
    add('f', to.track, to.start + 1);
  }

  void add_levels() {
    std::vector<std::int64_t> variables(devices_.size());
    std::set<const Node*> counted;
    for (const BufferRecord& buffer : plan_.buffers)
      if (buffer.kind == BufferKind::kState && counted.insert(buffer.node).second)
        variables[at(buffer.device)] += buffer.bytes;
    for (const Timeline::Level& level : timeline_.levels)
      made_.events.push_back({.time = level.time,
                              .phase = 'C',
                              .owner = level.device,
                              .track = -1,
                              .category = "Memory",
                              .name = "memory",
                              .args = JsonValue::object()
                                          .set("arena", level.bytes)
                                          .set("variables", variables[at(level.device)])
                                          .str()});
  }

  const Plan& plan_;
  const std::vector<std::unique_ptr<Device>>& devices_;
  const Timeline& timeline_;
  TraceContent made_;
};

// Nanoseconds as microseconds: "12.500".
std::string micros(std::int64_t nanoseconds) {
  const std::string digits = std::to_string(1000 + nanoseconds % 1000);
  return cat(nanoseconds / 1000, ".", std::string_view(digits).substr(1));
}

class EventPrinter {
 public:
  EventPrinter(const TraceContent& content, const TraceView& view)
      : content_(content), view_(view) {}

  std::string run() {
    name_processes();
    name_tracks();
    for (const TraceContent::Event& event : content_.events) add(event);
    return std::move(text_);
  }

 private:
  bool is_alone() const { return view_.processes == 1; }

  int process(int owner) const { return is_alone() ? owner + 1 : view_.rank + 1; }

  // These numbers come after those of processes, because a viewer takes the thread with its
  // process's number as the main one.
  int thread(int track) const {
    const int before = is_alone() ? static_cast<int>(content_.owners.size()) : view_.processes;
    return before + 1 + track;
  }

  std::string where(int owner, int track) const {
    return cat(R"("pid":)", process(owner), track < 0 ? "" : cat(R"(,"tid":)", thread(track)));
  }

  void name_processes() {
    const auto name = [&](int owner, const std::string& text) {
      add_name("process_name", where(owner, -1), "name", text);
      add_name("process_sort_index", where(owner, -1), "sort_index", process(owner));
    };
    if (!is_alone()) return name(0, cat("rank ", view_.rank, ", ", view_.host));
    for (std::size_t o = 0; o < content_.owners.size(); ++o)
      name(static_cast<int>(o), content_.owners[o].name);
  }

  void name_tracks() {
    for (std::size_t t = 0; t < content_.tracks.size(); ++t) {
      const TraceContent::Track& track = content_.tracks[t];
      const auto number = static_cast<int>(t);
      const std::string at_track = where(track.owner, number);
      add_name("thread_name", at_track, "name", with_device(track.owner, track.name));
      add_name("thread_sort_index", at_track, "sort_index", is_alone() ? track.index : number);
    }
  }

  // Names distinguish devices that share a process of the trace.
  std::string with_device(int owner, const std::string& name) const {
    const std::string& device = content_.owners[static_cast<std::size_t>(owner)].short_name;
    if (is_alone() || device.empty()) return name;
    return cat(device, " ", name);
  }

  void add_name(const char* what, const std::string& where, const char* key, JsonValue value) {
    JsonValue args = JsonValue::object();
    args.set(key, std::move(value));
    add_line(cat(R"({"ph":"M","name":")", what, "\",", where, R"(,"args":)", args.str(), "}"));
  }

  void add(const TraceContent::Event& event) {
    const std::string name = event.phase == 'C' ? with_device(event.owner, event.name) : event.name;
    std::string line = cat(R"({"ph":")", event.phase, event.phase == 'f' ? R"(","bp":"e)" : "",
                           R"(","cat":")", event.category, R"(","name":)", JsonValue(name).str());
    // Arrows of ranks have separate numbers.
    if (event.arrow > 0) line += cat(R"(,"id":)", (std::int64_t{view_.rank} << 32) + event.arrow);
    line += cat(",", where(event.owner, event.track), R"(,"ts":)", micros(shifted(event.time)));
    if (event.phase == 'X') line += cat(R"(,"dur":)", micros(event.duration));
    if (!event.args.empty()) line += cat(R"(,"args":)", args(event));
    add_line(line + "}");
  }

  std::string args(const TraceContent::Event& event) const {
    std::string text = event.args;
    if (event.enqueued >= 0)
      text.insert(text.size() - 1, cat(R"(,"enqueued":")", micros(shifted(event.enqueued)), "\""));
    return text;
  }

  std::int64_t shifted(std::int64_t time) const { return time + view_.shift; }

  void add_line(const std::string& line) { text_ += cat(text_.empty() ? "" : ",\n", line); }

  const TraceContent& content_;
  const TraceView& view_;
  std::string text_;
};

}  // namespace

TraceContent trace_content(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                           const Recording& recording) {
  const Timeline timeline = make_timeline(plan, recording);
  TraceContent content = ContentMaker(plan, devices, timeline).run();
  content.zero = recording.zero;
  content.workers = static_cast<int>(recording.parts.size());
  return content;
}

std::string events_text(const TraceContent& content, const TraceView& view) {
  return EventPrinter(content, view).run();
}

}  // namespace belfry
