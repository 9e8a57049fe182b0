#include "belfry/framework/run/cpu_executor.h"

#include <algorithm>

#include "belfry/framework/run/failed_launch.h"
#include "belfry/framework/run/gpu_executor.h"
#include "belfry/framework/run/output_watch.h"

namespace belfry {
namespace {

using Kind = Command::Kind;

}  // namespace

CpuExecutor::CpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime,
                         GpuExecutor* gpus)
    : linked_(linked),
      run_(run),
      runtime_(runtime),
      gpus_(gpus),
      locks_(linked, runtime),
      cores_(linked.workers),
      shared_(at(linked.workers)),
      progress_(linked.routes.size()),
      order_(at(linked.workers)) {
  for (int worker = 0; worker < linked.workers; ++worker) {
    const auto own = [&](std::size_t r) { return linked.routes[r].worker == worker; };
    std::vector<std::size_t>& order = order_[at(worker)];
    for (std::size_t r = 0; r < progress_.size(); ++r)
      if (own(r)) order.push_back(r);
    for (std::size_t r = progress_.size(); r-- > 0;)
      if (!own(r)) order.push_back(r);
  }
}

void CpuExecutor::begin() {
  for (Progress& progress : progress_) {
    progress.claimed.store(false, std::memory_order_relaxed);
    progress.next.store(0, std::memory_order_relaxed);
  }
  unfinished_.store(progress_.size(), std::memory_order_relaxed);
}

void CpuExecutor::run(int worker) {
  try {
    check_floating_point_mode();
    cores_.enter(worker);
    try_until(
        worker, [&] { return finished(); }, [&] { return follow_one(worker) || help(worker); },
        linked_.spin);
    cores_.leave(worker);
  } catch (...) {
    run_.fail();
  }
  if (run_.failed()) run_.poison();
}

template <class Done, class Attempt>
void CpuExecutor::try_until(int worker, const Done& done, const Attempt& attempt,
                            std::chrono::nanoseconds spin) {
  SpinTimer timer(spin);
  while (!done()) {
    if (attempt()) {
      timer.restart();
    } else if (!timer.expired()) {
      continue;
    } else if (stamp_is_awaited()) {
      gpus_->nap();
    } else {
      cores_.swap(worker);
      cores_.leave(worker);
      run_.gate().sleep([&] { return done() || attempt(); });
      if (!done()) cores_.spread(worker);
    }
  }
}

bool CpuExecutor::follow_one(int worker) {
  for (const std::size_t route : order_[at(worker)]) {
    if (!claim(route)) continue;
    try {
      follow(route, worker);
    } catch (...) {
      locks_.release_all();
      run_.fail();  // the route stays claimed, so that nobody resumes it
    }
    return true;
  }
  return false;
}

LaunchIndex CpuExecutor::running() const {
  LaunchIndex first;
  for (std::size_t route = 0; route < progress_.size(); ++route) {
    const Command* const command = next(route);
    if (!command || command->kind != Kind::kLaunch ||
        !progress_[route].claimed.load(std::memory_order_relaxed))
      continue;
    if (!first || command->launch < first) first = command->launch;
  }
  return first;
}

CpuExecutor::Place CpuExecutor::place(std::size_t route) const {
  return {next(route), progress_[route].claimed.load(std::memory_order_relaxed)};
}

std::int64_t CpuExecutor::parts_done() const {
  std::int64_t done = 0;
  for (const SharedLaunch& shared : shared_) done += shared.done.load(std::memory_order_relaxed);
  return done;
}

const Command* CpuExecutor::next(std::size_t route) const {
  const std::vector<Command>& commands = linked_.routes[route].commands;
  const std::size_t next = progress_[route].next.load(std::memory_order_relaxed);
  return next == commands.size() ? nullptr : &commands[next];
}

bool CpuExecutor::claim(std::size_t route) {
  Progress& progress = progress_[route];
  if (progress.claimed.load(std::memory_order_seq_cst)) return false;  // see release()
  const Command* const command = next(route);
  return command && is_over(*command, run_, gpus_) &&
         !progress.claimed.exchange(true, std::memory_order_acquire);
}

// The signal that the route waits for may have arrived since this worker looked. Another worker
// that looked in between found the route claimed, and may sleep.
void CpuExecutor::release(std::size_t route) {
  progress_[route].claimed.store(false, std::memory_order_seq_cst);
  const Command* const command = next(route);
  if (command && is_over(*command, run_, gpus_)) run_.gate().wake();
}

