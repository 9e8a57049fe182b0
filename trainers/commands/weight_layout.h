// The order of axes in which files hold weights.
//
// Belfry keeps the kernel of a convolution as [out, height, width, in], of one of sequences as
// [out, width, in], and the matrix of a dense or recurrent layer as [in, out] (towers/layers.h).
// PyTorch has [out, in, height, width], [out, in, width] and [out, in]. Kernels of transposed
// convolutions have `in` first in both.
//
// Names say which variables are such weights; a checkpoint does not. The layers conv2d,
// conv2d_transpose, conv1d, dense, lstm and gru call theirs <layer>/W, and nothing else that Belfry
// makes has that name. So the rule permutes the axes of weights of rank 2 to 4 whose name is W or
// ends with /W, frozen ones too. It also permutes their slots and averages, which are called
// <layer>/W/... and have the same shape. Everything else stays as it is: biases, batch norm, tables
// of embeddings, and variables that a program makes, unless they are called W.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/trainers/util/axis_order.h"

namespace belfry {

enum class WeightLayout : std::uint8_t { kBelfry, kTorch };
std::string_view name_of(WeightLayout layout);
// Throws InvalidArgument, with the known names.
WeightLayout find_weight_layout(std::string_view name);

// The order from Belfry's layout to `layout`, for the variable `name` of the manifest.
AxisOrder axis_order(const Manifest& manifest, const std::string& name, WeightLayout layout);

}  // namespace belfry
