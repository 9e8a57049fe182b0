// Replicas in one storage: what a session knows of them, and how it takes them apart.
#include <algorithm>
#include <utility>

#include "belfry/framework/run/session_state.h"

namespace belfry {

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

Plan Session::State::compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                                  Locks locks) {
  for (;;) {
    PlanContext compiling = context();
    compiling.locks = locks;
    Plan plan = compile(fetches, feeds, compiling);
    if (plan.unshare.empty()) return plan;
    for (const Node* variable : plan.unshare) unshare(*variable);
  }
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
