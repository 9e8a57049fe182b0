#include <algorithm>
#include <utility>

#include "belfry/framework/base/profiler_range.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/run/output_watch.h"
#include "belfry/framework/run/step_state.h"
#include "belfry/framework/trace/gpu_timers.h"
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

CompiledStep::State::State(Plan compiled, Runtime& owner, std::span<void* const> into)
    : runtime(owner),
      fetched(compiled.fetches.size()),
      results_(compiled.fetches.size()),
      locks_(compiled.locks) {
  if (!owner.dry) allocate_fetches(compiled, into);
  plan_ = std::make_shared<const Plan>(std::move(compiled));
  executor_ = link(plan_);
  if (executor_) staging_.link(executor_->linked, runtime);
}

void CompiledStep::State::allocate_fetches(const Plan& compiled, std::span<void* const> into) {
  for (const PlanNode& node : compiled.nodes) {
    if (node.fetch() < 0) continue;
    const std::size_t i = at(node.fetch());
    results_[i] = i < into.size() ? into[i] : nullptr;
    if (results_[i]) continue;
    fetched[i] = Tensor(node.types[0].shape, node.types[0].dtype);
    results_[i] = fetched[i].mutable_raw();
  }
}

CompiledStep::State::Executor::Executor(std::shared_ptr<const Plan> plan, State& step)
    : linked(std::move(plan), step.runtime, step.results_),
      run(*linked.plan, step.pool().gate()),
      gpus(gpus_of(*linked.plan).empty()
               ? nullptr
               : std::make_unique<GpuExecutor>(linked, run, step.runtime, step.staging_)),
      cpus(linked, run, step.runtime, gpus.get()),
      exchanger(step.runtime.processes ? Exchanger::make(linked, run, cpus, gpus.get()) : nullptr),
      body([this](int thread) { thread < linked.workers ? cpus.run(thread) : gpus->run(thread); }),
      activity(linked, cpus, gpus.get(), step.runtime.devices) {}

std::unique_ptr<CompiledStep::State::Executor> CompiledStep::State::link(
    std::shared_ptr<const Plan> compiled) {
  return runtime.dry ? nullptr : std::make_unique<Executor>(std::move(compiled), *this);
}

void CompiledStep::State::replace(std::shared_ptr<const Plan> compiled,
                                  std::unique_ptr<Executor> executor) {
  if (executor) {
    FeedStaging staging;
    staging.link(executor->linked, runtime);
    staging_.replace(staging);
  }
  executor_ = std::move(executor);
  const std::lock_guard lock(replacing_);
  plan_ = std::move(compiled);
}

std::shared_ptr<const Plan> CompiledStep::State::plan() const {
  const std::lock_guard lock(replacing_);
  return plan_;
}

StagedFeeds CompiledStep::State::stage(std::span<const Tensor> feeds, std::stop_token stop) {
  if (runtime.dry) refuse_dry_run(*plan(), runtime.devices);
  return staging_.stage(feeds, std::move(stop));
}

void CompiledStep::State::connect() {
  if (!executor_ || !executor_->gpus) return;
  const std::lock_guard lock(runtime.run_lock);
  make_connections();
}

void CompiledStep::State::run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options,
                              std::vector<Tensor>* results) {
  if (options.trace) *options.trace = Trace();
  const std::lock_guard one(running_);
  const auto execute_and_copy = [&] {
    execute(staged, feeds, options);
    if (!results) return;
    results->assign(fetched.begin(), fetched.end());
    for (Tensor& result : *results) result.mutable_raw();  // gets separate memory
  };
  if (runs_beside_others()) {
    const std::shared_lock lock(runtime.run_lock);
    execute_and_copy();
  } else {
    const std::lock_guard lock(runtime.run_lock);
    execute_and_copy();
  }
}

