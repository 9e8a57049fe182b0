#include "belfry/framework/run/step.h"

#include <algorithm>
#include <new>
#include <utility>

#include "belfry/framework/trace/trace.h"

namespace belfry {

void refuse_dry_run(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices) {
  int used = plan.nodes[0].device();
  for (const Assignment& assignment : plan.assignments)
    if (devices[at(assignment.device)]->declared && !devices[at(used)]->declared)
      used = assignment.device;
  throw InvalidArgument(cat("this session is a dry run, so nothing runs on ",
                            devices[at(used)]->spec,
                            devices[at(used)]->declared ? ", which is only declared" : "",
                            "; prepare() plans, and a session without dry_run runs"));
}

StagedFeeds Step::State::stage(std::span<const Tensor> feeds, std::stop_token stop) {
  if (runner.dry) refuse_dry_run(plan, runner.devices);
  return staging_.stage(feeds, std::move(stop));
}

void Step::State::run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options,
                      std::vector<Tensor>* results) {
  if (options.trace) *options.trace = Trace();
  const std::lock_guard one(running_);
  const auto execute_and_copy = [&] {
    execute(staged, feeds, options);
    if (!results) return;
    results->assign(fetched.begin(), fetched.end());
    for (Tensor& result : *results) result.mutable_raw();  // memory of its own
  };
  if (shares()) {
    const std::shared_lock lock(runner.mutex);
    execute_and_copy();
  } else {
    const std::lock_guard lock(runner.mutex);
    execute_and_copy();
  }
}

void Step::State::execute(const StagedFeeds& staged, std::span<const Tensor> feeds,
                          RunOptions options) {
  if (!initial) check_intact();
  slot_ = staging_.begin(staged);
  set_feeds(feeds);
  recording_.reset();
  make_connections();
  if (options.trace) start_recording();
  has_written_.store(false, std::memory_order_relaxed);
  replaying_ = warm && !options.trace && !gpu_segments.tasks.empty();
  if (replaying_ && !captured[at(slot_)]) capture();
  for (std::size_t l = 0; l < signals.size(); ++l) bases[l] = launched(l);
  ++runs;
  busy_.store(workers, std::memory_order_relaxed);
  // Runs beside each other have different steps.
  step_ = shares() && plan.writes ? runner.step.fetch_add(1) : runner.step.load();
  pool().run(static_cast<int>(lists.size()), work_, spin);
  if (failed_.load(std::memory_order_acquire)) recover();
  staging_.end(slot_);
  warm = true;
  if (!shares() && plan.writes) ++runner.step;
  if (!options.trace) return;
  read_timers();
  *options.trace = Trace(plan, runner.devices, *recording_);
  recording_.reset();
}

void Step::State::check_intact() {
  const std::lock_guard lock(runner.failures);
  if (runner.suspects.empty()) return;
  if (shares() && runner.cause) std::rethrow_exception(runner.cause);
  throw InvalidArgument(
      "an earlier run failed after it had begun to write variables, so their values are not "
      "those of any step; restore them with restore_checkpoint, Session::restore or Session::write "
      "before running again");
}

void Step::State::start_recording() {
  std::size_t chunks = 0;
  for (const Task& task : tasks)
    if (task.parts > 1) chunks += at(task.parts);
  recording_.emplace();
  recording_->launches.resize(tasks.size());
  recording_->chunks.resize(at(workers));
  for (auto& of_worker : recording_->chunks) of_worker.reserve(chunks);
  make_timers();
  recording_->zero = Recording::Clock::now();
}

void Step::State::set_feeds(std::span<const Tensor> feeds) {
  require(feeds.size() == plan.feeds.size(), "the step takes ", plan.feeds.size(), " feeds, not ",
          feeds.size());
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const bool staged = staging_.stages(i);
    if (!staged) check_feed(plan.feeds[i], feeds[i]);
    // Kernels do not write their inputs; Pointers carry inputs and outputs alike.
    void* const memory =
        staged ? staging_.address(i, slot_) : const_cast<std::byte*>(feeds[i].raw());
    for (void** address : feed_uses[i]) *address = memory;
  }
}

void Step::State::run_list(int worker) {
  if (worker >= workers) return enqueue_list(worker);
  try {
    check_floating_point_mode();
    bool going = true;
    for (const int t : lists[at(worker)].tasks)
      if (!(going = run_task(at(t), worker))) break;
    if (!going) poison();
  } catch (...) {
    release_variables();
    fail();
  }
  if (opens) help_others(worker);
}

// Until every worker has finished its list.
void Step::State::help_others(int worker) {
  Gate& gate = pool().gate();
  if (busy_.fetch_sub(1, std::memory_order_seq_cst) == 1) return gate.wake();
  wait_until([&] { return busy_.load(std::memory_order_seq_cst) == 0; }, gate,
             [&] { return help(worker); });
}

// False if another worker failed.
bool Step::State::run_task(std::size_t t, int worker) {
  const Task& task = tasks[t];
  const Launch& launch = *task.launch;
  for (const Wait& wait : task.waits) {
    const auto lane = at(wait.lane);
    await(signals[lane], bases[lane] + wait.position + 1, pool().gate(),
          [&] { return help(worker); });
  }
  for (const Wait& wait : task.stamps)
    if (!await_stamp(at(wait.lane), bases[at(wait.lane)] + wait.position + 1, worker)) return false;
  if (failed_.load(std::memory_order_acquire)) return false;
  if (plan.node(launch.node).writes() > 0) has_written_.store(true, std::memory_order_relaxed);
  run_launch(t, worker);
  const auto lane = at(launch.lane);
  if (task.signals) signals[lane].set(bases[lane] + launch.position + 1, pool().gate());
  return true;
}

