// Kernels: a node is prepared for given shapes, then runs in each step.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "belfry/framework/base/cat.h"
#include "belfry/framework/base/dtype.h"
#include "belfry/framework/base/shape.h"
#include "belfry/framework/graph/node_options.h"

namespace belfry {

class Node;
struct Op;

struct TensorType {
  Shape shape;
  DType dtype = DType::kF32;

  std::int64_t bytes() const {
    return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
  }
  std::string str() const { return detail::cat(name_of(dtype), shape); }  // "f32[64,784]"
  bool operator==(const TensorType&) const = default;
};

// A half-open range, in units of the op's WorkSplit.
struct WorkRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Everything a kernel may know before it runs: real shapes, options, and the range of its work.
// Preparing a kernel for a host touches no device. GpuKernelMaker::prepare() says what it may do
// for a GPU.
class KernelPlan {
 public:
  KernelPlan(const Node& node, std::span<const TensorType> inputs,
             std::span<const TensorType> outputs, WorkRange range)
      : node_(node), inputs_(inputs), outputs_(outputs), range_(range) {}

  const Node& node() const { return node_; }
  // The op that the kernel computes. In plans it may differ from the node's op; the options are
  // still the node's.
  const Op& op() const;
  void set_op(const Op& op) { op_ = &op; }
  template <class T>
  const T& options() const {
    return node_options().as<T>();
  }
  std::size_t inputs() const { return inputs_.size(); }
  std::size_t outputs() const { return outputs_.size(); }
  const TensorType& input(std::size_t i) const { return inputs_[i]; }
  const TensorType& output(std::size_t i = 0) const { return outputs_[i]; }
  // The element type that selects the kernel: of output 0, or of input 0 without outputs; f32 for a
  // node without tensors.
  DType dtype() const {
    if (!outputs_.empty()) return outputs_[0].dtype;
    return inputs_.empty() ? DType::kF32 : inputs_[0].dtype;
  }

  // The range of the whole work. Kernels split by elements or rows get their part from
  // KernelPointers when they run.
  WorkRange range() const { return range_; }

  // The samples of the shard that the kernel works on, and of all shards of its device. `numbered`:
  // KernelPointers::first_row() says which rows of the batch of all devices these are.
  struct Batch {
    std::int64_t samples = 1, of_all = 1;
    bool numbered = false;
  };
  void set_batch(Batch batch) { batch_ = batch; }
  const Batch& batch() const { return batch_; }
  // How many elements, or rows, all shards of the device have together if a shard has `count`.
  double of_all(double count) const {
    return count / static_cast<double>(batch_.samples) * static_cast<double>(batch_.of_all);
  }

  // Requests scratch memory from the plan, in bytes; KernelPointers::workspace() has it at run
  // time.
  void workspace(std::int64_t bytes) { workspace_ = bytes; }
  std::int64_t workspace_bytes() const { return workspace_; }

 private:
  const NodeOptions& node_options() const;

  const Node& node_;
  const Op* op_ = nullptr;  // null: the node's
  std::span<const TensorType> inputs_, outputs_;
  WorkRange range_;
  Batch batch_;
  std::int64_t workspace_ = 0;
};

// Tensors whose elements are numbered end to end, as in the range of a collective.
class EndToEnd {
 public:
  void append(std::int64_t elements) { starts_.push_back(starts_.back() + elements); }
  std::int64_t elements() const { return starts_.back(); }

  // Calls part(i, begin, end) for every tensor i with elements [begin, end) in `range`.
  template <class Part>
  void for_each(WorkRange range, const Part& part) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), range.begin);
    for (auto next = after; next != starts_.end() && *(next - 1) < range.end; ++next) {
      const std::int64_t start = *(next - 1);
      const std::int64_t begin = std::max(range.begin, start), end = std::min(range.end, *next);
      if (begin < end)
        part(static_cast<std::size_t>(next - starts_.begin()) - 1, begin - start, end - start);
    }
  }

 private:
  std::vector<std::int64_t> starts_{0};  // of each tensor, and where the last one ends
};

// Where a launch's tensors are. Inputs and outputs point at whole tensors, whatever the range.
// Variables that an op writes are inputs: see written().
class KernelPointers {
 public:
  template <class T>
  const T* input(std::size_t i) const {
    return static_cast<const T*>(inputs_[i]);
  }
  template <class T>
  T* output(std::size_t i = 0) const {
    return static_cast<T*>(outputs_[i]);
  }
  // The variable that is input i of an op with Op::writes > i.
  template <class T>
  T* written(std::size_t i) const {
    return static_cast<T*>(inputs_[i]);
  }
  // All of them, for kernels that sum many.
  std::span<const void* const> all_inputs() const { return inputs_; }
  std::span<void* const> all_outputs() const { return outputs_; }
  std::size_t inputs() const { return inputs_.size(); }
  std::size_t outputs() const { return outputs_.size(); }
  // All inputs, for kernels that call kernels, which may write them.
  std::span<void* const> mutable_inputs() const { return inputs_; }
  std::byte* workspace() const { return workspace_; }

  std::int64_t begin() const { return range_.begin; }
  std::int64_t end() const { return range_.end; }

  // Counts the runs that wrote variables; random ops mix it into their key.
  std::uint64_t step() const { return step_; }
  // The row of the batch of all devices that is row 0 of output 0, if KernelPlan::batch() is
  // `numbered`.
  std::int64_t first_row() const { return first_row_; }

  KernelPointers() = default;
  KernelPointers(std::span<void* const> inputs, std::span<void* const> outputs,
                 std::byte* workspace, WorkRange range, std::uint64_t step,
                 std::int64_t first_row = 0)
      : inputs_(inputs),
        outputs_(outputs),
        workspace_(workspace),
        range_(range),
        step_(step),
        first_row_(first_row) {}

 private:
  std::span<void*const> inputs_, outputs_;
  std::byte* workspace_ = nullptr;
  WorkRange range_;
  std::uint64_t step_ = 0;
  std::int64_t first_row_ = 0;
};

// The whole range of a node's work, in units of its op's WorkSplit. `participants`: those of a
// collective, else 0.
WorkRange whole_range(const Op& op, int participants, std::span<const TensorType> inputs,
                      std::span<const TensorType> outputs);

// Runs one launch. Several threads may call it at once, each with its own tensors and workspace.
// Kernels split by elements or rows may also be called at once for disjoint ranges of one launch.
using KernelRun = std::function<void(const KernelPointers&)>;
using CpuKernel = KernelRun (*)(KernelPlan&);

}  // namespace belfry
