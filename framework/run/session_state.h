// The state of a session: devices, variables, compiled steps. Its sources are
// session.cc, session_variables.cc, session_sharing.cc and variable_parts.cc.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/core_ops/cuts.h"
#include "belfry/framework/passes/compile.h"
#include "belfry/framework/placement/placement.h"
#include "belfry/framework/run/kept_steps.h"
#include "belfry/framework/run/memory_use.h"
#include "belfry/framework/run/step_state.h"
#include "belfry/framework/run/variable_memory.h"

namespace belfry {

// The bytes of a whole tensor that this process holds: all of them for a variable without parts.
std::span<const std::byte> own_bytes(Variable variable, std::span<const std::byte> whole);

// The variables of which each process holds a part, or the newest value of a part
// (variable_parts.cc). While it lives, other processes can read the parts of this one.
class SharedParts {
 public:
  SharedParts(const Graph& graph, const SessionOptions& options, const VariableMemory& variables,
              const NewerElsewhere& elsewhere)
      : graph_(graph), options_(options), variables_(variables), elsewhere_(elsewhere) {}
  ~SharedParts();
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;

  // Call it after variables have received memory.
  void publish();
  // The whole variable, from this part and those of other processes.
  Tensor whole_of(Variable variable, const Tensor& own) const;
  // Fetches to a variable's memory the values that AssignGathered `gathered` would write there.
  void update(const Node& variable, const Node& gathered) const;
  // Call it before this process alone writes the variable. Other processes still get the values of
  // the last run. The run lock is held.
  void keep(const Node& variable) const;

 private:
  void publish(const Node& variable, std::uint64_t place, std::size_t first, std::size_t bytes);
  // None if the variable is not published.
  std::optional<std::uint64_t> key_of(const Node& variable) const;
  // Fetches the parts of other processes, and leaves that of this process unchanged.
  void fetch(const Node& variable, const Cuts& cuts, Tensor& whole) const;

  const Graph& graph_;
  const SessionOptions& options_;
  const VariableMemory& variables_;
  const NewerElsewhere& elsewhere_;
  // The keys under which parts of variables are published. Each is unique among all sessions.
  std::map<const Node*, std::uint64_t> keys_;
  mutable std::mutex keys_mutex_;        // a run may look while a step is prepared
  std::optional<std::uint64_t> number_;  // of the session, among those that publish
};

struct Session::State {
  State(const Graph& g, SessionOptions o);

  // Throws InvalidArgument for nodes of other graphs.
  void require_own(const Node& node) const;

  // The current placement of the graph. Throws InvalidArgument if the graph has open nodes.
  const std::shared_ptr<const Placement>& placement();
  PlanContext context();

  // The kept step for these arguments. Makes it if there is none.
  std::shared_ptr<CompiledStep> step_for(std::span<const Fetch> fetches,
                                         std::span<const FeedType> feeds, const PrepareOptions& how,
                                         Holder holder);
  struct BuildOptions {
    bool log_placement = false;
    bool counts_fetches = true;  // for the limits of devices
    PrepareOptions prepared = {};
    Runtime* runtime = nullptr;        // runs the step; null: the session's
    std::span<void* const> into = {};  // as in CompiledStep::State
  };
  // Compiles. Gives new variables memory and first values.
  std::unique_ptr<CompiledStep::State> build(std::span<const Fetch> fetches,
                                             std::span<const FeedType> feeds,
                                             const BuildOptions& how);

  // Gives memory and a first value to a variable, if no plan has done so yet. Throws in a dry run.
  void ensure(Variable variable);
  // The same for all at once, because a plan for each would take long.
  void ensure_all(std::span<const VariableBytes> values);
  // Copies have the first values of their originals. `into`: as in CompiledStep::State. Values that
  // go there leave empty tensors.
  std::vector<Tensor> first_values(std::span<const Node* const> variables,
                                   std::span<void* const> into = {});

  // Calls f with the memory of a variable, or of the part that this process holds.
  void with_memory(Variable variable, const std::function<void(const MemoryBlock&)>& f);
  Tensor read_own(Variable variable);
  // Fetches parts of variables that are newer in other processes. The run lock is held.
  void fetch_newer_parts();

  // Gives each variable in the storage of this one its own, with the same value, and recompiles the
  // steps. Does nothing if nobody shares the storage. Throws OutOfMemory, and changes nothing,
  // beyond the limit of a device.
  void unshare(const Node& variable);
  // Unshares variables whose sharers will not all have the same bytes.
  void unshare_unequal(const std::map<const Node*, std::span<const std::byte>>& values);

  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  int threads;  // requested
  WorkerPool pool;
  Runtime runtime;
  VariableMemory variables;
  KeptSteps steps;
  MemoryUse use;
  SharedParts parts;              // ends before the memory of variables
  std::set<const Node*> printed;  // by log_device_placement
  std::mutex mutex;               // guards variables and steps

 private:
  class Apart;

  // Unshares variables that cannot share storage in the plan.
  Plan compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                    const PrepareOptions& how);
  void make_room(const Plan& plan, bool counts_fetches);
  void fit_arenas(const Plan& plan);
  void initialise(const Plan& plan);
  void fill_in(std::span<const Node* const> fresh);
  void expect_restore(std::span<const Node* const> fresh);
  std::vector<void*> memory_to_fill(std::span<const Node* const> originals) const;
  void print_placement(const Plan& plan);

  std::shared_ptr<const Placement> placement_;
};

}  // namespace belfry
