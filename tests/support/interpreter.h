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
  // Divides the work of each node as its WorkSplit allows: prepares the kernel once, and calls it
  // for each part. There are at most as many parts as units.
  int parts = 1;
  // Elements (or rows) cut off as a first part of their own, before the rest is divided.
  std::int64_t shift = 0;
  // If not negative, outputs take the memory of an input where InPlace and the sizes allow it. If
  // any input may be taken, they take this one.
  int in_place = -1;
  // The step of the first run; each run that writes a variable counts up.
  std::uint64_t step = 0;
};

// Holds values of variables between runs, as a Session does. It fills every output with NaN
// patterns before the output's kernel runs, so that elements show that a kernel leaves out.
class Interpreter {
 public:
  explicit Interpreter(InterpreterOptions options = {}) : options_(options), step_(options.step) {}

  // Variables without a value start with that of their initialiser.
  void write(Variable variable, Tensor value);
  Tensor read(Variable variable);

  // Node fetches give an empty tensor. A read sees the value of the last write with a path to it,
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

// From now on every Interpreter of this process takes the kernels that `source` returns instead of
// Op::cpu. If `source` returns none, it takes Op::cpu. Such kernels do all the work of a node,
// unless it is split by elements. Returns the previous source; null for none.
CpuKernel set_kernel_source(CpuKernel source);

// Runs once, with variables at their initial values.
std::vector<Tensor> evaluate(std::span<const Output> outputs, std::span<const FeedValue> feeds = {},
                             InterpreterOptions options = {});
Tensor evaluate(Output output, std::span<const FeedValue> feeds = {},
                InterpreterOptions options = {});

}  // namespace belfry
