// LSTM and GRU as one op each, with the product of all times with the input weights. On GPUs cuDNN
// may compute them. lstm() and gru() build them where RecurrentOptions::cudnn says so.
#pragma once
#include "belfry/ops/recurrent/recurrent.h"

namespace belfry {

// Like lstm() and gru(), but they take no lengths. With 16-bit tensors they also multiply x in f32.
RecurrentResult whole_lstm(Output x, const RecurrentWeights& weights,
                           const RecurrentOptions& options = {}, At at = {});
RecurrentResult whole_gru(Output x, const RecurrentWeights& weights,
                          const RecurrentOptions& options = {}, At at = {});

// x [batch, time, features], input weights, hidden weights, input bias, hidden bias, h, and c of an
// LSTM -> y [batch, time, hidden], what the gradient needs [batch, ...], h, and c of an LSTM. The
// second output is in the order of whichever kernel made it, and has no gradient. Their options are
// RecurrenceOptions.
extern const Op kWholeLstm;
extern const Op kWholeGru;
// The inputs, y, the second output, dy, dh, and dc of an LSTM -> the gradients of all inputs.
extern const Op kWholeLstmGrad;
extern const Op kWholeGruGrad;

}  // namespace belfry
