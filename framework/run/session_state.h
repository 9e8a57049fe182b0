// What a session holds: devices, the values of variables, compiled steps. For session.cc.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/passes/compile.h"
#include "belfry/framework/passes/placement.h"
#include "belfry/framework/run/step_state.h"

namespace belfry {

struct Session::State {
  struct Stored {
    int device;
    std::int64_t bytes;
    Buffer memory;                // empty in a dry run, and for those that lie in another's
    const Node* owner = nullptr;  // whose memory this variable lies in; null: its own
  };

  struct Prepared {
    std::vector<Fetch> fetches;
    std::vector<FeedType> feeds;
    std::shared_ptr<Step> step;  // null while it is made; who runs it has a share
    bool held = false;           // by the user: prepare() has returned it
    std::int64_t used = 0;       // the number of uses() when it was wanted last
  };

  State(const Graph& g, SessionOptions o);

  // Throws InvalidArgument for nodes of other graphs.
  void require_own(const Node& node) const;

  // Of the graph as it is now. Throws InvalidArgument if nodes of it are open.
  const std::shared_ptr<const Placement>& placement();
  PlanContext context();

  // The step for these; makes it if it is not kept. `held`: keeps it until the session ends.
  std::shared_ptr<Step> step_for(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
                                 Locks locks, bool held);
  // Compiles, and gives variables that are new memory and first values. Fetches of what is kept
  // count for the limits of devices.
  std::unique_ptr<Step::State> build(std::span<const Fetch> fetches,
                                     std::span<const FeedType> feeds, bool log_placement, bool kept,
                                     Locks locks = Locks::kWholeRun);

  Stored& stored(const Node& variable);
  // Where its value is.
  const Buffer& memory_of(const Node& variable);
  // Those in one storage with a variable, the owner first; empty if it has no memory.
  std::vector<const Node*> sharers(const Node& variable) const;
  // Gives all that share the variable's storage their own, with the same value, and compiles the
  // steps again. Nothing if nobody shares it. Throws OutOfMemory, and changes nothing, beyond the
  // limit of a device.
  void unshare(const Node& variable);
  // Memory of a variable that no plan may have touched yet. Throws in a dry run.
  Stored& ensure(Variable variable);
  // All at once, as a plan for each would take long.
  void ensure_all(std::span<const VariableBytes> values);
  // The values of copies are those of their originals.
  std::vector<Tensor> first_values(std::span<const Node* const> variables);

  // A variable gets its own storage if its sharers shall not all hold the same bytes.
  void unshare_unequal(const std::map<const Node*, std::span<const std::byte>>& values);
  void copy_into(const Node& variable, const std::byte* value);

  std::vector<DeviceUse> device_use() const;
  // After more has been given memory.
  void note_peak();

  const Graph& graph;
  SessionOptions options;
  std::vector<std::unique_ptr<Device>> devices;
  int threads;  // asked for
  WorkerPool pool;
  Runtime runtime;
  std::map<const Node*, Stored> variables;
  std::map<std::string, Prepared> steps;  // by fetches and feeds
  std::int64_t uses = 0;                  // of steps
  std::vector<std::int64_t> peak_bytes;   // by device
  std::set<const Node*> printed;          // by log_device_placement
  std::mutex mutex;                       // over variables and steps

 private:
  using CompiledPlans = std::map<std::string, std::shared_ptr<const Plan>>;  // as `steps`

  // Takes variables apart that cannot share storage in the plan.
  Plan compile_plan(std::span<const Fetch> fetches, std::span<const FeedType> feeds, Locks locks);
  void part(const Node& variable);
  CompiledPlans compile_apart();
  void give_own_memory(CompiledPlans& compiled);
  void print(const std::string& lines) const;
  void print_placement(const Plan& plan);
  std::vector<Fetch> initials_of(std::span<const Node* const> variables) const;
  void make_step(Prepared& prepared, Locks locks);
  bool drop_idle_step();
  bool await_idle_step() const;
  void make_room(const Plan& plan, bool kept);
  std::string lacking(const Plan& plan, bool kept) const;
  void initialise(const Plan& plan);
  void warn_of_moved(const std::vector<const Node*>& fresh, const Placement& placement) const;
  void fill_in(const std::vector<const Node*>& fresh);

  std::shared_ptr<const Placement> placement_;
  std::set<const Node*> parting_;  // while unshare() works: count as private
};

}  // namespace belfry
