// Unshares replicas: each gets its own storage, and the steps are recompiled.
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "belfry/framework/run/session_state.h"

namespace belfry {

// A variable, and those that are separated with it. While this object lives, they count as
// separate.
class Session::State::Apart {
 public:
  Apart(State& session, const Node& variable) : session_(session) {
    session_.variables.take_apart(variable);
  }
  ~Apart() { session_.variables.end_parting(); }
  Apart(const Apart&) = delete;
  Apart& operator=(const Apart&) = delete;

  void compile_steps();
  // Gives memory to the variables, then replaces the plans of the steps. Changes nothing if it
  // throws.
  void finish();

 private:
  Plan compile_again(const KeptSteps::Entry& kept) const;
  void fit_arenas();

  State& session_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;  // by the keys of KeptSteps
};

void Session::State::unshare(const Node& variable) {
  if (variables.sharers(variable).size() < 2) return;
  const std::lock_guard no_run(runtime.run_lock);
  fetch_newer_parts();  // the plan that left them says what shares storage
  Apart apart(*this, variable);
  apart.compile_steps();
  apart.finish();
}

namespace {

bool equal_values(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  return a.empty() || a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

// A checkpoint has one value for a variable and all of its copies.
void Session::State::unshare_unequal(
    const std::map<const Node*, std::span<const std::byte>>& values) {
  for (const auto& [node, bytes] : values)
    for (const Node* other : variables.sharers(*node)) {
      const auto found = values.find(other);
      if (found == values.end() || !equal_values(found->second, bytes)) {
        unshare(*node);
        break;
      }
    }
}

Plan Session::State::Apart::compile_again(const KeptSteps::Entry& kept) const {
  PlanContext compiling = session_.context();
  const std::shared_ptr<const Plan> plan = kept.step->plan();
  compiling.placement = plan->placement;  // the graph may have grown
  compiling.locks = plan->locks;
  compiling.gathers_first = plan->gathers_first;
  compiling.options.fuse = plan->fuse;
  return compile(kept.fetches, kept.feeds, compiling);
}

// Other variables that were equal because of these are separated as well.
void Session::State::Apart::compile_steps() {
  const KeptSteps::Entries& steps = session_.steps.entries();
  for (auto entry = steps.begin(); entry != steps.end();) {
    Plan plan = compile_again(entry->second);
    if (plan.unshare.empty()) {
      plans_.insert_or_assign(entry->first, std::make_shared<const Plan>(std::move(plan)));
      ++entry;
      continue;
    }
    for (const Node* other : plan.unshare) session_.variables.take_apart(*other);
    entry = steps.begin();
  }
}

// Makes arenas large enough for the old plans, which stay if this fails, and the new ones.
void Session::State::Apart::fit_arenas() {
  std::vector<const Plan*> more;
  for (const auto& [key, plan] : plans_) more.push_back(plan.get());
  session_.runtime.arenas.resize(session_.use.arena_bytes(more));
}

void Session::State::Apart::finish() {
  VariableMemory::Entries before = session_.variables.give_own_memory();
  const auto step = [&](const std::string& key) -> CompiledStep::State& {
    return *session_.steps.entries().at(key).step->state_;
  };
  std::map<std::string, std::unique_ptr<CompiledStep::State::Executor>> executors;
  try {
    if (!session_.options.dry_run) fit_arenas();
    for (const auto& [key, plan] : plans_) executors.emplace(key, step(key).link(plan));
  } catch (...) {
    session_.variables.take_back(before);
    throw;
  }
  std::set<const Node*>& suspects = session_.runtime.suspects;
  for (const auto& [node, kept] : before)
    if (suspects.contains(kept.owner)) suspects.insert(node);
  for (auto& [key, executor] : executors) step(key).replace(plans_.at(key), std::move(executor));
  session_.parts.publish();
}

}  // namespace belfry
