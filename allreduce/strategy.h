// Strategies: ways to combine the gradients of towers by adding nodes to the graph. They know
// nothing of threads or streams, only how many processes there are and which one this is.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

enum class Reduction { kSum, kMean };

// How many small tensors are packed into one.
inline constexpr int kMostInSmallPack = 10;

// Which tensors are combined in place of gradients, and when. Each element is summed as it is
// without packing.
struct Packing {
  // Runs of f32 gradients, each of at most this many bytes, are laid end to end (small_tensors.h);
  // 0: none.
  std::int64_t small_bytes = 0;
  int small_group = kMostInSmallPack;  // the most gradients in one run
  int parts = 0;  // all gradients are cut into this many parts (gradient_packer.h); 0: they are not
  // Tensors are combined in buckets of at most this many MiB (buckets.h); 0: there are none.
  double bucket_mb = 0;
};

struct ReduceOptions {
  Reduction reduction = Reduction::kMean;
  // One scalar per tower, at least 0, such as its number of samples. No gradient flows to weights.
  // A tower of weight n adds n times its gradient, or 0 if n is 0, whatever the gradient holds. The
  // mean is divided by the sum of the weights, or is 0 if that sum is 0. None: all weights are 1.
  std::vector<Output> weights = {};
  // With weights and several processes: the sum of the weights of all towers of all processes, a
  // scalar.
  Output total_weight = {};
  Packing packing = {};
};

// To add a strategy: derive, override sum() and, if the result is canonical, canonical(). Register
// it in its own file (naive.cc is an example).
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The combined gradients: each at(t, v) is the sum or mean of variable v's gradients over all
  // towers. The table of a single tower is returned unchanged. Equal constant weights (for sums:
  // ones) are dropped, so they change no bit. Throws InvalidArgument
  // * if the strategy does not support that many towers, or gives results of another layout;
  // * for 16-bit gradients, unless they are combined in f32 and rounded once;
  // * unless there is one scalar weight per tower, or none;
  // * if gradients cannot be packed as requested.
  GradientTable reduce(const GradientTable& grads, const ReduceOptions& options = {},
                       At at = {}) const;

  // Why it cannot serve towers on these devices (one per tower), as a sentence that names the
  // strategy and no flag; "" if it can. reduce() refuses with this text. Programs ask before they
  // build anything, also for a single tower, though reduce() does nothing then.
  virtual std::string refusal(const std::vector<DeviceSpec>& devices) const;
  // Why it cannot combine the gradients of several processes (Graph::process); `devices` are those
  // of one process. By default a strategy refuses several processes.
  virtual std::string refusal_of_processes(const std::vector<DeviceSpec>& devices) const;

  // Whether sums over this many towers have the bits of the canonical tree (add_n over towers in
  // order), and so match every other canonical strategy.
  virtual bool canonical(int towers) const;

  // This strategy with each tensor cut into `chunks` >= 2 pieces: `name#chunks` of a spec. nullptr,
  // the default, if it does not work in chunks.
  virtual std::unique_ptr<Strategy> in_chunks(int chunks) const;
  // This strategy with one node for all tensors of a table of one dtype (mixed: one node per
  // range). Buckets use it. nullptr, the default, if each tensor needs its own nodes.
  virtual std::unique_ptr<Strategy> in_one_node() const;

  // results[t][v] for tower t, of a table that reduce() has checked and perhaps packed: the sums,
  // or the sums divided once by the number of towers (not multiplied by a rounded reciprocal).
  // There are at least two towers, counting those of all processes. Towers may share an Output. By
  // default sum(), divided on the tower's device. If several towers share a sum, it is divided
  // there. Override it instead of sum() if the strategy divides on its way, or leaves the division
  // to another strategy.
  virtual OutputRows combine(const GradientTable& grads, Reduction reduction) const;

 private:
  // sums[t][v]. The strategy opens the device scopes of its nodes.
  virtual OutputRows sum(const GradientTable& grads) const;
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>()>;

// Whether a name is listed in the menu, or is an alias of a strategy there.
enum class StrategyName { kMain, kAlias };

// Registers a strategy under a name. Throws InvalidArgument if the name is taken, empty, "auto" or
// "all", or contains a character with a meaning in specs (':', '#', ',', '-' and white space).
void register_strategy(std::string name, StrategyFactory factory,
                       StrategyName kind = StrategyName::kMain);
// Adds a second name for a strategy in the menu. Throws InvalidArgument as above.
void register_alias(std::string name, std::string stands_for);
// "ring" for its alias "xring". Any other name is returned unchanged.
std::string main_strategy_name(std::string_view name);
// Makes a strategy by name only. Throws InvalidArgument with all names and the nearest one.
std::unique_ptr<Strategy> make_named_strategy(std::string_view name);
// Makes the strategy of a whole spec (all_reduce_spec.h): a name, "ring#2",
// "collective:64k:hierarchical". Throws InvalidArgument naming the spec and the wrong piece.
std::unique_ptr<Strategy> make_strategy(std::string_view spec);
// The names in the menu, sorted.
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