void CpuExecutor::follow(std::size_t route, int worker) {
  std::atomic<std::size_t>& place = progress_[route].next;
  const std::vector<Command>& commands = linked_.routes[route].commands;
  for (std::size_t i = place.load(std::memory_order_relaxed); i < commands.size();
       place.store(++i, std::memory_order_relaxed)) {
    if (run_.failed()) return;
    if (!is_over(commands[i], run_, gpus_)) return release(route);
    act(commands[i], linked_.routes[route].shard, worker);
  }
  if (unfinished_.fetch_sub(1, std::memory_order_seq_cst) == 1) run_.gate().wake();
}

void CpuExecutor::act(const Command& command, int shard, int worker) {
  switch (command.kind) {
    case Kind::kWait:
    case Kind::kWaitStamp: break;  // is over
    case Kind::kLaunch: run_launch(command.launch, shard, worker); break;
    case Kind::kSignal: run_.signal(command.strand, command.position, shard); break;
    case Kind::kWake: run_.messages().ring(); break;
    case Kind::kExpect:
    case Kind::kWaitEvent:
    case Kind::kWaitFeeds:
    case Kind::kSetStep:
    case Kind::kRecord:
    case Kind::kStamp:
    case Kind::kBeginSegment:
    case Kind::kEndSegment: break;  // only GPUs have these
  }
}

bool CpuExecutor::stamp_is_awaited() const {
  if (!gpus_) return false;
  for (std::size_t route = 0; route < progress_.size(); ++route) {
    const Command* const command = next(route);
    if (command && command->kind == Kind::kWaitStamp) return true;
  }
  return false;
}

void CpuExecutor::run_launch(LaunchIndex launch, int shard, int worker) {
  cores_.note(worker);
  const LinkedLaunch& of_shard = linked_.launch(launch, shard);
  if (of_shard.writes) run_.has_written.store(true, std::memory_order_relaxed);
  linked_.guard->before(launch, shard);
  locks_.hold(launch);
  Recording* const recording = run_.recording ? &*run_.recording : nullptr;
  if (recording) recording->of(launch, shard).start = recording->now();
  if (of_shard.parts > 1 && linked_.workers > 1)
    run_shared(launch, worker);
  else
    call(of_shard, of_shard.range);
  if (recording) recording->of(launch, shard).end = recording->now();
  if (run_.watch) run_.watch->look_at(launch, shard, of_shard.outputs);
  locks_.release(launch);
  linked_.guard->after(launch, shard);
}

void CpuExecutor::call(const LinkedLaunch& linked, WorkRange range) const {
  try {
    (*linked.run)(linked.pointers(range, run_.step));
  } catch (...) {
    const PlanNode& node = linked_.plan->node(linked.launch->node);
    rethrow_with_launch(*node.node, runtime_.devices[at(node.device())]->spec);
  }
}

// Opens the launch to other workers, takes parts of it as they do, and waits for their parts.
void CpuExecutor::run_shared(LaunchIndex launch, int worker) {
  SharedLaunch& shared = shared_[at(worker)];
  const std::int64_t parts = linked_.launch(launch).parts;
  const Ticket ticket = shared.ticket.load(std::memory_order_relaxed).opened();
  shared.done.store(0, std::memory_order_relaxed);
  // A worker that reads this launch finds the previous one's ticket closed, and cannot take a part
  // with it.
  shared.launch.store(launch.value(), std::memory_order_release);
  shared.ticket.store(ticket, std::memory_order_seq_cst);  // see Gate
  run_.gate().wake();
  while (take_part(shared, Ticket::End::kFront)) {
  }
  try_until(
      worker, [&] { return shared.done.load(std::memory_order_seq_cst) == parts; },
      [&] { return help(worker); }, kShortSpin);
  shared.ticket.store(ticket.closed(), std::memory_order_relaxed);
}

bool CpuExecutor::take_part(SharedLaunch& shared, Ticket::End end,
                            std::vector<Recording::Part>* helped) {
  Ticket ticket = shared.ticket.load(std::memory_order_seq_cst);  // see Gate
  LaunchIndex index;
  do {
    index = LaunchIndex(shared.launch.load(std::memory_order_acquire));
    if (!index || !ticket.has_part(linked_.launch(index).parts)) return false;
  } while (!shared.ticket.compare_exchange_weak(
      ticket, ticket.taken(end), std::memory_order_acq_rel, std::memory_order_acquire));
  const LinkedLaunch& linked = linked_.launch(index);
  const std::int64_t parts = linked.parts;
  const std::int64_t size = linked.launch->part_size;
  const std::int64_t begin = linked.range.begin + ticket.next(end, parts) * size;
  const WorkRange range{begin, std::min(begin + size, linked.range.end)};
  const std::int64_t start = helped ? run_.recording->now() : 0;
  try {
    call(linked, range);
  } catch (...) {
    run_.fail();  // and count the part below, for which the owner waits
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

}  // namespace belfry
