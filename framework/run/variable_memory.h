// The memory of a session's variables. Replicas may share one storage until they are separated.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

class VariableMemory {
 public:
  struct Entry {
    int device;
    std::int64_t bytes;           // 0 if it is in the memory of another
    MemoryBlock memory;           // empty in a dry run, and if it is in the memory of another
    const Node* owner = nullptr;  // the variable whose memory it is in; null: its own
  };
  using Entries = std::map<const Node*, Entry>;

  // In a dry run variables have entries, but no memory.
  VariableMemory(const std::vector<std::unique_ptr<Device>>& devices, bool dry_run)
      : devices_(devices), dry_run_(dry_run) {}

  const Entries& entries() const { return entries_; }
  // Null if the variable has no entry.
  const Entry* find(const Node& variable) const;
  // The memory of its value.
  const MemoryBlock& memory_of(const Node& variable) const;

  // Gives entries to the variables of a plan that have none, and returns them. Their memory holds
  // no value yet. Changes nothing if it throws.
  std::vector<const Node*> add(const Plan& plan);
  void remove(std::span<const Node* const> variables);

  // The variables that share the storage of this one, the owner first; empty if it has no memory.
  std::vector<const Node*> sharers(const Node& variable) const;
  // The variables that share storage with this one count as separate until end_parting().
  void take_apart(const Node& variable);
  // Gives each such variable its own memory, with its value. Returns their old entries. Throws
  // OutOfMemory, and changes nothing, beyond the limit of a device.
  Entries give_own_memory();
  void take_back(Entries& before);
  void end_parting() { parting_.clear(); }

 private:
  const Entry& entry(const Node& variable) const;
  void note(const Node* variable, const Entry& entry);
  void forget(const Node* variable, const Entry& entry);
  Entry make_entry(const PlanNode& planned, const Plan& plan) const;
  MemoryBlock allocate(int device, std::int64_t bytes) const;

  const std::vector<std::unique_ptr<Device>>& devices_;
  const bool dry_run_;
  Entries entries_;
  std::map<const Node*, std::set<const Node*>> sharers_;  // by owner, who is not listed
  std::set<const Node*> parting_;
};

}  // namespace belfry
