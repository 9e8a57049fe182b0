#include "belfry/framework/run/session.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <set>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/run/session_state.h"
#include "belfry/framework/trace/trace.h"

namespace belfry {
namespace {

int thread_count(int asked) {
  require(asked >= 0 && asked <= kMostThreads, "threads must be from 0 (one per usable core) to ",
          kMostThreads, ", not ", asked);
  const int cores = usable_cores();
  // Most sessions of a program request the same number, so it warns once.
  if (asked > cores && first_time_logged(cat(asked, " threads on ", cores, " cores")))
    log_warning(asked, " threads were asked for, but only ", cores,
                " cores can be used; the run may be slower");
  return asked == 0 ? cores : asked;
}

// More workers than there are shards on CPUs would have little to do, except beside a single shard,
// whose large launches they share (passes/schedule.cc).
int workers_of_pool(int threads, int shards, const std::vector<std::unique_ptr<Device>>& devices) {
  const auto cpus = std::ranges::count_if(devices, [](const auto& d) { return !d->on_gpu(); });
  const std::int64_t all = std::int64_t{cpus} * shards;
  const bool has_gpus = cpus < std::ssize(devices);
  return all == 1 && !has_gpus ? threads : static_cast<int>(std::min<std::int64_t>(threads, all));
}

// Physical GPUs that are driven: a thread enqueues the work of each.
int count_gpus(const std::vector<std::unique_ptr<Device>>& devices) {
  std::set<int> gpus;
  for (const auto& device : devices)
    if (device->backend) gpus.insert(device->gpu);
  return static_cast<int>(gpus.size());
}

// Prints the lines of SessionOptions::log_device_placement.
void show_lines(const std::string& lines, const SessionOptions& options) {
  if (lines.empty()) return;
  log_debug(lines);
  if (options.placement_sink) return options.placement_sink(lines);
  std::fwrite(lines.data(), 1, lines.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Session::State::State(const Graph& g, SessionOptions o)
    : graph(g),
      options(std::move(o)),
      devices(make_devices(options)),
      threads(thread_count(options.threads)),
      pool(options.dry_run ? 1 : workers_of_pool(threads, options.shards_per_device, devices),
           options.dry_run ? 0 : count_gpus(devices)),
      runtime{
          devices, pool, [this](const Node& node) { return variables.memory_of(node).data(); }, {}},
      variables(devices, options.dry_run),
      steps(options.kept_steps, runtime),
      use(devices, variables, steps),
      parts(graph, options, variables, runtime.elsewhere) {
  runtime.elsewhere.fetch = [this] { fetch_newer_parts(); };
  runtime.elsewhere.keep = [this](const Node& variable) { parts.keep(variable); };
  if (count_gpus(devices) > 0) runtime.gpus = std::make_unique<GpuStreams>(devices);
  runtime.dry = options.dry_run;
  runtime.processes = options.processes.get();
  runtime.all_workers = options.all_workers;
  require(options.stall_abort_seconds > 0, "stall_abort_seconds must be more than 0, not ",
          options.stall_abort_seconds);
  runtime.nccl_timeout = std::chrono::duration<double>(options.stall_abort_seconds);
  require(options.shards_per_device >= 1, "shards_per_device must be at least 1, not ",
          options.shards_per_device);
  require(options.kept_steps >= 1, "kept_steps must be at least 1, not ", options.kept_steps);
  require(options.gpu_spin_ms.value_or(0) >= 0, "gpu_spin_ms must not be less than 0, as ",
          options.gpu_spin_ms.value_or(0), " is");
  if (options.gpu_spin_ms)
    runtime.gpu_spin = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double, std::milli>(*options.gpu_spin_ms));
  if (options.log_device_placement) show_lines(device_mapping(devices), options);
}

// Prints each node once, in the first plan that has it.
void Session::State::print_placement(const Plan& plan) {
  show_lines(placement_lines(plan, devices, printed), options);
  for (const Assignment& assignment : plan.assignments) printed.insert(assignment.node);
}

void Session::State::require_own(const Node& node) const {
  require(&node.graph() == &graph, node.describe(),
          ": belongs to another graph than the session's");
}

const std::shared_ptr<const Placement>& Session::State::placement() {
  if (placement_ && placement_->current()) return placement_;
  PlacementContext known{.devices = devices,
                         .allow_soft_placement = options.allow_soft_placement,
                         .log_device_placement = options.log_device_placement};
  for (const auto& [node, kept] : variables.entries()) known.memory.emplace(node, kept.device);
  return placement_ = std::make_shared<const Placement>(graph, std::move(known));
}

PlanContext Session::State::context() {
  return {.devices = devices,
          .placement = placement(),
          .options = options,
          .sharers = [this](const Node& node) { return variables.sharers(node); }};
}

std::shared_ptr<CompiledStep> Session::State::step_for(std::span<const Fetch> fetches,
                                                       std::span<const FeedType> feeds,
                                                       const PrepareOptions& how, Holder holder) {
  require(!how.gathers_first || how.locks == LockDuration::kWholeRun,
          "a step that gathers first is alone in its session, so it cannot be of kEachVariable");
  if (std::shared_ptr<CompiledStep> kept = steps.find(fetches, feeds, how, holder)) return kept;
  if (holder == Holder::kNobody) steps.make_room();
  std::unique_ptr<CompiledStep::State> built =
      build(fetches, feeds, {.log_placement = options.log_device_placement, .prepared = how});
  built->connect();
  std::shared_ptr<CompiledStep> step(new CompiledStep(std::move(built)));
  steps.add(fetches, feeds, how, holder, step);
  use.note_peak();
  return step;
}

std::unique_ptr<CompiledStep::State> Session::State::build(std::span<const Fetch> fetches,
                                                           std::span<const FeedType> feeds,
                                                           const BuildOptions& how) {
  for (const Fetch& fetch : fetches) require_own(*fetch.node);
  try {
    Plan plan = compile_plan(fetches, feeds, how.prepared);
    if (how.log_placement) print_placement(plan);
    if (log_enabled(LogLevel::kDebug)) log_debug(plan.str(devices));
    if (options.plan_hook) {
      options.plan_hook(plan);
      plan.commands = issue(plan, options.capture);  // for the launches that the hook left
    }
    make_room(plan, how.counts_fetches);
    fit_arenas(plan);  // dropped steps make room for variables
    initialise(plan);
    if (how.runtime)
      how.runtime->arenas.resize(plan.arena_bytes);
    else
      fit_arenas(plan);  // again: first values had a separate plan
    return std::make_unique<CompiledStep::State>(std::move(plan),
                                                 how.runtime ? *how.runtime : runtime, how.into);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(fetches.empty() ? std::string("a step") : fetches[0].node->describe(),
                          ": there was no memory left to compile the step that computes it; use ",
                          options.shards_per_device > 1
                              ? "fewer shards, a smaller batch or fewer devices"
                              : "fewer devices",
                          ", or allow this process more memory (ulimit -v)"));
  }
}

Plan Session::State::compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                                  const PrepareOptions& how) {
  for (;;) {
    PlanContext compiling = context();
    compiling.locks = how.locks;
    compiling.gathers_first = how.gathers_first;
    compiling.options.fuse = compiling.options.fuse && how.fuse;
    Plan plan = compile(fetches, feeds, compiling);
    if (plan.unshare.empty()) return plan;
    for (const Node* variable : plan.unshare) unshare(*variable);
  }
}

// Decides from the plan, before anything is allocated.
void Session::State::make_room(const Plan& plan, bool counts_fetches) {
  for (;;) {
    const std::string text = use.lacking(plan, counts_fetches);
    if (text.empty()) return;
    // A run that uses a step ends without this thread's help. The last step in use may become idle
    // between the first two calls.
    if (!steps.drop_idle() && !steps.await_idle() && !steps.drop_idle()) throw OutOfMemory(text);
  }
}

// Makes arenas large enough for the kept steps and this plan.
void Session::State::fit_arenas(const Plan& plan) {
  const Plan* const more[] = {&plan};
  const std::vector<std::int64_t> bytes = use.arena_bytes(more);
  if (options.dry_run || runtime.arenas.have(bytes)) return;  // so most calls wait for no run
  const std::lock_guard no_run(runtime.run_lock);
  runtime.arenas.resize(bytes);
}

Session::Session(const Graph& graph, SessionOptions options)
    : state_(std::make_unique<State>(graph, std::move(options))) {}

Session::~Session() = default;

CompiledStep& Session::prepare(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                               PrepareOptions options) {
  const std::lock_guard lock(state_->mutex);
  return *state_->step_for(fetches, feeds, options, Holder::kUser);
}

std::vector<Tensor> Session::run(std::span<const Fetch> fetches, std::span<const FeedValue> feeds,
                                 RunOptions options) {
  if (options.trace) *options.trace = Trace();
  std::vector<FeedType> types;
  std::vector<Tensor> values;
  for (const FeedValue& feed : feeds) {
    types.push_back({feed.where, feed.what.shape()});
    values.push_back(feed.what);
  }
  std::vector<Tensor> results;
  const std::shared_ptr<CompiledStep> used = [&] {
    const std::lock_guard lock(state_->mutex);
    return state_->step_for(fetches, types, {}, Holder::kNobody);
  }();
  CompiledStep::State& step = *used->state_;
  step.run(step.stage(values), values, options, &results);
  return results;
}

std::vector<Tensor> Session::run(std::initializer_list<Fetch> fetches,
                                 std::initializer_list<FeedValue> feeds, RunOptions options) {
  return run(std::span(fetches.begin(), fetches.size()), std::span(feeds.begin(), feeds.size()),
             options);
}

std::vector<Tensor> Session::run(std::span<const Output> fetches,
                                 std::initializer_list<FeedValue> feeds, RunOptions options) {
  const std::vector<Fetch> all(fetches.begin(), fetches.end());
  return run(all, feeds, options);
}

std::vector<Tensor> Session::run(std::span<const Fetch> fetches,
                                 std::initializer_list<FeedValue> feeds, RunOptions options) {
  return run(fetches, std::span(feeds.begin(), feeds.size()), options);
}

Tensor Session::run(Output fetch, std::span<const FeedValue> feeds) {
  const Fetch wanted(fetch);
  return run({&wanted, 1}, feeds).front();
}

}  // namespace belfry
