// Times aggregation strategies against each other and against the memory: what allreduce_bench
// prints.
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
  // Several that reduce together, each with `devices`; null: this one alone. A dry run of one of so
  // many takes `place` instead.
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
  // A strategy that cannot serve these towers or this type is listed with its reason; otherwise it
  // throws what the strategy throws.
  bool list_refused = false;
  // What "auto" chooses by, among the strategies of the replicated trainer; borrowed, may be null.
  // Also predicts what is timed, if it is measured here.
  const MachineDescription* machine = nullptr;
  bool auto_any = false;  // "auto" may take strategies that are not canonical
  // Where it shows how far it is, whenever that is due; borrowed, may be null.
  Console* console = nullptr;

  // Of all processes.
  int towers() const { return static_cast<int>(devices.size()) * place.size; }
};

struct ReductionTiming {
  double seconds = 0;                 // of a reduction: the median step over options.aggregate; of
                                      // several processes that of the slowest
  std::optional<double> predicted;    // seconds, on options.machine
  std::optional<std::int64_t> wrong;  // elements on all towers, if checked
};

struct ReductionResult {
  std::string strategy;          // as asked for
  std::string resolved;          // what "auto" chose; else the same
  std::string reason;            // of that choice: lines
  bool canonical = false;        // for this number of towers
  std::string refusal;           // then nothing was timed
  ReductionTiming in_place;      // every tower's buffer gets the sum
  ReductionTiming out_of_place;  // sums in memory of their own; towers may share it
};

struct ReductionBench {
  std::int64_t elements = 0, bytes = 0;  // per tower
  // In the slowest process: of scaling the same buffers in place on the same threads, in the faster
  // of two ways (ByteLimit); on GPUs, of copying them within the memory of each.
  double limit_seconds = 0;
  std::vector<ReductionResult> results;  // in the order asked for
};

// Reduces tensors of these shapes, one set per tower, by CompiledStep::run. In place is
// assign(v[t], sum[t]) for variables on the towers' devices, out of place the sums for their effect
// alone. Strategies in place and out of place, and the limit, take turns (Interleaved). Throws what
// strategies and sessions throw. Several processes call it together; each returns the results of
// all.
ReductionBench bench_reduction(const std::vector<Shape>& shapes,
                               const std::vector<std::string>& strategies,
                               const ReductionBenchOptions& options);

// Why a strategy cannot reduce tensors of these shapes and options.dtype on options.devices, or
// over processes as options.place says, at one device, too; "" if it can. Plans it and runs
// nothing.
std::string reduction_refusal(const std::vector<Shape>& shapes, std::string_view strategy,
                              const ReductionBenchOptions& options);

// Bytes of memory that bench_reduction() takes at most: planned, nothing is given any. Counts
// "auto" as collective. Throws what bench_reduction() throws before it allocates.
std::int64_t reduction_memory(const std::vector<Shape>& shapes,
                              const std::vector<std::string>& strategies,
                              const ReductionBenchOptions& options);

// 2 (K - 1) / K times bytes over seconds: what each link of a ring carries, as nccl-tests counts.
double bus_bandwidth(std::int64_t bytes, double seconds, int devices);

}  // namespace belfry
