#include "belfry/framework/run/variable_memory.h"

#include <utility>

#include "belfry/framework/base/require.h"

namespace belfry {

const VariableMemory::Entry* VariableMemory::find(const Node& variable) const {
  const auto found = entries_.find(&variable);
  return found == entries_.end() ? nullptr : &found->second;
}

const VariableMemory::Entry& VariableMemory::entry(const Node& variable) const {
  const Entry* const found = find(variable);
  require<InternalError>(found != nullptr, variable.describe(), " has no memory yet");
  return *found;
}

const MemoryBlock& VariableMemory::memory_of(const Node& variable) const {
  const Entry& kept = entry(variable);
  return kept.owner ? entry(*kept.owner).memory : kept.memory;
}

MemoryBlock VariableMemory::allocate(int device, std::int64_t bytes) const {
  return dry_run_ ? MemoryBlock() : MemoryBlock(devices_[at(device)]->memory, at(bytes));
}

VariableMemory::Entry VariableMemory::make_entry(const PlanNode& planned, const Plan& plan) const {
  const auto shared = plan.shares.find(planned.node);
  if (shared != plan.shares.end()) return {planned.device(), 0, {}, shared->second};
  const std::int64_t bytes = planned.types[0].bytes();
  return {planned.device(), bytes, allocate(planned.device(), bytes)};
}

std::vector<const Node*> VariableMemory::add(const Plan& plan) {
  std::vector<const Node*> fresh;
  try {
    for (const PlanNode& planned : plan.nodes) {
      if (!planned.is_variable() || find(*planned.node)) continue;
      fresh.push_back(planned.node);
      note(planned.node, entries_.emplace(planned.node, make_entry(planned, plan)).first->second);
    }
  } catch (...) {
    remove(fresh);
    throw;
  }
  return fresh;
}

void VariableMemory::remove(std::span<const Node* const> variables) {
  for (const Node* variable : variables) {
    const auto found = entries_.find(variable);
    if (found == entries_.end()) continue;
    forget(variable, found->second);
    entries_.erase(found);
  }
}

std::vector<const Node*> VariableMemory::sharers(const Node& variable) const {
  const Entry* const found = find(variable);
  if (!found) return {};
  if (parting_.contains(&variable)) return {&variable};
  const Node* const owner = found->owner ? found->owner : &variable;
  std::vector<const Node*> all{owner};
  if (const auto others = sharers_.find(owner); others != sharers_.end())
    all.insert(all.end(), others->second.begin(), others->second.end());
  return all;
}

void VariableMemory::note(const Node* variable, const Entry& entry) {
  if (entry.owner) sharers_[entry.owner].insert(variable);
}

void VariableMemory::forget(const Node* variable, const Entry& entry) {
  if (entry.owner) sharers_[entry.owner].erase(variable);
}

void VariableMemory::take_apart(const Node& variable) {
  const std::vector<const Node*> all = sharers(variable);
  parting_.insert(all.begin(), all.end());
}

VariableMemory::Entries VariableMemory::give_own_memory() {
  Entries before;
  try {
    for (const Node* variable : parting_) {
      Entry& kept = entries_.at(variable);
      if (!kept.owner) continue;
      const Entry& owner = entry(*kept.owner);
      Entry own{kept.device, owner.bytes, allocate(kept.device, owner.bytes)};
      if (!dry_run_) own.memory.store(owner.memory.data());
      forget(variable, kept);
      before.emplace(variable, std::exchange(kept, std::move(own)));
    }
  } catch (...) {
    take_back(before);
    throw;
  }
  return before;
}

void VariableMemory::take_back(Entries& before) {
  for (auto& [variable, kept] : before) {
    note(variable, kept);
    entries_.at(variable) = std::move(kept);
  }
}

}  // namespace belfry