namespace {

void start_recording(const LinkedPlan& linked, const std::vector<std::unique_ptr<Device>>& devices,
                     RunState& run) {
  std::size_t parts = 0;
  for (const LinkedLaunch& launch : linked.linked_launches)
    if (launch.parts > 1) parts += at(launch.parts);
  Recording& recording = run.recording.emplace();
  recording.launches.resize(linked.plan->launches.size());
  for (const Launch& launch : linked.plan->launches)
    recording.shards.emplace_back(at(linked.plan->strands[launch.strand].shards - 1));
  recording.parts.resize(at(linked.workers));
  for (auto& of_worker : recording.parts) of_worker.reserve(parts);
  make_timers(*linked.plan, devices, recording);
  recording.zero = Recording::Clock::now();
}

Trace end_recording(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                    RunState& run) {
  read_timers(plan, devices, *run.recording);
  Trace trace(plan, devices, *run.recording);
  run.recording.reset();
  return trace;
}

}  // namespace

void CompiledStep::State::execute(const StagedFeeds& staged, std::span<const Tensor> feeds,
                                  RunOptions options) {
  static const RangeName kStep("step");
  const ProfilerRange range(kStep);
  auto& [linked, run, gpus, cpus, exchanger, body, activity] = *executor_;
  const bool writes = linked.plan->writes;
  if (!initial) check_intact();
  fetch_if_behind();
  keep_for_others();
  if (!runs_beside_others()) find_arenas();
  const ArenaGuard::Run guarded(*linked.guard);
  run.slot = staging_.begin(staged);
  set_feeds(feeds);
  run.recording.reset();
  make_connections();
  if (options.trace) start_recording(linked, runtime.devices, run);
  run.watch = options.watch;
  if (run.watch) run.watch->begin(linked.plan, runtime.devices);
  if (gpus && gpus->must_capture(options.trace || options.watch)) capture();
  // Parallel runs have different step numbers.
  const std::uint64_t step =
      runs_beside_others() && writes ? runtime.step.fetch_add(1) : runtime.step.load();
  run.step = initial ? 0 : step;
  run.begin();
  cpus.begin();
  if (exchanger) exchanger->begin();
  {
    const StepActivity::Run shown(activity);
    run_threads(body, exchanger.get());
  }
  staging_.end(run.slot);
  if (gpus) gpus->end();
  if (exchanger) ++runtime.elsewhere.runs;
  if (!linked.plan->gathered_first.empty()) {
    runtime.elsewhere.left_by = linked.plan;
    runtime.elsewhere.left_at = runtime.elsewhere.runs.load();
  }
  if (!runs_beside_others() && writes) ++runtime.step;
  if (options.trace) *options.trace = end_recording(*linked.plan, runtime.devices, run);
}

void CompiledStep::State::find_arenas() {
  runtime.arenas.restore();
  if (!executor_->linked.move_to(runtime.arenas)) return;
  if (executor_->exchanger) executor_->exchanger->forget_messages();
  if (executor_->gpus) executor_->gpus->forget_captures();
}

void CompiledStep::State::check_intact() {
  const std::lock_guard lock(runtime.failures);
  if (runtime.suspects.empty()) return;
  if (runs_beside_others() && runtime.cause) std::rethrow_exception(runtime.cause);
  throw InvalidArgument(
      "an earlier run failed after it had begun to write variables, or they await a restore, so "
      "their values are not those of any step; restore them with restore_checkpoint, "
      "Session::restore or Session::write before running again");
}

// Fetches variables that the run reads and that are newer in other processes. The run gathers some
// itself.
void CompiledStep::State::fetch_if_behind() {
  const NewerElsewhere& elsewhere = runtime.elsewhere;
  const Plan& plan = *executor_->linked.plan;
  if (!elsewhere.left_by || elsewhere.left_by.get() == &plan) return;
  std::vector<const Node*> read;
  for (const Node* variable : plan.variables)
    if (!plan.gathered_first.contains(variable)) read.push_back(variable);
  if (runtime.is_behind(read)) elsewhere.fetch();
}

