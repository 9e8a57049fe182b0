// The first values of a session's variables.
#include <optional>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/placement/placer.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {
namespace {

// Copies have the first values of their originals.
std::vector<Fetch> initials_of(std::span<const Node* const> nodes) {
  std::vector<Fetch> initials;
  for (const Node* node : nodes) initials.emplace_back(original_of(*node).variable().initial);
  return initials;
}

// With fewer bytes, first values are not worth separate threads.
constexpr std::int64_t kWorthThreads = 4 << 20;

std::int64_t bytes_of(std::span<const Node* const> variables) {
  std::int64_t bytes = 0;
  for (const Node* node : variables) bytes += node->output_type(0).bytes();
  return bytes;
}

// All cores compute first values, even if the steps of the session cannot use them all.
struct StartCrew {
  StartCrew(const std::vector<std::unique_ptr<Device>>& devices, int threads,
            const std::function<void*(const Node&)>& memory)
      : pool(threads), runtime{devices, pool, memory, {}} {}

  WorkerPool pool;
  Runtime runtime;
};

// Warns of variables that soft placement put elsewhere than requested.
void warn_of_moved(std::span<const Node* const> fresh, const VariableMemory& variables,
                   const Placement& placement) {
  const PlacementContext& context = placement.context();
  std::optional<Placer> placer;
  for (const Node* node : fresh) {
    const DeviceSpec& given = context.device(variables.find(*node)->device).spec;
    if (node->device().matches(given)) continue;
    if (!placer) placer.emplace(placement.graph(), context);
    log_warning(node->describe(), " asks for ", node->device(), ", but soft placement put it on ",
                given, ": ", placer->colocation().why_moved(node->id()));
  }
}

}  // namespace

// Gives the variables of a plan memory and a first value. A replica gets the value of its original.
void Session::State::initialise(const Plan& plan) {
  const std::vector<const Node*> fresh = variables.add(plan);
  try {
    if (!options.dry_run && !options.awaits_restore)
      fill_in(fresh);
    else if (options.log_device_placement && !fresh.empty())
      print_placement(compile(initials_of(fresh), {}, context()));
    if (options.awaits_restore) expect_restore(fresh);
  } catch (...) {  // a variable without first value must not exist
    variables.remove(fresh);
    throw;
  }
  parts.publish();
  if (!fresh.empty()) use.note_peak();
  if (options.allow_soft_placement) warn_of_moved(fresh, variables, *plan.placement);
}

// As after a run that has failed while it wrote them.
void Session::State::expect_restore(std::span<const Node* const> fresh) {
  const std::lock_guard no_run(runtime.run_lock);
  runtime.suspects.insert(fresh.begin(), fresh.end());
}

void Session::State::fill_in(std::span<const Node* const> fresh) {
  std::vector<const Node*> originals;
  for (const Node* node : fresh)
    if (!node->variable().copy_of) originals.push_back(node);
  const std::vector<void*> into = memory_to_fill(originals);
  const std::vector<Tensor> values = first_values(originals, into);
  for (const Node* node : fresh)
    if (Node* original = node->variable().copy_of) ensure(Variable(*original));
  const std::lock_guard no_run(runtime.run_lock);  // a run may be writing the originals of copies
  fetch_newer_parts();
  for (std::size_t i = 0; i < originals.size(); ++i)
    if (!into[i]) variables.memory_of(*originals[i]).store(values[i].raw());
  for (const Node* node : fresh)
    if (const Node* original = node->variable().copy_of; original && !variables.find(*node)->owner)
      variables.memory_of(*node).store(variables.memory_of(*original).data());
}

// Null for variables without their own host memory. Nobody looks at this memory before it is
// filled.
std::vector<void*> Session::State::memory_to_fill(std::span<const Node* const> originals) const {
  std::vector<void*> into;
  for (const Node* node : originals) {
    const VariableMemory::Entry& kept = *variables.find(*node);
    into.push_back(!kept.owner && kept.memory.on_host() ? kept.memory.data() : nullptr);
  }
  return into;
}

std::vector<Tensor> Session::State::first_values(std::span<const Node* const> nodes,
                                                 std::span<void* const> into) {
  if (nodes.empty()) return {};
  BuildOptions how{
      .log_placement = options.log_device_placement, .counts_fetches = false, .into = into};
  std::optional<StartCrew> crew;
  if (!runtime.gpus && threads > pool.workers() && bytes_of(nodes) >= kWorthThreads)
    how.runtime = &crew.emplace(devices, threads, runtime.variable_memory).runtime;
  const auto step = build(initials_of(nodes), {}, how);
  step->initial = true;
  std::unique_lock no_run(runtime.run_lock, std::defer_lock);
  if (crew) no_run.lock();  // otherwise the step locks it
  step->run(step->stage({}), {});
  return step->fetched;
}

void Session::State::with_memory(Variable variable,
                                 const std::function<void(const MemoryBlock&)>& f) {
  const std::lock_guard lock(mutex);
  ensure(variable);
  const Node* const node = &variable.node();
  require(!options.awaits_restore, node->describe(), ": has no value before the first restore()");
  const MemoryBlock& memory = variables.memory_of(*node);
  const std::lock_guard no_run(runtime.run_lock);
  if (runtime.is_behind({&node, 1})) fetch_newer_parts();
  f(memory);
}

Tensor Session::State::read_own(Variable variable) {
  Tensor value(variable.shape(), variable.dtype());
  with_memory(variable, [&](const MemoryBlock& memory) { memory.load(value.mutable_raw()); });
  return value;
}

void Session::State::ensure(Variable variable) {
  require_own(variable.node());
  const Fetch itself(variable.node());
  if (options.dry_run) refuse_dry_run(compile({&itself, 1}, {}, context()), devices);
  if (!variables.find(variable.node())) initialise(compile({&itself, 1}, {}, context()));
}

void Session::State::ensure_all(std::span<const VariableBytes> values) {
  if (options.dry_run && !values.empty()) ensure(values.front().variable);  // throws
  std::vector<Fetch> missing;
  for (const auto& [variable, bytes] : values)
    if (&variable.node().graph() == &graph && !variables.find(variable.node()))
      missing.emplace_back(variable.node());
  if (!missing.empty()) initialise(compile(missing, {}, context()));
}

}  // namespace belfry
