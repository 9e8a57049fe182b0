#include "belfry/framework/trace/trace.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/trace_content.h"

namespace belfry {
namespace {

std::string file_of(std::int64_t transferred_bytes, const JsonValue& transfers,
                    const JsonValue& workers, const std::string& more_data,
                    const std::string& events) {
  return cat("{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"transferred_bytes\":",
             transferred_bytes, ",\"transfers\":", transfers.str(), ",\"workers\":", workers.str(),
             more_data, "},\n\"traceEvents\":[\n", events, "\n]}\n");
}

JsonValue to_json(std::span<const Trace::Transfer> transfers) {
  JsonValue list = JsonValue::array();
  for (const auto& [name, from, to, bytes] : transfers)
    list.push(
        JsonValue::object().set("name", name).set("from", from).set("to", to).set("bytes", bytes));
  return list;
}

std::int64_t nanoseconds(Recording::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// What each process sends to rank 0: a line of numbers, one of transfers, then events.
struct PartOfAll {
  std::int64_t transferred = 0, workers = 0;
  CommunicationTime communication;
  JsonValue transfers;
  std::string_view events;

  static PartOfAll read(std::string_view text) {
    PartOfAll part;
    const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
    const JsonValue numbers = JsonValue::parse(text.substr(0, first));
    part.transferred = numbers.at("transferred").integer();
    part.workers = numbers.at("workers").integer();
    part.communication = {numbers.at("under_way").integer(), numbers.at("hidden").integer()};
    part.transfers = JsonValue::parse(text.substr(first + 1, second - first - 1));
    part.events = text.substr(second + 1);
    return part;
  }
};

std::string part_text(const Trace& trace, const std::string& events) {
  const auto& [under_way, hidden] = trace.communication();
  return cat(JsonValue::object()
                 .set("transferred", trace.transferred_bytes())
                 .set("under_way", under_way)
                 .set("hidden", hidden)
                 .set("workers", trace.content().workers)
                 .str(),
             "\n", to_json(trace.transfers()).str(), "\n", events);
}

// Part of otherData: how the times of each process were converted to the clock of rank 0.
JsonValue clocks_json(const Processes& processes, const std::vector<ClockOffset>& offsets) {
  JsonValue clocks = JsonValue::array();
  for (std::size_t r = 0; r < offsets.size(); ++r)
    clocks.push(JsonValue::object()
                    .set("rank", r)
                    .set("host", processes.host(static_cast<int>(r)))
                    .set("offset_ns", offsets[r].offset)
                    .set("error_ns", offsets[r].error));
  return clocks;
}

// What to add to times of this process, so that all processes count from the earliest start of the
// step, by the clock of rank 0.
std::int64_t shift_here(Processes& processes, const std::vector<ClockOffset>& offsets,
                        Recording::Clock::time_point zero) {
  const auto rank = static_cast<std::size_t>(processes.rank());
  const std::int64_t own = nanoseconds(zero) - offsets[rank].offset;
  std::int64_t first = own;
  for (const std::string& start : processes.gather(cat(own)))
    first = std::min<std::int64_t>(first, std::stoll(start));
  return own - first;
}

TraceFile joined(Processes& processes, const std::vector<ClockOffset>& offsets,
                 const std::vector<std::string>& parts) {
  TraceFile file;
  std::int64_t transferred = 0;
  JsonValue transfers = JsonValue::array(), workers = JsonValue::array();
  std::string events;
  for (const std::string& text : parts) {
    const PartOfAll part = PartOfAll::read(text);
    transferred += part.transferred;
    file.communication += part.communication;
    workers.push(part.workers);
    for (const JsonValue& transfer : part.transfers.items()) transfers.push(transfer);
    events += cat(events.empty() ? "" : ",\n", part.events);
  }
  const std::optional<double> share = file.communication.hidden_share();
  const std::string more =
      cat(",\"clocks\":", clocks_json(processes, offsets).str(),
          ",\"communication_hidden_share\":", (share ? JsonValue(*share) : JsonValue()).str());
  file.text = file_of(transferred, transfers, workers, more, events);
  return file;
}

}  // namespace

Trace::Trace(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
             const Recording& recording)
    : content_(std::make_shared<const TraceContent>(trace_content(plan, devices, recording))) {
  for (const TransferRecord& record : plan.transfers)
    transfers_.push_back({record.name, devices[at(record.from)]->spec.str(),
                          devices[at(record.to)]->spec.str(), record.bytes});
}

std::int64_t Trace::transferred_bytes() const {
  std::int64_t bytes = 0;
  for (const Transfer& transfer : transfers_) bytes += transfer.bytes;
  return bytes;
}

const TraceContent& Trace::content() const {
  require(!empty(),
          "the trace is empty; give it to a run: session.run({y}, {}, {.trace = &trace})");
  return *content_;
}

const CommunicationTime& Trace::communication() const { return content().communication; }

std::string Trace::str() const {
  return file_of(transferred_bytes(), to_json(transfers_), JsonValue::array({content().workers}),
                 "", events_text(content(), {}));
}

void Trace::save(const std::string& path, FileSystem& files) const {
  write_text_file(files, path, str());
}

TraceFile trace_of_all(Processes* processes, const Trace& trace) {
  if (!processes) return {trace.str(), trace.communication()};
  const TraceContent& content = trace.content();
  const std::vector<ClockOffset> offsets = processes->clock_offsets();
  const TraceView view{.rank = processes->rank(),
                       .processes = processes->size(),
                       .host = processes->host(processes->rank()),
                       .shift = shift_here(*processes, offsets, content.zero)};
  const std::vector<std::string> parts =
      processes->collect(part_text(trace, events_text(content, view)));
  return parts.empty() ? TraceFile() : joined(*processes, offsets, parts);
}

}  // namespace belfry
