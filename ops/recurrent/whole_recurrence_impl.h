// What kernels of whole recurrences share: sizes, and the op that follows the product with x.
#pragma once
#include <vector>

#include "belfry/framework/graph/node.h"
#include "belfry/ops/recurrent/whole_recurrence.h"

namespace belfry::recurrent {

// A whole recurrence, forward or backward.
struct Whole {
  explicit Whole(const KernelPlan& plan);

  const Node& node;
  DType dtype;
  bool gradient, has_c, reverse;
  std::int64_t rows, time, features, hidden, columns;  // columns: of all gates

  std::int64_t bytes(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(size_of(dtype));
  }
  std::int64_t vectors() const { return rows * time; }
  std::int64_t saved_bytes() const;
  const Op& rest() const { return gradient ? rest_grad() : has_c ? kLstm : kGru; }

  // Places of inputs of a gradient.
  std::size_t states() const { return has_c ? 2 : 1; }
  std::size_t y() const { return 5 + states(); }
  std::size_t saved() const { return y() + 1; }
  std::size_t dy() const { return y() + 2; }
  std::size_t dh() const { return y() + 3; }

 private:
  const Op& rest_grad() const { return has_c ? kLstmGrad : kGruGrad; }
};

// Elements per row of the second output: enough for our kernels, which keep activated gates and one
// more vector of each time, and for cuDNN 9, which keeps up to six vectors of each time, and less
// than 128 elements.
inline std::int64_t saved_columns(bool has_c, std::int64_t time, std::int64_t hidden) {
  return (has_c ? 5 : 6) * time * hidden + 128;
}

// The plan of the kernel of an op inside another node.
struct InnerPlan {
  InnerPlan(const Node& node, const Op& op, std::vector<TensorType> in,
            std::vector<TensorType> out);
  InnerPlan(const InnerPlan&) = delete;  // the plan refers to the types
  InnerPlan& operator=(const InnerPlan&) = delete;

  std::vector<TensorType> inputs, outputs;
  KernelPlan plan;
};

// Types of inputs and outputs of Whole::rest().
std::vector<TensorType> inputs_of_rest(const Whole& whole);
std::vector<TensorType> outputs_of_rest(const Whole& whole);

// The memory of Whole::rest(): that of the whole recurrence, and what follows.
struct RestMemory {
  // Forward, in place: the gates of x, then the activated ones. Backward: gradients of the gates.
  void* gates;
  void* hidden_gates = nullptr;  // backward, of a GRU alone: gradients of the gates of h
  void* before = nullptr;        // backward: h before each time
};
std::vector<void*> inputs_of_rest(const Whole& whole, const KernelPointers& p,
                                  const RestMemory& memory);
std::vector<void*> outputs_of_rest(const Whole& whole, const KernelPointers& p,
                                   const RestMemory& memory);
// Our kernels keep the activated gates, then one more vector of each time, in the second output.
void* second_part_of(const Whole& whole, const void* saved);

}  // namespace belfry::recurrent
