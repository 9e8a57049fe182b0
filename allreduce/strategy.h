// Strategies: ways to combine the gradients of towers by adding nodes to the graph. They know no
// thread, stream or process.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/allreduce/gradient_table.h"

namespace belfry {

enum class Reduction { kSum, kMean };

struct ReduceOptions {
  Reduction reduction = Reduction::kMean;
};

// To add one: derive, override sum() and, where the result is canonical, canonical(); register it
// from a file of its own (naive.cc is an example).
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The combined gradients: every at(t, v) is the sum or mean over t of the table's. One tower's
  // table comes back as it is. Throws InvalidArgument if the strategy cannot serve so many towers,
  // or gives results of another layout.
  GradientTable reduce(const GradientTable& grads, ReduceOptions options = {}, At at = {}) const;

  // Whether sums over this many towers have the bits of the canonical tree (add_n over towers in
  // order), and so of every other canonical strategy.
  virtual bool canonical(int towers) const;

  // The same strategy with all tensors of a table, which have one dtype, combined by one node: what
  // a bucket is made of. nullptr, the default: it has nodes for each tensor.
  virtual std::unique_ptr<Strategy> in_one_node() const;

 protected:
  // sums[t][v] for tower t, for at least two towers; towers may share an Output. Nodes go under the
  // device scopes that the strategy stands for.
  virtual std::vector<std::vector<Output>> sum(const GradientTable& grads) const = 0;
  // The sum divided once by the number of towers (not multiplied by a rounded reciprocal): by
  // default after sum(), on the tower's device, or where the sum is if several towers share it.
  virtual std::vector<std::vector<Output>> mean(const GradientTable& grads) const;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>()>;

// Makes a strategy known by name. Throws InvalidArgument if the name is taken.
void register_strategy(std::string name, StrategyFactory factory);
// Throws InvalidArgument with all names and the nearest one.
std::unique_ptr<Strategy> make_strategy(std::string_view name);
// Sorted.
std::vector<std::string> strategy_names();

// Registers a strategy when the program starts.
struct StrategyRegistration {
  StrategyRegistration(std::string name, StrategyFactory factory) {
    register_strategy(std::move(name), std::move(factory));
  }
};

}  // namespace belfry
