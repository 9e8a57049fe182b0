// The content of a trace before it is text.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/trace/communication.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

struct Device;
struct Plan;

// The trace of one run in one process.
struct TraceContent {
  // A device, or the workers, whose short name is "".
  struct Owner {
    std::string name, short_name;
  };
  struct Track {
    int owner;
    int index;  // among the tracks of its owner
    std::string name;
  };
  // Times are nanoseconds since `zero`.
  struct Event {
    std::int64_t time;
    char phase;  // in Chrome's format: X a slice, s and f the ends of an arrow, C a counter
    int owner;
    int track;  // -1: a counter has none
    std::string category, name;
    std::string args = {};       // a JSON object; "": none
    std::int64_t duration = 0;   // of a slice
    std::int64_t enqueued = -1;  // of a slice on a GPU
    std::int64_t arrow = 0;      // its number, from 1
  };

  Recording::Clock::time_point zero;
  std::vector<Owner> owners;
  std::vector<Track> tracks;
  std::vector<Event> events;  // in order of time
  CommunicationTime communication;
  int workers = 0;  // threads that ran launches on hosts
};

// How the events of a process are shown. If there is one process, each of its devices is a process
// of the trace. If there are several, each is one process of the trace, "rank 1, host".
struct TraceView {
  int rank = 0, processes = 1;
  std::string host = {};
  std::int64_t shift = 0;  // nanoseconds to add to each time
};

TraceContent trace_content(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                           const Recording& recording);

// Objects of Chrome's JSON, a line each: names first.
std::string events_text(const TraceContent& content, const TraceView& view);

}  // namespace belfry
