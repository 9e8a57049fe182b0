// Times aggregation strategies, and the limit of memory, for allreduce_bench.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/group/processes.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

struct ReductionBenchOptions {
  std::vector<DeviceSpec> devices;  // of each process
  // Processes that reduce together, each with `devices`; null: this one alone. A dry run of one of
  // several processes takes `place` instead.
  std::shared_ptr<Processes> processes = {};
  ProcessPlace place = {};
  int logical_gpus = 1;        // as in SessionOptions
  int threads = 0;             // 0: one per usable core
  bool deterministic = false;  // as in SessionOptions
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kSum;
  int iterations = 20, warmup = 1;  // of each strategy, in place and out of place
  int aggregate = 1;                // reductions that follow each other in one timed step
  bool check = true;
  // true: lists a strategy that cannot serve these towers or this type, with its reason. false:
  // throws what the strategy throws.
  bool list_refused = false;
  // "auto" chooses by it among the strategies of the replicated trainer. It also predicts the
  // times, if it was measured here. Borrowed, may be null.
  const MachineDescription* machine = nullptr;
  bool auto_any = false;  // "auto" may take strategies that are not canonical
  // Shows progress, whenever that is due; borrowed, may be null.
  Console* console = nullptr;

  // The towers of all processes.
  int towers() const { return static_cast<int>(devices.size()) * place.size; }
};

struct ReductionTiming {
  double seconds = 0;                 // of a reduction: the median step over options.aggregate;
                                      // with several processes, of the slowest
  std::optional<double> predicted;    // seconds, on options.machine
  std::optional<std::int64_t> wrong;  // elements on all towers, if checked
};

struct ReductionResult {
  std::string strategy;          // as asked for
  std::string resolved;          // what "auto" chose; else the same
  std::string reason;            // the reason of the choice: lines
  bool canonical = false;        // for this number of towers
  std::string refusal;           // if not empty, nothing was timed
  ReductionTiming in_place;      // every tower's buffer gets the sum
  ReductionTiming out_of_place;  // sums in memory of their own; towers may share it
};

struct ReductionBench {
  std::int64_t elements = 0, bytes = 0;  // per tower
  // The time, in the slowest process, of scaling the same buffers in place on the same threads; on
  // GPUs, of copying them within each GPU's memory (ByteLimit).
  double limit_seconds = 0;
  std::vector<ReductionResult> results;  // in the order asked for
};

// Reduces tensors of these shapes, one set per tower, by CompiledStep::run. In place runs
// assign(v[t], sum[t]) for variables on the towers' devices; out of place runs the sums alone.
// Strategies, in place and out of place, and the limit take turns (Interleaved). Throws what
// strategies and sessions throw. Several processes call it together; each returns the results of
// all.
ReductionBench bench_reduction(const std::vector<Shape>& shapes,
                               const std::vector<std::string>& strategies,
                               const ReductionBenchOptions& options);

// Why a strategy cannot reduce tensors of these shapes and options.dtype on options.devices, even
// on one, or over the processes of options.place; "" if it can. Plans it and runs nothing.
std::string reduction_refusal(const std::vector<Shape>& shapes, std::string_view strategy,
                              const ReductionBenchOptions& options);

// The most bytes of memory that bench_reduction() takes. Plans, and allocates nothing. Counts
// "auto" as collective. Throws what bench_reduction() throws before it allocates.
std::int64_t reduction_memory(const std::vector<Shape>& shapes,
                              const std::vector<std::string>& strategies,
                              const ReductionBenchOptions& options);

// 2 (K - 1) / K times bytes over seconds: the bandwidth of each link of a ring, as nccl-tests
// counts.
double bus_bandwidth(std::int64_t bytes, double seconds, int devices);

}  // namespace belfry
