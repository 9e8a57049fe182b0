#include "belfry/framework/run/session_state.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/passes/placer.h"

namespace belfry {
namespace {

int worker_count(int asked) {
  require(asked >= 0 && asked <= 1024, "threads must be from 0 (one per usable core) to 1024, not ",
          asked);
  const int cores = usable_cores();
  // The sessions of a program mostly ask alike.
  if (asked > cores && first_time(cat(asked, " threads on ", cores, " cores")))
    log_warning(asked, " threads were asked for, but only ", cores,
                " cores can be used; the run may be slower");
  return asked == 0 ? cores : asked;
}

// A strand is one worker's, so more workers than CPU devices would have nothing to do.
int useful_threads(int threads, const std::vector<std::unique_ptr<Device>>& devices) {
  const auto cpus = std::ranges::count_if(devices, [](const auto& d) { return !d->on_gpu(); });
  return std::min(threads, static_cast<int>(cpus));
}

// Physical ones that are driven: a thread enqueues the work of each.
int count_gpus(const std::vector<std::unique_ptr<Device>>& devices) {
  std::set<int> gpus;
  for (const auto& device : devices)
    if (device->backend) gpus.insert(device->gpu);
  return static_cast<int>(gpus.size());
}

}  // namespace

Session::State::State(const Graph& g, SessionOptions o)
    : graph(g),
      options(std::move(o)),
      devices(make_devices(options)),
      threads(worker_count(options.threads)),
      pool(options.dry_run ? 1 : useful_threads(threads, devices),
           options.dry_run ? 0 : count_gpus(devices)),
      runtime{devices, pool, [this](const Node& node) { return memory_of(node).data(); }, {}} {
  runtime.workers = pool.workers() - count_gpus(devices);
  if (count_gpus(devices) > 0) runtime.gpus = std::make_unique<GpuStreams>(devices);
  runtime.dry = options.dry_run;
  runtime.all_workers = options.all_workers;
  require(options.nccl_timeout_s > 0, "nccl_timeout_s must be more than 0, not ",
          options.nccl_timeout_s);
  runtime.nccl_timeout = std::chrono::duration<double>(options.nccl_timeout_s);
  require(options.kept_steps >= 1, "kept_steps must be at least 1, not ", options.kept_steps);
  peak_bytes.resize(devices.size());
  require(options.gpu_spin_ms.value_or(0) >= 0, "gpu_spin_ms must not be less than 0, as ",
          options.gpu_spin_ms.value_or(0), " is");
  if (options.gpu_spin_ms)
    runtime.gpu_spin = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double, std::milli>(*options.gpu_spin_ms));
  if (options.log_device_placement) print(device_mapping(devices));
}

void Session::State::print(const std::string& lines) const {
  if (lines.empty()) return;
  log_debug(lines);
  if (options.placement_sink) return options.placement_sink(lines);
  std::fwrite(lines.data(), 1, lines.size(), stdout);
  std::fflush(stdout);
}

// Each node once, whichever plan is the first to hold it.
void Session::State::print_placement(const Plan& plan) {
  print(placement_lines(plan, devices, printed));
  for (const Assignment& assignment : plan.assignments) printed.insert(assignment.node);
}

Session::State::Stored& Session::State::stored(const Node& node) {
  const auto found = variables.find(&node);
  require<Internal>(found != variables.end(), node.describe(), " has no memory yet");
  return found->second;
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
  for (const auto& [node, kept] : variables) known.memory.emplace(node, kept.device);
  return placement_ = std::make_shared<const Placement>(graph, std::move(known));
}

PlanContext Session::State::context() {
  return {.devices = devices,
          .placement = placement(),
          .reference_kernels = options.reference_kernels,
          .fuse_updates = options.fuse_updates,
          .share_replicas = options.share_replicas,
          .sharers = [this](const Node& node) { return sharers(node); },
          .deterministic = options.deterministic,
          .capture = options.capture};
}

