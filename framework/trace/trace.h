// Writes what a run did, and when, to a file for Perfetto and chrome://tracing.
//
//   Trace trace;
//   session.run({y}, {}, {.trace = &trace});
//   trace.save("step.json");
//
// trace_of_all() joins the traces of several processes in one file.
//
// The file is Chrome's JSON object form. Times are microseconds with three decimals since the start
// of the run, by the monotonic clock. There is
// * one process per device, named by its full name, with one track per strand. A slice is a launch:
//   named by its op, with its node, inputs, bytes of outputs, creating line, and, for a gradient,
//   its forward node; and with its phase, layer, arithmetic and bytes (launch_work.h). Slices of a
//   track never touch. A shorter slice is shown as 2 ns, and slices after it, on its track or by a
//   dependency, begin later if they must. Events around a launch on a GPU time its slice, on the
//   host's clock to some microseconds. The slice's argument `enqueued` is when the host enqueued
//   it;
// * an arrow per tensor and destination device, from the slice that made the tensor to the first
//   slice there that uses it. If a feed, or a variable's value from before the run, leaves its
//   device, it is a slice of 2 ns at the start. A collective is a slice on the strand that ran it,
//   with arrows from and to the other devices;
// * a counter `memory` per device. It has the bytes of the device's arena that the step uses, at
//   each start and end of a launch that changes them, and the bytes of the step's variables;
// * a process `workers`, if there are several, with a track for each worker: the parts that it ran
//   of launches of others.
// otherData.workers has the number of workers of each process.
// Categories, and names of arguments, are those of TensorFlow's timeline. TensorFlow has two
// processes per device, packs overlapping ops into extra lanes, and ends arrows outside of slices.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/trace/communication.h"

namespace belfry {

struct Device;
class Processes;
struct Plan;
struct Recording;
struct TraceContent;

// The trace of one run; the next run that gets it replaces it. A run that throws leaves it empty.
// Holds no reference to its session.
class Trace {
 public:
  // A tensor that went to another device: counted once per tensor and destination device. A
  // collective counts as if its tensors went to the first device and the sum came back.
  struct Transfer {
    std::string name;
    std::string from, to;  // full names of devices
    std::int64_t bytes;
  };

  Trace() = default;
  // Makes the trace of a recorded run of `plan`.
  Trace(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
        const Recording& recording);

  bool empty() const { return !content_; }
  std::span<const Transfer> transfers() const { return transfers_; }
  // The bytes of all transfers.
  std::int64_t transferred_bytes() const;

  // Each throws InvalidArgument if the trace is empty. str() is the content of the file.
  std::string str() const;
  const CommunicationTime& communication() const;
  const TraceContent& content() const;
  // Throws InvalidArgument if the trace is empty, IoError naming the file if it cannot be written.
  void save(const std::string& path, FileSystem& files = local_file_system()) const;

 private:
  std::vector<Transfer> transfers_;
  std::shared_ptr<const TraceContent> content_;
};

// The text of a trace file, and its figures.
struct TraceFile {
  std::string text;
  CommunicationTime communication;
};

// Joins the traces of one step in all processes, which call it together after that step. Rank 0
// gets the file, others an empty one. In the file
// * each process of the run is one process, "rank 1, host", with the strands of its devices as
//   tracks, and its workers;
// * times are by the clock of rank 0, since the first process began the step. otherData.clocks has
//   for each rank the offset of its clock, and how far from the true one that may be, in ns;
// * otherData.communication_hidden_share is CommunicationTime::hidden_share() over all, or null.
// A lone process (null) gets its own trace.
TraceFile trace_of_all(Processes* processes, const Trace& trace);

}  // namespace belfry
