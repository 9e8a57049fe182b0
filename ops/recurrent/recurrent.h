// LSTM and GRU over whole sequences (Hochreiter and Schmidhuber 1997; Cho et al. 2014), with the
// formulas and the order of gates of PyTorch. For layers see towers/recurrent_layers.h.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// The weights of `gates` gates side by side: four of an LSTM (input, forget, cell, output), three
// of a GRU (reset, update, new). They are the transposes of PyTorch's weight_ih and weight_hh.
struct RecurrentWeights {
  Output input;        // [features, gates * hidden]
  Output hidden;       // [hidden, gates * hidden]
  Output input_bias;   // [gates * hidden]; empty: none
  Output hidden_bias;  // as input_bias
};

struct RecurrentOptions {
  Output h, c;     // states before the first time [batch, hidden]; empty: zeros. GRU has no c.
  Output lengths;  // i32 or i64 [batch], from 0 to `time`; empty: `time` for all
  bool reverse = false;  // from the last time of each row to the first
  // On a GPU cuDNN may compute the recurrence, together with the product with the input weights
  // (whole_recurrence.h): if its results agree with ours when both are tried, if it is faster, and
  // if runs need not be deterministic. Then there are no second derivatives. Changes nothing for
  // rows of several lengths, nor outside of a device scope of a GPU.
  bool cudnn = false;
};

struct RecurrentResult {
  Output y;     // [batch, time, hidden]: h after each time
  Output h, c;  // [batch, hidden]: the states after the last time. GRU has no c.
};

// x [batch, time, features]; `time` must be known when the graph is built. Where a row has ended, y
// is 0, nothing is read, and its states stay: as with PyTorch's packed sequences. A run fails if a
// length is not in [0, time]. f32 and f64; f16 and bf16 are computed in f32.
//
//   i, f, o = sigmoid(gates of x + gates of h), g = tanh(...)
//   c' = f c + i g, h' = o tanh(c')
RecurrentResult lstm(Output x, const RecurrentWeights& weights,
                     const RecurrentOptions& options = {}, At at = {});
//   r, z = sigmoid(gates of x + gates of h), n = tanh(gate of x + r (gate of h))
//   h' = (1 - z) n + z h
// The gate of h has its bias, so that r multiplies it, too.
RecurrentResult gru(Output x, const RecurrentWeights& weights, const RecurrentOptions& options = {},
                    At at = {});

// The ops begin after the products of all times with the input weights. Their first and third
// outputs are for the gradient. `lengths` may be left out. Second derivatives are computed by other
// ops, one time after another: their nodes, memory and time grow with the time of the sequences.

struct RecurrenceOptions {
  bool reverse = false;
};

// gates [batch, time, 4 hidden], hidden weights, h, c, lengths -> activated gates like `gates`, y,
// cell states [batch, time, hidden], h, c.
extern const Op kLstm;
// Activated gates, dy, dh, dc, cell states, y, hidden weights, h, c, lengths -> gradients of gates,
// h before each time, dh, dc.
extern const Op kLstmGrad;
// gates [batch, time, 3 hidden], hidden weights, h, hidden bias, lengths -> activated gates like
// `gates`, y, the new gate of h [batch, time, hidden], h.
extern const Op kGru;
// Activated gates, dy, dh, new gates of h, y, hidden weights, h, lengths -> gradients of gates of
// x, and of gates of h, h before each time, dh.
extern const Op kGruGrad;

}  // namespace belfry
