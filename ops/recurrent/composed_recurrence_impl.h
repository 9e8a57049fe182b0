// LSTM, GRU and their gradients by other ops, one time after another: for second derivatives.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/ops/composed_gradient.h"
#include "belfry/ops/recurrent/recurrent.h"

namespace belfry::recurrent {

// Inputs and outputs are those of the ops Lstm, LstmGrad, Gru and GruGrad.
using ComposedRecurrence = std::vector<Output>(std::span<const Output> inputs, bool reverse);
ComposedRecurrence composed_lstm, composed_lstm_grad, composed_gru, composed_gru_grad;

// Op::gradient of such an op.
template <ComposedRecurrence& compose>
std::vector<Output> gradient_by(const Node& node, std::span<const Output> grads) {
  return composed_gradient(node, grads, [&](std::span<const Output> inputs) {
    return compose(inputs, node.options<RecurrenceOptions>().reverse);
  });
}

}  // namespace belfry::recurrent
