// What a session holds: devices, the values of variables, compiled steps. Its sources are
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

// Of the bytes of a whole tensor, those that this process holds: all of a variable without parts.
std::span<const std::byte> own_bytes(Variable variable, std::span<const std::byte> whole);

// The variables of a session of which each process holds a part, or the newest value of a part
// (variable_parts.cc). Lets other processes read the parts of this one, as long as it lives.
class SharedParts {
 public:
  SharedParts(const Graph& graph, const SessionOptions& options, const VariableMemory& variables,
              const NewerElsewhere& elsewhere)
      : graph_(graph), options_(options), variables_(variables), elsewhere_(elsewhere) {}
  ~SharedParts();
  SharedParts(const SharedParts&) = delete;
  SharedParts& operator=(const SharedParts&) = delete;

  // After variables have got memory.
  void publish();
  // The tensor that this part of a variable and those of other processes make up.
  Tensor whole_of(Variable variable, const Tensor& own) const;
  // Fetches to the memory of a variable what an AssignGathered would write to it.
  void update(const Node& variable, const Node& gathered) const;
  // Before this process alone writes any variable: the others still get what the last run has left
  // of it. The run lock is held.
  void keep(const Node& variable) const;

 private:
  void publish(const Node& variable, std::uint64_t place, std::size_t first, std::size_t bytes);
  // None if it is not published.
  std::optional<std::uint64_t> key_of(const Node& variable) const;
  // Leaves the part of this process alone.
  void fetch(const Node& variable, const Cuts& cuts, Tensor& whole) const;

  const Graph& graph_;
  const SessionOptions& options_;
  const VariableMemory& variables_;
  const NewerElsewhere& elsewhere_;
  // Under which the parts of variables are published: no other variable, of any session, has one.
  std::map<const Node*, std::uint64_t> keys_;
  mutable std::mutex keys_mutex_;        // a run may look while a step is prepared
  std::optional<std::uint64_t> number_;  // of the session, among those that publish
};

struct Session::State {
  State(const Graph& g, SessionOptions o);

  // Throws InvalidArgument for nodes of other graphs.
  void require_own(const Node& node) const;

  // Of the graph as it is now. Throws InvalidArgument if nodes of it are open.
  const std::shared_ptr<const Placement>& placement();
  PlanContext context();

  // The step for these; makes it if it is not kept.
  std::shared_ptr<CompiledStep> step_for(std::span<const Fetch> fetches,
                                         std::span<const FeedType> feeds, const PrepareOptions& how,
                                         Holder holder);
  struct BuildOptions {
    bool log_placement = false;
    bool counts_fetches = true;  // for the limits of devices
    PrepareOptions prepared = {};
    Runtime* runtime = nullptr;        // that runs it; null: the session's
    std::span<void* const> into = {};  // CompiledStep::State
  };
  // Compiles, and gives variables that are new memory and first values.
  std::unique_ptr<CompiledStep::State> build(std::span<const Fetch> fetches,
                                             std::span<const FeedType> feeds,
                                             const BuildOptions& how);

  // Gives memory to a variable that no plan may have touched yet, and its first value. Throws in a
  // dry run.
  void ensure(Variable variable);
  // All at once, as a plan for each would take long.
  void ensure_all(std::span<const VariableBytes> values);
  // The values of copies are those of their originals. `into`: as CompiledStep::State's; the
  // tensors of what is put there are empty.
  std::vector<Tensor> first_values(std::span<const Node* const> variables,
                                   std::span<void* const> into = {});

  // What this process holds of a variable.
  Tensor read_own(Variable variable);
  // Fetches what other processes have newer values of. The run lock is held.
  void fetch_newer_parts();

  // Gives all that share the variable's storage their own, with the same value, and compiles the
  // steps again. Nothing if nobody shares it. Throws OutOfMemory, and changes nothing, beyond the
  // limit of a device.
  void unshare(const Node& variable);
  // A variable gets its own storage if its sharers shall not all hold the same bytes.
  void unshare_unequal(const std::map<const Node*, std::span<const std::byte>>& values);

  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  int threads;  // asked for
  WorkerPool pool;
  Runtime runtime;
  VariableMemory variables;
  KeptSteps steps;
  MemoryUse use;
  SharedParts parts;              // ends before the memory of variables
  std::set<const Node*> printed;  // by log_device_placement
  std::mutex mutex;               // over variables and steps

 private:
  class Apart;

  // Takes variables apart that cannot share storage in the plan.
  Plan compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                    const PrepareOptions& how);
  void make_room(const Plan& plan, bool counts_fetches);
  void fit_arenas(const Plan& plan);
  void initialise(const Plan& plan);
  void fill_in(std::span<const Node* const> fresh);
  std::vector<void*> memory_to_fill(std::span<const Node* const> originals) const;
  void print_placement(const Plan& plan);

  std::shared_ptr<const Placement> placement_;
};

}  // namespace belfry
