// Adds up what a trace file says about the time of a step (`belfry trace summary`).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/json.h"

namespace belfry {

inline constexpr std::uint64_t kMostTraceBytes = std::uint64_t{1} << 30;  // of a file

// Launches of one kind, over all workers and GPUs.
struct TraceSum {
  std::string name;
  std::int64_t calls = 0;  // launches; one per shard
  double seconds = 0;
  double flops = 0, bytes = 0;  // LaunchWork (framework/trace/launch_work.h)
  double floor = 0;             // seconds of the arithmetic at the machine's peak
};

// What one worker of a host, or one GPU, does at most in a second.
struct UnitPeak {
  bool on_gpus = false;
  double flops = 0, bytes = 0;
};

// Reads what `peak_bench --json` has written, for products in `precision` (f32). Throws
// InvalidArgument for anything else, and for a precision that was not measured, with those that
// were.
UnitPeak read_unit_peak(std::string_view text, const std::string& precision);

struct TraceSummary {
  std::int64_t processes = 1;
  std::int64_t workers = 0, gpus = 0;  // of all processes; no workers if all launches are on GPUs
  double seconds = 0;                  // from the first start to the last end
  // The largest first. A phase is forward, gradient, update (with sums over shards and towers, if
  // they are fused), communication (other sums and copies), messages (between processes, or of
  // NCCL, while workers may run other launches), other, or wait: the time in which workers and GPUs
  // ran nothing.
  std::vector<TraceSum> phases, ops, layers;
  TraceSum all;
  std::optional<UnitPeak> peak;

  // The time that workers and GPUs have in the step.
  double available() const { return seconds * static_cast<double>(workers + gpus); }
};

// Sums up the content of a trace file (framework/trace/trace.h). The peak is for floors; launches
// of other devices have none. Throws InvalidArgument naming the line if it is none.
TraceSummary sum_up_trace(std::string_view text, const std::optional<UnitPeak>& peak = {});

// Tables for people, with at most `most` rows each; 0: all.
std::string to_text(const TraceSummary& summary, std::size_t most);
// {step_ms, processes, workers, gpus, peak: {device_type, tflops, gbs}, total, phases, ops,
// layers}, with rows {name, calls, ms, share, flops, bytes, floor_ms, floor_share}. Without a peak,
// it and floors are null.
JsonValue to_json(const TraceSummary& summary);

}  // namespace belfry
