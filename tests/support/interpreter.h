// The oracle of tests: computes outputs of a graph by running every node in order of creation, with
// no session, plan, arena or thread.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <vector>

#include "belfry/framework/run/session.h"

namespace belfry {

struct InterpreterOptions {
  // Runs the plain kernel of each op instead of the fast one.
  bool reference = false;
  // Divides the work of each node as its WorkSplit allows: the kernel is prepared once, and called
  // per part. At most as many parts as units.
  int parts = 1;
  // Elements (or rows) cut off as a first part of their own, before the rest is divided.
  std::int64_t shift = 0;
  // Not negative: outputs take the memory of an input where InPlace and the sizes allow it, this
  // one where any may be taken.
  int in_place = -1;
  // Of the first run; counts up with every run that writes a variable.
  std::uint64_t step = 0;
};

// Holds values of variables between runs, as a Session does. Every output is filled with NaN
// patterns before its kernel runs, so that what a kernel leaves out shows.
class Interpreter {
 public:
  explicit Interpreter(InterpreterOptions options = {}) : options_(options), step_(options.step) {}

  // Variables without a value start with that of their initialiser.
  void write(Variable variable, Tensor value);
  Tensor read(Variable variable);

  // Node fetches give an empty tensor. Reads see what the last write with a path to them wrote,
  // else the value from before the run.
  std::vector<Tensor> run(std::span<const Fetch> fetches, std::span<const FeedValue> feeds = {});
  std::vector<Tensor> run(std::initializer_list<Fetch> fetches,
                          std::initializer_list<FeedValue> feeds = {}) {
    return run(std::span(fetches.begin(), fetches.size()), std::span(feeds.begin(), feeds.size()));
  }
  Tensor run(Output fetch, std::span<const FeedValue> feeds = {});

 private:
  const Tensor& stored(const Node& variable);

  InterpreterOptions options_;
  std::uint64_t step_;
  std::map<const Node*, Tensor> variables_;
};

// From now on every Interpreter of this process takes the kernels that `source` returns where
// others take Op::cpu, and that where it returns none. Such kernels do all the work of a node,
// unless it is split by elements. Returns the source before; null for none.
CpuKernel set_kernel_source(CpuKernel source);

// Runs once, with variables at their initial values.
std::vector<Tensor> evaluate(std::span<const Output> outputs, std::span<const FeedValue> feeds = {},
                             InterpreterOptions options = {});
Tensor evaluate(Output output, std::span<const FeedValue> feeds = {},
                InterpreterOptions options = {});

}  // namespace belfry
