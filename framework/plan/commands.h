// What the threads of a step do, one command after another: the last stage of a plan. Passes decide
// here, and nowhere else, who waits for whom and what a GPU gets as a whole.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// One thing that the thread of a strand does. What acts in a stream does so in that of `strand`.
struct Command {
  enum class Kind : std::uint8_t {
    // Of the thread.
    kWait,       // until `strand` has signalled `position`
    kWaitStamp,  // until the GPU has stamped `position` of `strand`
    kLaunch,     // runs the launch, or enqueues it in the stream of its strand
    kSignal,     // says that `position` of `strand` has been run, or enqueued
    kExpect,     // tells the watch over ranks that `position` of `strand` is about to be enqueued
    // In a stream.
    kWaitEvent,  // what follows waits for the event
    kWaitFeeds,  // what follows waits for the feeds of GPU `number` of fed_gpus()
    kSetStep,    // kernels of strand `number` know the number of the step from here on
    kRecord,     // the event stands for all so far
    kStamp,      // the GPU tells hosts that `position` of `strand` has finished
    // Around what a GPU gets as a whole: captured once, then given in place of what is between.
    kBeginSegment,  // whose end is `position` commands further on
    kEndSegment,
  };

  Kind kind;
  LaunchIndex launch;  // for which it is done: in one list they never decrease
  StrandIndex strand = {};
  int position = 0;  // of a launch in `strand`
  int number = 0;    // of an event, a segment, one of fed_gpus(), or a strand

  // "wait 1 #3", "launch 7".
  std::string str() const;
};

// Launches of one physical GPU, of any of its strands, that follow each other in the global order.
struct Segment {
  int gpu;
  StrandIndex strand;  // in whose stream it is enqueued
  std::vector<LaunchIndex> launches;
  bool writes = false;  // variables

  bool captured() const { return launches.size() > 1; }
};

// By strand. Threads that serve several strands follow the merged() list.
using CommandLists = Indexed<Strand, std::vector<Command>>;

struct Commands {
  CommandLists lists;  // launch by launch
  // The same for GPUs in segments; empty if none is worth a capture. Strands of CPUs are as above.
  CommandLists in_segments;
  std::vector<Segment> segments;
  std::vector<StrandIndex> events;  // the strand that records each
};

// The commands of several strands in the global order of launches.
std::vector<Command> merged(const CommandLists& lists, const std::vector<StrandIndex>& strands);

}  // namespace belfry