void Step::State::run_launch(std::size_t t, int worker) {
  const Task& task = tasks[t];
  guard->before(t);
  if (!task.locks.empty()) hold_variables(task);
  if (recording_) recording_->launches[t].start = recording_->now();
  if (worker != kAlone && task.parts > 1 && workers > 1)
    run_shared(task, worker);
  else
    call(task, task.launch->range);
  if (recording_) recording_->launches[t].end = recording_->now();
  if (!task.locks.empty() && !task.keeps_locks) release_variables();
  guard->after(t);
}

void Step::State::call(const Task& task, Range range) const {
  const std::uint64_t step = initial ? 0 : step_;
  try {
    task.launch->run(Pointers(task.inputs, task.outputs, task.workspace, range, step));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(plan.node(task.launch->node).node->describe(),
                          ": there was no memory left for what it needs while it runs; use a "
                          "smaller batch, or allow this process more memory (ulimit -v)"));
  }
}

// Opens the launch to the others, takes chunks like them, and waits for theirs.
void Step::State::run_shared(const Task& task, int worker) {
  Share& share = lists[at(worker)].share;
  const Ticket ticket = share.ticket.load(std::memory_order_relaxed).opened();
  share.done.store(0, std::memory_order_relaxed);
  share.task.store(&task, std::memory_order_relaxed);
  share.ticket.store(ticket, std::memory_order_seq_cst);  // see Gate::sleepers()
  pool().gate().wake();
  while (take_chunk(share, Ticket::End::kFront)) {
  }
  wait_until([&] { return share.done.load(std::memory_order_seq_cst) == task.parts; },
             pool().gate(), [&] { return help(worker); });
  // Before the next opening sets the task: a ticket read now must not fit it.
  share.ticket.store(ticket.closed(), std::memory_order_release);
}

// Runs one chunk of a shared launch; false if none is left.
bool Step::State::take_chunk(Share& share, Ticket::End end, std::vector<Recording::Chunk>* helped) {
  Ticket ticket = share.ticket.load(std::memory_order_seq_cst);  // see Gate::sleepers()
  const Task* task;
  do {
    task = share.task.load(std::memory_order_relaxed);
    if (!task || !ticket.open(task->parts)) return false;
  } while (!share.ticket.compare_exchange_weak(ticket, ticket.taken(end), std::memory_order_acq_rel,
                                               std::memory_order_acquire));
  const Launch& launch = *task->launch;
  const std::int64_t begin = launch.range.begin + ticket.next(end, task->parts) * launch.chunk;
  const Range range{begin, std::min(begin + launch.chunk, launch.range.end)};
  const std::int64_t start = helped ? recording_->now() : 0;
  try {
    call(*task, range);
  } catch (...) {
    fail();  // and count the chunk, for which the owner waits
  }
  if (helped)
    helped->push_back({static_cast<int>(task - tasks.data()), range, {start, recording_->now()}});
  if (share.done.fetch_add(1, std::memory_order_seq_cst) + 1 == task->parts) pool().gate().wake();
  return true;
}

bool Step::State::help(int worker) {
  auto* const helped = recording_ ? &recording_->chunks[at(worker)] : nullptr;
  for (std::size_t other = 0; other < lists.size(); ++other)
    if (static_cast<int>(other) != worker &&
        take_chunk(lists[other].share, Ticket::End::kBack, helped))
      return true;
  return false;
}

void Step::State::fail() noexcept {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  failed_.store(true, std::memory_order_release);
  poison();
}

// Each worker that stops early does this last, so that no later signal of its own hides the poison.
void Step::State::poison() {
  for (Signal& signal : signals) signal.set(Signal::kPoison, pool().gate());
}

// All workers are parked. Signals start afresh, so that the next run can wait on them.
void Step::State::recover() {
  drain_gpus();
  for (std::size_t l = 0; l < signals.size(); ++l) signals[l].set(launched(l), pool().gate());
  failed_.store(false, std::memory_order_relaxed);
  const std::exception_ptr error = std::exchange(error_, nullptr);
  if (has_written_.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(runner.failures);
    if (runner.suspects.empty()) runner.cause = shares() ? error : nullptr;
    for (const PlanNode& node : plan.nodes) suspect(node);
  }
  std::rethrow_exception(error);
}

// What it writes. Call it with runner.failures.
void Step::State::suspect(const PlanNode& writer) {
  for (int i = 0; i < writer.writes(); ++i)
    runner.suspects.insert(plan.node(writer.inputs[at(i)].node).node);
}

Step::Step(std::unique_ptr<State> state) : state_(std::move(state)) {}
Step::~Step() = default;

StagedFeeds Step::stage(std::span<const Tensor> feeds, std::stop_token stop) {
  return state_->stage(feeds, std::move(stop));
}
void Step::run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options) {
  state_->run(std::move(staged), feeds, options);
}
void Step::run(std::span<const Tensor> feeds, RunOptions options) {
  run(stage(feeds), feeds, options);
}
const Tensor& Step::fetched(std::size_t i) const { return state_->fetched[i]; }
const Plan& Step::plan() const { return state_->plan; }

}  // namespace belfry
