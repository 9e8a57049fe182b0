// Layers: ops with variables, as overloads of the ops with the tower first. Others are in
// attention_layers.h and recurrent_layers.h.
//
// The name of a layer is mandatory. Its variables are called <name>/W, <name>/b, ..., below the
// variable scope in force; checkpoints use these names as keys. A second layer of the same name is
// an error naming both lines, unless the variable scope allows sharing
// (VariableReuse::kCreateOrGet). Variables have x's dtype; for x of f16 and bf16 they are f32.
// Layers compute in x's type (normalisations of f16 and bf16 in f32) and return it. Nodes record
// the line that called the layer. A layer that is not `trainable` is frozen: its variables are
// weights, but have no gradients. A VariableGetter around it may freeze them, too.
#pragma once
#include <string_view>

#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/dropout.h"
#include "belfry/towers/tower.h"

namespace belfry {

struct ConvLayer {
  int filters = 0;     // required
  PerAxis kernel = 3;  // height and width, pixels: 3, or {1, 7}
  PerAxis stride = 1;  // pixels
  bool bias = true;
  Initializer init = {};  // of W; Glorot uniform by default. Biases start at zero.
  // kSame, as in TensorFlow; kValid; or pixels, as in PyTorch: 1, or {top, bottom, left, right}.
  Padding padding = Padding::kSame;
  PerAxis dilation = 1;  // pixels from one tap of the kernel to the next
  int groups = 1;        // of channels, which divide C and filters (conv2d.h); C: depthwise
  bool trainable = true;
};

// x [N,H,W,C] -> [N,H',W',filters]; padding.h has the sizes. Variables W
// [filters,kernel,kernel,C/groups] and b [filters].
Output conv2d(Tower& tower, std::string_view name, Output x, ConvLayer layer, At at = {});

// x [N,H,W,C] -> [N,H',W',filters], larger by the stride (conv2d_transpose.h). H and W must be
// known. Variables W [C,kernel,kernel,filters/groups] and b [filters].
Output conv2d_transpose(Tower& tower, std::string_view name, Output x, ConvLayer layer, At at = {});

struct Conv1dLayer {
  int filters = 0;  // required
  int kernel = 3;
  int stride = 1;
  bool bias = true;
  Initializer init = {};             // of W; Glorot uniform by default. Biases start at zero.
  Padding padding = Padding::kSame;  // or one number, or {before, after}
  int dilation = 1;
  int groups = 1;
  bool trainable = true;
};

// x [N,W,C] -> [N,W',filters] (ops/conv1d.h). Variables W [filters,kernel,C/groups] and b
// [filters].
Output conv1d(Tower& tower, std::string_view name, Output x, Conv1dLayer layer, At at = {});

struct DenseLayer {
  int units = 0;  // required
  bool bias = true;
  Initializer init = {};  // of W; Glorot uniform by default. Biases start at zero.
  bool trainable = true;
};

// x [...,in] -> [...,units] = x W + b, of any rank. Variables W [in,units] and b [units]. `in` must
// be known, and all other dimensions but one unless the rank is 2.
Output dense(Tower& tower, std::string_view name, Output x, DenseLayer layer, At at = {});

struct BatchNormLayer {
  double momentum = 0.9;  // average = momentum * average + (1 - momentum) * batch
  double epsilon = 1e-5;  // added to the variance
  bool synchronised = false;
  Initializer gamma = {};  // ones by default
  bool trainable = true;
};

// Normalises the last dimension of x [...,C]: gamma * (x - mean) / sqrt(variance + epsilon) + beta.
// Training towers use the mean and variance of their own batch; others use the moving averages,
// which training moves once per step by the combined moments of all towers (moving_average.h). From
// rank 4 on, a variance of n values is first multiplied by n / (n - 1), as in TensorFlow's and
// PyTorch's batch norm of images; batches themselves are normalised by the plain variance. If
// synchronised, training towers use the mean and variance of the batches of all towers, combined
// exactly (ops/normalization/batch_statistics.h). Every tower must then apply its synchronised
// layers in the same order, and one call after replicate() must take the gradients of all towers'
// losses. If neither gamma nor beta is trained, training towers use the moving averages, too, and
// nothing moves them. Variables gamma, beta [C]; mean/EMA (from 0) and variance/EMA (from 1), not
// trained, one copy for all towers, on /cpu:0.
Output batch_norm(Tower& tower, std::string_view name, Output x, BatchNormLayer layer = {},
                  At at = {});

struct LayerNormLayer {
  double epsilon = 1e-5;   // added to the variance
  bool bias = true;        // whether there is beta
  Initializer gamma = {};  // ones by default
  bool trainable = true;
};

// Normalises each row of x [n,...,C] separately (ops/normalization/layer_norm.h), the same way in
// all towers. Variables gamma and beta [C]; beta starts at zero.
Output layer_norm(Tower& tower, std::string_view name, Output x, LayerNormLayer layer = {},
                  At at = {});

struct RmsNormLayer {
  double epsilon = 1e-6;   // added to the mean square
  Initializer gamma = {};  // ones by default
  bool trainable = true;
};

// Divides each row of x [n,...,C] by the root of its mean square. Variable gamma [C].
Output rms_norm(Tower& tower, std::string_view name, Output x, RmsNormLayer layer = {}, At at = {});

struct GroupNormLayer {
  int groups = 0;          // required; they divide the channels
  double epsilon = 1e-5;   // added to the variance
  Initializer gamma = {};  // ones by default
  bool trainable = true;
};

// Normalises each group of neighbouring channels of each sample of x [N,...,C] by its own mean and
// variance (ops/normalization/group_norm.h), the same way in all towers. Variables gamma and beta
// [C]; beta starts at zero.
Output group_norm(Tower& tower, std::string_view name, Output x, GroupNormLayer layer, At at = {});

struct InstanceNormLayer {
  double epsilon = 1e-5;   // added to the variance
  bool affine = false;     // whether there are gamma and beta; not by default, as in PyTorch
  Initializer gamma = {};  // ones by default
  bool trainable = true;
};

// Normalises each channel of each sample of x [N,...,C] by its own mean and variance, in
// evaluations, too. Variables gamma and beta [C] if affine.
Output instance_norm(Tower& tower, std::string_view name, Output x, InstanceNormLayer layer = {},
                     At at = {});

struct EmbeddingLayer {
  int rows = 0;               // required: how many ids there are
  int width = 0;              // required: elements of a row
  Initializer init = {};      // of the table; normal with deviation 0.02 by default
  DType dtype = DType::kF32;  // of the result, and of the table unless it is f16 or bf16
  bool trainable = true;
};

// ids [...] i32 or i64 -> [...,width]: the rows of the table with these numbers. A run fails if an
// id is not in [0, rows). Variable table [rows,width], with the same layout everywhere
// (weight_layout.h).
Output embedding(Tower& tower, std::string_view name, Output ids, EmbeddingLayer layer, At at = {});

// Zeroes elements with probability `rate` in training towers, and scales the others by 1 / (1 -
// rate); the identity elsewhere.
Output dropout(Tower& tower, Output x, double rate, At at = {});

// Random numbers [N,shape...] for the N rows of `samples`, such as an input of the model, whose
// values do not matter. They depend only on (graph seed, logical name, step, row of the batch of
// all towers), so any number of devices and processes draws the same. No gradient passes. Towers
// that do not train draw, too, but by the number of the sample in the data instead of step and row:
// what an evaluation finds depends on the weights alone. random_normal(tower.graph(), shape)
// differs between towers instead.
Output random_normal(Tower& tower, Output samples, Shape shape, double stddev = 1,
                     DType dtype = DType::kF32, At at = {});
Output random_uniform(Tower& tower, Output samples, Shape shape, double low = 0, double high = 1,
                      DType dtype = DType::kF32, At at = {});

}  // namespace belfry