std::unique_ptr<Step::State> Session::State::build(std::span<const Fetch> fetches,
                                                   std::span<const FeedType> feeds,
                                                   bool log_placement, bool kept, Locks locks) {
  for (const Fetch& fetch : fetches) require_own(*fetch.node);
  try {
    Plan plan = compile_plan(fetches, feeds, locks);
    if (log_placement) print_placement(plan);
    if (log_enabled(LogLevel::kDebug)) log_debug(plan.str(devices));
    if (options.plan_hook) {
      options.plan_hook(plan);
      plan.commands = issue(plan, options.capture);  // of the launches as they are now
    }
    make_room(plan, kept);
    initialise(plan);
    return std::make_unique<Step::State>(std::move(plan), runtime);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(cat(fetches.empty() ? "a step" : fetches[0].node->describe(),
                          ": there was no memory left to compile the step that computes it; use "
                          "fewer devices, or allow this process more memory (ulimit -v)"));
  }
}

// By the plan, before anything is allocated.
void Session::State::make_room(const Plan& plan, bool kept) {
  for (;;) {
    const std::string text = lacking(plan, kept);
    if (text.empty()) return;
    // A run that uses a step ends without this thread's help.
    if (!drop_idle_step() && !await_idle_step()) throw OutOfMemory(text);
  }
}

// What the limits of devices do not allow, for people; empty if the plan fits.
std::string Session::State::lacking(const Plan& plan, bool kept) const {
  std::vector<DeviceUse> all = device_use();
  for (std::size_t d = 0; d < all.size(); ++d)
    all[d].bytes += plan.arena_bytes[d] + (kept ? plan.fetch_bytes[d] : 0);
  for (const PlanNode& planned : plan.nodes)
    if (planned.is_variable() && !variables.contains(planned.node) &&
        !plan.shares.contains(planned.node))
      all[static_cast<std::size_t>(planned.device())].bytes += planned.types[0].bytes();
  for (std::size_t d = 0; d < all.size(); ++d) {
    const std::int64_t limit = devices[d]->memory.limit();
    if (limit != 0 && all[d].bytes > limit)
      return cat(all[d].device, ": its plans need ", all[d].bytes, " bytes, of which ",
                 plan.arena_bytes[d], " for this one's arena",
                 kept && plan.fetch_bytes[d] > 0
                     ? cat(" and ", plan.fetch_bytes[d], " for its fetches")
                     : "",
                 ", but its limit is ", limit, "; use a smaller batch or more devices");
  }
  return {};
}

std::vector<DeviceUse> Session::State::device_use() const {
  std::vector<DeviceUse> use_of;
  for (const auto& device : devices)
    use_of.push_back({.device = device->spec,
                      .physical_gpu = device->backend ? device->gpu : device->memory_space - 1,
                      .declared = device->declared});
  for (const auto& [node, kept] : variables) {
    DeviceUse& use = use_of[static_cast<std::size_t>(kept.device)];
    ++use.variables;
    use.variable_bytes += kept.bytes;
    use.bytes += kept.bytes;
  }
  for (const auto& [key, prepared] : steps)
    for (std::size_t d = 0; d < use_of.size() && prepared.step; ++d) {
      const Plan& plan = *prepared.step->plan();
      use_of[d].bytes += plan.arena_bytes[d] + plan.fetch_bytes[d];
    }
  for (std::size_t d = 0; d < use_of.size(); ++d)
    use_of[d].peak_bytes = std::max(peak_bytes[d], use_of[d].bytes);
  return use_of;
}

void Session::State::note_peak() {
  const std::vector<DeviceUse> use_of = device_use();
  for (std::size_t d = 0; d < use_of.size(); ++d) peak_bytes[d] = use_of[d].peak_bytes;
}

