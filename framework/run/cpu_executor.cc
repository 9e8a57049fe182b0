#include "belfry/framework/run/cpu_executor.h"

#include <algorithm>
#include <new>

#include "belfry/framework/run/gpu_executor.h"

namespace belfry {

CpuExecutor::CpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                         GpuExecutor* gpus)
    : linked_(linked),
      run_(run),
      gpus_(gpus),
      locks_(linked, runtime),
      shared_(at(linked.workers)) {}

void CpuExecutor::run(int worker) {
  try {
    check_floating_point_mode();
    if (!follow(linked_.programs[at(worker)].commands, worker)) run_.poison();
  } catch (...) {
    locks_.release_all();
    run_.fail();
  }
  if (linked_.opens) help_others(worker);
}

// False if another thread failed.
bool CpuExecutor::follow(const std::vector<Command>& commands, int worker) {
  for (const Command& command : commands) {
    switch (command.kind) {
      case Command::Kind::kLaunch:
        if (run_.failed()) return false;
        run_launch(command.launch, worker);
        break;
      case Command::Kind::kSignal: run_.signal(command.strand, command.position); break;
      default:
        if (!await(command, worker)) return false;
    }
  }
  return true;
}

bool CpuExecutor::await(const Command& command, int worker) {
  const auto help_one = [&] { return help(worker); };
  if (command.kind == Command::Kind::kWaitStamp)
    return gpus_->await(command.strand, command.position, help_one);
  run_.await(command.strand, command.position, help_one);
  return true;
}

void CpuExecutor::run_launch(LaunchIndex launch, int worker) {
  const Plan& plan = *linked_.plan;
  if (plan.node(plan.launches[launch].node).writes() > 0)
    run_.has_written.store(true, std::memory_order_relaxed);
  linked_.guard->before(launch);
  locks_.hold(launch);
  if (run_.recording) run_.recording->launches[launch].start = run_.recording->now();
  if (linked_.launches[launch].parts > 1 && linked_.workers > 1)
    run_shared(launch, worker);
  else
    call(launch, plan.launches[launch].range);
  if (run_.recording) run_.recording->launches[launch].end = run_.recording->now();
  locks_.release(launch);
  linked_.guard->after(launch);
}

void CpuExecutor::call(LaunchIndex launch, Range range) const {
  const LinkedLaunch& linked = linked_.launches[launch];
  try {
    linked.launch->run(linked.pointers(range, run_.step));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(linked_.node_of(launch).describe(),
                          ": there was no memory left for what it needs while it runs; use a "
                          "smaller batch, or allow this process more memory (ulimit -v)"));
  }
}

// Opens the launch to the others, takes parts like them, and waits for theirs.
void CpuExecutor::run_shared(LaunchIndex launch, int worker) {
  SharedLaunch& shared = shared_[at(worker)];
  const std::int64_t parts = linked_.launches[launch].parts;
  const Ticket ticket = shared.ticket.load(std::memory_order_relaxed).opened();
  shared.done.store(0, std::memory_order_relaxed);
  shared.launch.store(launch.value(), std::memory_order_relaxed);
  shared.ticket.store(ticket, std::memory_order_seq_cst);  // see Gate::sleepers()
  run_.gate().wake();
  while (take_part(shared, Ticket::End::kFront)) {
  }
  wait_until([&] { return shared.done.load(std::memory_order_seq_cst) == parts; }, run_.gate(),
             [&] { return help(worker); });
  // Before the next opening sets the launch: a ticket read now must not fit it.
  shared.ticket.store(ticket.closed(), std::memory_order_release);
}

bool CpuExecutor::take_part(SharedLaunch& shared, Ticket::End end,
                            std::vector<Recording::Part>* helped) {
  Ticket ticket = shared.ticket.load(std::memory_order_seq_cst);  // see Gate::sleepers()
  LaunchIndex index;
  do {
    index = LaunchIndex(shared.launch.load(std::memory_order_relaxed));
    if (!index || !ticket.open(linked_.launches[index].parts)) return false;
  } while (!shared.ticket.compare_exchange_weak(
      ticket, ticket.taken(end), std::memory_order_acq_rel, std::memory_order_acquire));
  const std::int64_t parts = linked_.launches[index].parts;
  const Launch& launch = *linked_.launches[index].launch;
  const std::int64_t begin = launch.range.begin + ticket.next(end, parts) * launch.part;
  const Range range{begin, std::min(begin + launch.part, launch.range.end)};
  const std::int64_t start = helped ? run_.recording->now() : 0;
  try {
    call(index, range);
  } catch (...) {
    run_.fail();  // and count the part, for which the owner waits
  }
  if (helped) helped->push_back({index, range, {start, run_.recording->now()}});
  if (shared.done.fetch_add(1, std::memory_order_seq_cst) + 1 == parts) run_.gate().wake();
  return true;
}

bool CpuExecutor::help(int worker) {
  auto* const helped = run_.recording ? &run_.recording->parts[at(worker)] : nullptr;
  for (std::size_t other = 0; other < shared_.size(); ++other)
    if (static_cast<int>(other) != worker && take_part(shared_[other], Ticket::End::kBack, helped))
      return true;
  return false;
}

// Until every worker has followed its commands.
void CpuExecutor::help_others(int worker) {
  if (busy_.fetch_sub(1, std::memory_order_seq_cst) == 1) return run_.gate().wake();
  wait_until([&] { return busy_.load(std::memory_order_seq_cst) == 0; }, run_.gate(),
             [&] { return help(worker); });
}

}  // namespace belfry