// Keeps the old values of variables that the run writes without the other processes, because these
// may still ask for them.
void CompiledStep::State::keep_for_others() {
  const NewerElsewhere& elsewhere = runtime.elsewhere;
  const Plan& plan = *executor_->linked.plan;
  if (!elsewhere.left_at || !plan.writes || executor_->exchanger) return;
  for (const PlanNode& node : plan.nodes)
    for (int i = 0; i < node.writes(); ++i)
      elsewhere.keep(*plan.node(node.inputs[at(i)].node).node);
}

void CompiledStep::State::set_feeds(std::span<const Tensor> feeds) {
  const Plan& plan = *executor_->linked.plan;
  require(feeds.size() == plan.feeds.size(), "the step takes ", plan.feeds.size(), " feeds, not ",
          feeds.size());
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const bool staged = staging_.stages(i);
    if (!staged) check_feed(plan.feeds[i], feeds[i]);
    // The cast is safe: kernels do not write their inputs, but KernelPointers has one type for
    // inputs and outputs.
    void* const memory =
        staged ? staging_.address(i, executor_->run.slot) : const_cast<std::byte*>(feeds[i].raw());
    executor_->linked.set_feed(i, static_cast<std::byte*>(memory));
  }
}

void CompiledStep::State::make_connections() {
  auto& [linked, run, gpus, cpus, exchanger, body, activity] = *executor_;
  if (!gpus || !gpus->ranks()) return;
  const std::function<void(int thread)> connect = gpus->ranks()->begin();
  if (!connect) return;
  run.rebase();
  const bool by_ranks = exchanger && exchanger->by_ranks();
  if (by_ranks) exchanger->begin(false);
  const auto of_thread = [&](int thread) {
    if (thread >= linked.workers) gpus->connect(thread, connect);
  };
  run_threads(of_thread, by_ranks ? exchanger.get() : nullptr);
}

void CompiledStep::State::capture() {
  auto& [linked, run, gpus, cpus, exchanger, body, activity] = *executor_;
  run.rebase();
  const auto of_thread = [&](int thread) {
    if (thread >= linked.workers) gpus->capture(thread);
  };
  run_threads(of_thread, nullptr);
}

void CompiledStep::State::run_threads(const std::function<void(int)>& body, Exchanger* exchanger) {
  const LinkedPlan& linked = executor_->linked;
  if (exchanger) runtime.processes->begin(*exchanger);
  pool().run(linked.threads(), body, linked.spin, linked.workers);
  if (exchanger) {
    exchanger->end();
    runtime.processes->wait();
  }
  if (executor_->run.failed()) recover();  // no thread is inside the run
}

void CompiledStep::State::recover() {
  RunState& run = executor_->run;
  if (executor_->gpus) executor_->gpus->recover();
  const std::exception_ptr error = run.recover();
  if (run.has_written.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(runtime.failures);
    if (runtime.suspects.empty()) runtime.cause = runs_beside_others() ? error : nullptr;
    const Plan& plan = *executor_->linked.plan;
    if (!plan.gathered_first.empty())
      runtime.elsewhere.left_by = nullptr;  // the variables that it writes must be restored
    for (const PlanNode& node : plan.nodes)
      for (int i = 0; i < node.writes(); ++i)
        runtime.suspects.insert(plan.node(node.inputs[at(i)].node).node);
  }
  std::rethrow_exception(error);
}

CompiledStep::CompiledStep(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompiledStep::~CompiledStep() = default;

StagedFeeds CompiledStep::stage(std::span<const Tensor> feeds, std::stop_token stop) {
  return state_->stage(feeds, std::move(stop));
}
void CompiledStep::run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options) {
  state_->run(std::move(staged), feeds, options);
}
void CompiledStep::run(std::span<const Tensor> feeds, RunOptions options) {
  run(stage(feeds), feeds, options);
}
const Tensor& CompiledStep::fetched(std::size_t i) const { return state_->fetched[i]; }
std::shared_ptr<const Plan> CompiledStep::plan() const { return state_->plan(); }

}  // namespace belfry
