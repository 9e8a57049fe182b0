// The joint norm of many tensors, and gradients that are clipped by it.
//
//   std::vector<Output> clipped = clip_by_global_norm(gradients, 1.0);
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Selects tensors of a list: their positions, in increasing order, and the length of the list.
struct SumsOfSquaresOptions {
  std::vector<int> positions;
  int count = 0;
};

// Tensors f32 or f64 -> f64 [count]: at their positions the sums of their squares, 0 elsewhere.
// Each sum is added in f64 along one fixed tree, so its bits do not depend on devices or threads.
extern const Op kSumsOfSquares;
// Rows f16, bf16, f32 or f64 -> f64: the sum of squares of each block of kernels::kSquarePart
// elements of a row, row by row; the last block of a row may be shorter. If a tensor is cut between
// blocks, its parts have the blocks of the tensor.
extern const Op kSquaresOfBlocks;
// Blocks f64 -> f64 [count]: the result of kSumsOfSquares for the tensors of these blocks.
extern const Op kSumsOfBlocks;
// One or more vectors f64 [count] -> f64 scalar, the root of the sum of all their elements.
extern const Op kGlobalNorm;

// Blocks [first[i], first[i] + blocks[i]) belong to tensor[i], after its earlier blocks.
struct SumsOfBlocksOptions {
  std::vector<int> tensor;
  std::vector<std::int64_t> first, blocks;
  int count = 0;  // of tensors
};

struct ClipFactorOptions {
  double max_norm = 1;  // finite, > 0
};

// A norm (f64 scalar) and perhaps a factor (f32 scalar) -> f32 scalar.
extern const Op kClipFactor;

// The root of the sum of the squares of all elements of xs, an f64 scalar, placed by the scopes in
// force. Each tensor is squared on its own device. The bits depend only on the values and the order
// of xs. Infinite or NaN if an element is. Throws InvalidArgument for an empty list.
Output global_norm(std::span<const Output> xs, At at = {});

// The same in two steps. First one vector per device of xs, f64 [size of xs], with the sums of
// squares of the tensors there and 0 for others; then the norm of vectors that count each tensor
// once.
std::vector<Output> sums_of_squares(std::span<const Output> xs, At at = {});
Output norm_of_sums(std::span<const Output> sums, At at = {});

// The same for tensors of which each process has a part: the sums of this process's blocks, then
// the sums of whole tensors, or their norm, from the blocks of all processes.
Output squares_of_blocks(std::span<const Output> rows, At at = {});
Output sums_of_blocks(Output blocks, SumsOfBlocksOptions options, At at = {});
Output norm_of_blocks(Output blocks, SumsOfBlocksOptions options, At at = {});

// The factor that limits the norm of gradients to max_norm: min(1, max_norm / norm), and NaN if the
// norm is infinite or NaN, as in TensorFlow. `times`: another factor of these gradients
// (ScaledGradient), which the result includes and `norm` does not. The result is 0 if and only if
// `times` is.
Output clip_factor(Output norm, double max_norm, Output times = {}, At at = {});

// TensorFlow's clip_by_global_norm: multiplies each of xs, on its device, by min(1, max_norm /
// global_norm(xs)). The factor is f32; 16 bits are multiplied in f32 and rounded once. Throws
// InvalidArgument for an empty list, and unless 0 < max_norm < infinity.
std::vector<Output> clip_by_global_norm(std::span<const Output> xs, double max_norm, At at = {});

}  // namespace belfry
