// The last stage of a plan: one command list per strand. Pass `issue` fills it from the waits that
// pass `schedule` found. Only `issue` decides by which command a strand waits, and which launches
// of a GPU form a segment (a captured graph).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// One action of the thread that follows a strand. Commands for a stream act in the stream of
// `strand`.
struct Command {
  enum class Kind : std::uint8_t {
    // For the thread.
    kWait,       // until `strand` has signalled `position`
    kWaitStamp,  // until the GPU has stamped `position` of `strand`; lists of GPUs end with these
    kLaunch,     // runs the launch, or enqueues it in the stream of its strand
    kSignal,     // says that `position` of `strand` has run, or is enqueued
    kWake,       // wakes the thread that talks to other processes, which waits for that signal
    kExpect,     // informs the watch over ranks that `position` of `strand` is about to be enqueued
    // For a stream.
    kWaitEvent,  // later work waits for the event
    kWaitFeeds,  // later work waits for the feeds of GPU `number` of fed_gpus()
    kSetStep,    // from here on, kernels of strand `number` read this step's number
    kRecord,     // the event stands for all work so far
    kStamp,      // the GPU reports to hosts that `position` of `strand` has finished
    // These two enclose a graph: captured once, then launched instead of the commands between them.
    kBeginSegment,  // its kEndSegment comes `position` commands later
    kEndSegment,
  };

  Kind kind;
  LaunchIndex launch;  // the launch that it belongs to; launches of one list never decrease
  StrandIndex strand = {};
  int position = 0;  // of a launch in `strand`
  int number = 0;    // of an event, a segment, one of fed_gpus(), or a strand

  // "wait 1 #3", "launch 7", "record event 2 in strand 1".
  std::string str() const;
};

// Launches of any strands that one physical GPU gets as one graph, in the global order. In
// Commands::lists each launch is its own segment. Commands::segments are cut by the rule of
// passes/segments.h.
struct Segment {
  int gpu;
  // The segment is enqueued in the stream of this strand. All graphs of a GPU are in one stream:
  // that of the first launch of the GPU's first graph.
  StrandIndex strand;
  std::vector<LaunchIndex> launches;
  bool writes = false;  // it writes variables

  // Several launches are captured as one CUDA graph; a single launch is enqueued directly.
  bool is_graph() const { return launches.size() > 1; }
};

// A command list per strand. A thread that handles several strands follows the merged() list.
using CommandLists = Indexed<Strand, std::vector<Command>>;

struct Commands {
  CommandLists lists;  // launch by launch
  // The lists with segments for GPUs; empty if no segment is a graph. CPU strands have the same
  // lists as above.
  CommandLists in_segments;
  std::vector<Segment> segments;    // of in_segments; empty if that is empty
  std::vector<StrandIndex> events;  // the strand that records each
};

// The commands of several strands in the global order of launches.
std::vector<Command> merged(const CommandLists& lists, const std::vector<StrandIndex>& strands);

}  // namespace belfry