// Gives the variables of a plan memory and a first value. A replica's is its original's.
void Session::State::initialise(const Plan& plan) {
  std::vector<const Node*> fresh;
  try {
    for (const PlanNode& planned : plan.nodes)
      if (planned.is_variable() && !variables.contains(planned.node)) {
        fresh.push_back(planned.node);
        const std::int64_t bytes = planned.types[0].bytes();
        const auto shared = plan.shares.find(planned.node);
        const Node* const owner = shared == plan.shares.end() ? nullptr : shared->second;
        Buffer memory;
        if (!options.dry_run && !owner)
          memory = Buffer(devices[static_cast<std::size_t>(planned.device())]->memory,
                          static_cast<std::size_t>(bytes));
        variables.emplace(planned.node,
                          Stored{planned.device(), owner ? 0 : bytes, std::move(memory), owner});
      }
    if (!options.dry_run)
      fill_in(fresh);
    else if (options.log_device_placement && !fresh.empty())
      print_placement(compile(initials_of(fresh), {}, context()));
  } catch (...) {  // what has no first value does not exist
    for (const Node* node : fresh) variables.erase(node);
    throw;
  }
  if (!fresh.empty()) note_peak();
  if (options.allow_soft_placement) warn_of_moved(fresh, *plan.placement);
}

// Of those that soft placement gave memory elsewhere than they asked for.
void Session::State::warn_of_moved(const std::vector<const Node*>& fresh,
                                   const Placement& placement) const {
  std::optional<Placer> placer;
  for (const Node* node : fresh) {
    const DeviceSpec& given = devices[at(variables.at(node).device)]->spec;
    if (node->device().matches(given)) continue;
    if (!placer) placer.emplace(graph, placement.context());
    log_warning(node->describe(), " asks for ", node->device(), ", but soft placement put it on ",
                given, ": ", placer->colocation().why_moved(node->id()));
  }
}

void Session::State::fill_in(const std::vector<const Node*>& fresh) {
  std::vector<const Node*> originals;
  for (const Node* node : fresh)
    if (!node->variable().copy_of) originals.push_back(node);
  const std::vector<Tensor> values = first_values(originals);
  for (const Node* node : fresh)
    if (Node* original = node->variable().copy_of) ensure(Variable(*original));
  const std::lock_guard no_run(runtime.mutex);  // a run may be writing what copies start from
  for (std::size_t i = 0; i < originals.size(); ++i) copy_into(*originals[i], values[i].raw());
  for (const Node* node : fresh)
    if (const Node* original = node->variable().copy_of; original && !stored(*node).owner)
      copy_into(*node, memory_of(*original).data());
}

// Those of copies are their originals'.
std::vector<Fetch> Session::State::initials_of(std::span<const Node* const> nodes) const {
  std::vector<Fetch> initials;
  for (const Node* node : nodes) initials.emplace_back(original_of(*node).variable().initial);
  return initials;
}

std::vector<Tensor> Session::State::first_values(std::span<const Node* const> nodes) {
  if (nodes.empty()) return {};
  const auto step = build(initials_of(nodes), {}, options.log_device_placement, /*kept=*/false);
  step->initial = true;
  step->run(step->stage({}), {});
  return step->fetched;
}

void Session::State::copy_into(const Node& variable, const std::byte* value) {
  stored(variable).memory.store(value);
}

Session::State::Stored& Session::State::ensure(Variable variable) {
  const Node& node = variable.node();
  require_own(node);
  if (options.dry_run) {
    const Fetch itself(variable.node());
    refuse_dry_run(compile({&itself, 1}, {}, context()), devices);
  }
  if (!variables.contains(&node)) {
    const Fetch itself(variable.node());
    initialise(compile({&itself, 1}, {}, context()));
  }
  return stored(node);
}

void Session::State::ensure_all(std::span<const VariableBytes> values) {
  if (options.dry_run && !values.empty()) ensure(values.front().variable);  // throws
  std::vector<Fetch> missing;
  for (const auto& [variable, bytes] : values)
    if (&variable.node().graph() == &graph && !variables.contains(&variable.node()))
      missing.emplace_back(variable.node());
  if (!missing.empty()) initialise(compile(missing, {}, context()));
}

}  // namespace belfry
