// Strategies: ways to combine the gradients of towers by adding nodes to the graph. They know no
// thread or stream. Of processes they know how many there are, and which one this is.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

enum class Reduction { kSum, kMean };

struct ReduceOptions {
  Reduction reduction = Reduction::kMean;
  // One scalar per tower, at least 0, such as its number of samples; constants to gradients. A
  // tower's leaf is then 0 where its weight n is 0, whatever its gradient holds, and else n times
  // its gradient; the mean is divided by the sum of the weights, or 0 if that is 0. None: all are
  // 1.
  std::vector<Output> weights = {};
  // In a graph of one of several processes, with weights: their sum over the towers of all, a
  // scalar.
  Output total_weight = {};
};

// To add one: derive, override sum() and, where the result is canonical, canonical(); register it
// from a file of its own (naive.cc is an example). A strategy around another one derives from
// WrappingStrategy.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The combined gradients: every at(t, v) is the sum or mean over t of the table's. One tower's
  // table comes back as it is. Weights that are equal constants (sums: ones) change no bit, as they
  // are left out. Throws InvalidArgument if the strategy cannot serve so many towers, or gives
  // results of another layout; for 16-bit gradients, unless they are combined in f32 and rounded
  // once; and unless there is one scalar weight per tower, or none.
  GradientTable reduce(const GradientTable& grads, ReduceOptions options = {}, At at = {}) const;

  // Why towers on these devices, one for each, cannot be served, as a sentence that names the
  // strategy and no flag; "" if they can. reduce() refuses with it, and programs do before they
  // build anything. One tower is asked about, too, though reduce() has nothing to do for it.
  virtual std::string refusal(const std::vector<DeviceSpec>& devices) const;
  // The same where there are several processes (Graph::process), whose gradients it has to combine,
  // and `devices` are those of one. By default it combines those of one process.
  virtual std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const;

  // Whether sums over this many towers are promised to have the bits of the canonical tree (add_n
  // over towers in order), and so of every other canonical strategy.
  virtual bool canonical(int towers) const;

  // The same strategy with each tensor cut into `chunks` >= 2 pieces: `name#chunks` of a spec.
  // nullptr, the default: it takes no number of chunks.
  virtual std::unique_ptr<Strategy> in_chunks(int chunks) const;
  // The same strategy with all tensors of a table, which have one dtype, combined by one node (by
  // size: those of a range). A bucket is made of it. nullptr, the default: it has nodes for each
  // tensor.
  virtual std::unique_ptr<Strategy> in_one_node() const;

 protected:
  // sums[t][v] for tower t, for at least two towers; towers may share an Output. Nodes go under the
  // device scopes that the strategy stands for.
  virtual std::vector<std::vector<Output>> sum(const GradientTable& grads) const = 0;
  // The sum divided once by the number of towers (not multiplied by a rounded reciprocal). By
  // default that is done after sum(), on the tower's device, or where the sum is if several towers
  // share it.
  virtual std::vector<std::vector<Output>> mean(const GradientTable& grads) const;

  // What sum() or mean() of `inner` returns for columns of the table. For strategies around others:
  // their reduce() checks the table, verifies the results and notes them, once.
  static std::vector<std::vector<Output>> results_of(const Strategy& inner,
                                                     const GradientTable& grads,
                                                     Reduction reduction);

 private:
  GradientTable weighted(const GradientTable& grads, const ReduceOptions& options) const;
};

// A strategy whose results differ little whether sums or means are wanted: it divides on its way,
// or leaves that to another one.
class CombiningStrategy : public Strategy {
 protected:
  // What sum() or mean() returns.
  virtual std::vector<std::vector<Output>> combine(const GradientTable& grads,
                                                   Reduction reduction) const = 0;

 private:
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const final {
    return combine(grads, Reduction::kSum);
  }
  std::vector<std::vector<Output>> mean(const GradientTable& grads) const final {
    return combine(grads, Reduction::kMean);
  }
};

// A strategy around another one, which combines the same elements in other tables. So it serves the
// devices and processes that the other one serves, and is canonical where that one is.
class WrappingStrategy : public CombiningStrategy {
 public:
  // `inner` is not null.
  explicit WrappingStrategy(std::unique_ptr<Strategy> inner) : inner_(std::move(inner)) {}

  std::string refusal(const std::vector<DeviceSpec>& devices) const override {
    return inner_->refusal(devices);
  }
  std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const override {
    return inner_->refusal_of_processes(devices);
  }
  bool canonical(int towers) const override { return inner_->canonical(towers); }

 protected:
  const Strategy& inner() const { return *inner_; }
  // What inner() makes of other tensors than gradients. They are verified here, since reduce()
  // cannot tell pieces of one variable apart, nor tensors that hold several.
  GradientTable combined(const GradientTable& tensors, Reduction reduction) const;

 private:
  std::unique_ptr<Strategy> inner_;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>()>;

// Whether a name is one of the menu, or stands for something that the menu has.
enum class StrategyName { kMain, kAlias };

// Makes a strategy known by name. Throws InvalidArgument if the name is taken, empty, "auto" or
// "all", or has a character that specs give a meaning (':', '#', ',', '-' and white space).
void register_strategy(std::string name, StrategyFactory factory,
                       StrategyName kind = StrategyName::kMain);
// A second name for one of the menu. Throws InvalidArgument as above.
void register_alias(std::string name, std::string stands_for);
// "ring" for its alias "xring"; what stands for nothing else, as it is.
std::string main_strategy_name(std::string_view name);
// By its name alone. Throws InvalidArgument with all names and the nearest one.
std::unique_ptr<Strategy> make_named_strategy(std::string_view name);
// What a whole spec asks for (all_reduce_spec.h, which defines it): a name, "ring#2",
// "collective:64k:hierarchical". Throws InvalidArgument naming the spec and the piece that is
// wrong.
std::unique_ptr<Strategy> make_strategy(std::string_view spec);
// Sorted; without aliases.
std::vector<std::string> strategy_names();

// Registers a strategy when the program starts.
struct StrategyRegistration {
  StrategyRegistration(std::string name, StrategyFactory factory,
                       StrategyName kind = StrategyName::kMain) {
    register_strategy(std::move(name), std::move(factory), kind);
  }
};

struct StrategyAlias {
  StrategyAlias(std::string name, std::string stands_for) {
    register_alias(std::move(name), std::move(stands_for));
  }
};

}  // namespace belfry
