// The variables of a session: their memory and first values, and replicas in one storage, which a
// write takes apart.
#include <algorithm>
#include <optional>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/passes/placer.h"
#include "belfry/framework/run/session_state.h"

namespace belfry {

Session::State::Stored& Session::State::stored(const Node& node) {
  const auto found = variables.find(&node);
  require<Internal>(found != variables.end(), node.describe(), " has no memory yet");
  return found->second;
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

const Buffer& Session::State::memory_of(const Node& node) {
  const Stored& kept = stored(node);
  return kept.owner ? stored(*kept.owner).memory : kept.memory;
}

std::vector<const Node*> Session::State::sharers(const Node& node) const {
  const auto found = variables.find(&node);
  if (found == variables.end()) return {};
  if (parting_.contains(&node)) return {&node};
  const Node* const owner = found->second.owner ? found->second.owner : &node;
  std::vector<const Node*> all{owner};
  for (const auto& [other, kept] : variables)
    if (kept.owner == owner) all.push_back(other);
  return all;
}

void Session::State::unshare(const Node& variable) {
  if (sharers(variable).size() < 2) return;
  const std::lock_guard no_run(runtime.mutex);
  CompiledPlans compiled;
  try {
    part(variable);
    compiled = compile_apart();
    give_own_memory(compiled);
  } catch (...) {
    parting_.clear();
    throw;
  }
  parting_.clear();
}

void Session::State::unshare_unequal(
    const std::map<const Node*, std::span<const std::byte>>& values) {
  for (const auto& [node, bytes] : values)
    for (const Node* other : sharers(*node)) {
      const auto found = values.find(other);
      if (found == values.end() || !std::ranges::equal(found->second, bytes)) {
        unshare(*node);
        break;
      }
    }
}

void Session::State::part(const Node& variable) {
  const std::vector<const Node*> all = sharers(variable);
  parting_.insert(all.begin(), all.end());
}

// The compiled of all steps. Others that were equal because of the variables that part do so too.
Session::State::CompiledPlans Session::State::compile_apart() {
  CompiledPlans compiled;
  for (auto entry = steps.begin(); entry != steps.end();) {
    const Prepared& prepared = entry->second;
    if (!prepared.step) {  // it is being made
      ++entry;
      continue;
    }
    PlanContext compiling = context();
    compiling.placement = prepared.step->plan()->placement;  // the graph may have grown
    compiling.locks = prepared.step->plan()->locks;
    Plan plan = compile(prepared.fetches, prepared.feeds, compiling);
    if (plan.unshare.empty()) {
      compiled.insert_or_assign(entry->first, std::make_shared<const Plan>(std::move(plan)));
      ++entry;
      continue;
    }
    for (const Node* other : plan.unshare) part(*other);
    entry = steps.begin();
  }
  return compiled;
}

// Changes nothing if it throws.
void Session::State::give_own_memory(CompiledPlans& compiled) {
  std::map<const Node*, Stored> before;
  std::map<std::string, std::unique_ptr<Step::State::Executor>> executors;
  try {
    for (const Node* node : parting_) {
      Stored& kept = stored(*node);
      if (!kept.owner) continue;
      const Stored& owner = stored(*kept.owner);
      Stored own{kept.device, owner.bytes, {}};
      if (!options.dry_run) {
        own.memory = Buffer(devices[static_cast<std::size_t>(kept.device)]->memory,
                            static_cast<std::size_t>(owner.bytes));
        own.memory.store(owner.memory.data());
      }
      before.emplace(node, std::exchange(kept, std::move(own)));
    }
    for (auto& [key, plan] : compiled)
      executors.emplace(key, steps.at(key).step->state_->link(plan));
  } catch (...) {
    for (auto& [node, kept] : before) stored(*node) = std::move(kept);
    throw;
  }
  for (const auto& [node, kept] : before)
    if (runtime.suspects.contains(kept.owner)) runtime.suspects.insert(node);
  for (auto& [key, executor] : executors)
    steps.at(key).step->state_->replace(compiled.at(key), std::move(executor));
}

}  // namespace belfry
