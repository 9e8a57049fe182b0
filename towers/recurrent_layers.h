// Recurrent layers: LSTM and GRU (ops/recurrent/recurrent.h), of several layers and both
// directions. See layers.h for what layers have in common.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/towers/tower.h"

namespace belfry {

struct RecurrentLayer {
  int hidden = 0;              // required: the units of each direction
  int layers = 1;              // one on top of the other
  bool bidirectional = false;  // each layer also reads from the last time to the first
  Output lengths = {};         // i32 or i64 [N]: the times of each row; empty: all
  double dropout = 0;          // of what each layer but the last returns, in training towers
  bool bias = true;            // both biases of each layer and direction
  bool cudnn = false;          // on GPUs cuDNN may compute it: see RecurrentOptions
  // States before the first time, each [N,hidden], one per layer and direction: those of layer 0,
  // forward first. Empty: zeros. A GRU has no c.
  std::vector<Output> h = {}, c = {};
  // Of all variables; uniform in +-1 / sqrt(hidden) by default, as in PyTorch.
  Initializer init = {};
  bool trainable = true;
};

struct RecurrentOutputs {
  Output y;  // [N,time,hidden] of the last layer; [N,time,2 hidden] of both directions
  std::vector<Output> h,
      c;  // [N,hidden] after the last time of each row, in the order of the first
};

// x [N,time,in], whose time and `in` must be known. Where a row has ended, y is 0. Layer i has the
// variables layer<i>/input/W [in,4 hidden], layer<i>/hidden/W [hidden,4 hidden], layer<i>/input/b
// and layer<i>/hidden/b [4 hidden], and the same below layer<i>/reverse for the other direction.
// Gates are in the order of PyTorch: input, forget, cell, output. W is the transpose of PyTorch's
// weight_ih_l<i> or weight_hh_l<i>; b is bias_ih_l<i> or bias_hh_l<i>.
RecurrentOutputs lstm(Tower& tower, std::string_view name, Output x, RecurrentLayer layer,
                      At at = {});
// The same with three gates: reset, update, new.
RecurrentOutputs gru(Tower& tower, std::string_view name, Output x, RecurrentLayer layer,
                     At at = {});

}  // namespace belfry
