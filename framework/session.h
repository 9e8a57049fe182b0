// Runs a graph: owns the devices, the values of variables, and compiled plans.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph.h"
#include "belfry/framework/tensor.h"

namespace belfry {

struct Plan;

struct SessionOptions {
  // How many devices of a type exist, e.g. {{"CPU", 4}}: logical devices of this host. One CPU
  // device by default.
  std::map<std::string, int> device_count = {};
  // Falls back to a device that exists and has a kernel instead of throwing.
  bool allow_soft_placement = false;
  // Prints the devices, and each node's, when a plan is compiled.
  bool log_device_placement = false;
  // Workers, the caller of run included; 0 for one per usable core.
  int threads = 0;
  // Bytes per device, by full or short name, e.g. {{"cpu:1", 1 << 30}}.
  std::map<std::string, std::int64_t> memory_limit = {};
  // Runs the plain kernel of every op: slow; the oracle in tests.
  bool reference_kernels = false;
};

// What to compute: an output, the value of a variable, or a node for its effect.
struct Fetch {
  Fetch(Output o) : output(o), node(&o.node()) {}       // NOLINT
  Fetch(Variable v) : Fetch(static_cast<Output>(v)) {}  // NOLINT
  Fetch(Node& n) : node(&n) {}                          // NOLINT
  Output output;                                        // empty for a node
  Node* node;
};

struct Feed {
  Output where;
  Tensor what;
};

// What a variable shall hold: dense, of its shape and dtype.
struct VariableBytes {
  Variable variable;
  std::span<const std::byte> bytes;
};

// A type of a feed, before its values exist.
struct FeedType {
  Output where;
  Shape shape;
};

// A compiled step: run() allocates nothing. Belongs to its Session and dies with it. One run at a
// time.
class Step {
 public:
  // Feeds are in the order given to prepare(); their memory is read until run returns.
  void run(std::span<const Tensor> feeds = {});
  // The value of fetch i after a run. The next run overwrites it, and copies of it with it;
  // Session::run returns tensors of their own.
  const Tensor& fetched(std::size_t i) const;
  const Plan& plan() const;

  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();

 private:
  friend class Session;
  struct State;
  explicit Step(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Session {
 public:
  explicit Session(const Graph& graph, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Computes fetches; compiles them at first use for the shapes of the feeds. Node fetches give an
  // empty tensor. Throws InvalidArgument for feeds of the wrong type, and whatever a kernel throws,
  // after all workers have stopped; if a variable had been written by then, every later run throws
  // until each variable that it may have written is restored by write().
  Tensor run(Output fetch, std::span<const Feed> feeds = {});
  std::vector<Tensor> run(std::span<const Fetch> fetches, std::span<const Feed> feeds = {});
  std::vector<Tensor> run(std::initializer_list<Fetch> fetches,
                          std::initializer_list<Feed> feeds = {});

  // Compiles without running. The step lives as long as the session.
  Step& prepare(std::span<const Fetch> fetches, std::span<const FeedType> feeds = {});
  Step& prepare(std::initializer_list<Fetch> fetches, std::initializer_list<FeedType> feeds = {}) {
    return prepare(std::span(fetches.begin(), fetches.size()),
                   std::span(feeds.begin(), feeds.size()));
  }

  // Values of variables, between steps.
  Tensor read(Variable variable);
  void write(Variable variable, const Tensor& value);
  // False after a run that failed when it had begun to write variables, until they are restored.
  bool intact() const;
  // Sets variables and the step, all between two runs, or throws and sets none. Others that a
  // failed run may have written start again from their first values: the session is intact.
  void restore(std::span<const VariableBytes> values, std::uint64_t step);
  const Graph& graph() const;

  // The device chosen for an output: full name. Compiles the output alone if no plan holds it.
  DeviceSpec placement(Output output);
  // Full names of all devices.
  std::vector<DeviceSpec> devices() const;
  // Bytes planned per device: the arenas of all steps plus its variables.
  std::map<std::string, std::int64_t> peak_bytes() const;
  // Workers that were asked for; no more of them run than there are devices.
  int threads() const;

  // Runs that wrote variables so far: random ops are keyed by it.
  std::uint64_t step() const;
  void set_step(std::uint64_t step);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace belfry
