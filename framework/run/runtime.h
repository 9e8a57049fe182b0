// The state that the steps of a session share.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/run_lock.h"
#include "belfry/framework/run/shared_arenas.h"
#include "belfry/framework/run/workers.h"

namespace belfry {

class GpuExecutor;
class Processes;

// Variables with newer parts in other processes.
struct NewerElsewhere {
  // The plan of the last run with PlanGraph::gathered_first, which left them; null: there are none.
  std::shared_ptr<const Plan> left_by = {};
  std::function<void()> fetch = {};  // makes all of them up to date
  // Call it before this process alone writes a variable: other processes may not have fetched its
  // part yet.
  std::function<void(const Node& variable)> keep = {};
  std::atomic<std::uint64_t> runs = 0;        // how many runs the processes have made together
  std::optional<std::uint64_t> left_at = {};  // `runs` after the last plan that left newer parts
};

// The parts of a session that its steps borrow.
struct Runtime {
  const std::vector<std::unique_ptr<Device>>& devices;
  WorkerPool& pool;  // its workers, and a thread that enqueues for each physical GPU
  std::function<void*(const Node&)> variable_memory;
  RunLock run_lock;                     // shared by runs of LockDuration::kEachVariable
  SharedArenas arenas{devices};         // of all other runs
  std::atomic<std::uint64_t> step = 0;  // runs that wrote variables
  // Variables that a failed run may have written, until each is restored; and the error of that
  // run.
  std::set<const Node*> suspects;
  std::exception_ptr cause;
  std::mutex failures;  // over the two above, between runs that share `run_lock`
  // One lock per memory of a variable. A step of LockDuration::kEachVariable takes its locks in the
  // order of the map.
  std::map<const void*, std::mutex> variable_locks;
  bool dry = false;                        // nothing has memory, and nothing runs
  bool all_workers = false;                // they all run, even for little work
  std::unique_ptr<GpuStreams> gpus = {};   // if GPUs are driven
  std::set<GpuExecutor*> with_ranks = {};  // their segments may refer to communicators
  Processes* processes = nullptr;          // null in a run of one process
  NewerElsewhere elsewhere = {};           // guarded by `run_lock`
  std::chrono::duration<double> nccl_timeout{600};
  std::optional<std::chrono::nanoseconds> gpu_spin = {};  // SessionOptions::gpu_spin_ms

  // Whether other processes have a newer value of a part of any of these variables.
  bool is_behind(std::span<const Node* const> variables) const;
};

}  // namespace belfry
