// The norm of many tensors together, and gradients that are clipped by it.
//
//   std::vector<Output> clipped = clip_by_global_norm(gradients, 1.0);
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Of some tensors of a list: which, in rising order, and how many the list has.
struct SumsOfSquaresOptions {
  std::vector<int> positions;
  int count = 0;
};

// Tensors f32 or f64 -> f64 [count]: at their positions the sums of their squares, 0 elsewhere.
// Each is added in f64 along one tree, so its bits do not depend on devices or threads.
extern const Op kSumsOfSquares;
// Rows f16, bf16, f32 or f64 -> f64: the sum of squares of each block of kernels::kSquarePart
// elements of a row, row by row; the last block of a row may be shorter. A tensor that is cut
// between blocks has the blocks of its parts.
extern const Op kSquaresOfBlocks;
// f64 -> f64 [count]: what kSumsOfSquares gives for tensors whose blocks these are.
extern const Op kSumsOfBlocks;
// One or more vectors f64 [count] -> f64 scalar, the root of the sum of all their elements.
extern const Op kGlobalNorm;

// Blocks [first[i], first[i] + blocks[i]) belong to tensor[i], behind those that it has so far.
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

// The root of the sum of the squares of all elements of xs, an f64 scalar: the scopes in force say
// where. Each tensor is squared on its own device. Its bits depend on the values and the order of
// xs alone. Infinite or NaN if an element is. Throws InvalidArgument for an empty list.
Output global_norm(std::span<const Output> xs, At at = {});

// The same in two steps, for tensors that processes have in parts: the sums of blocks of rows here,
// and the norm by those of all.
Output squares_of_blocks(std::span<const Output> rows, At at = {});
Output norm_of_blocks(Output blocks, SumsOfBlocksOptions options, At at = {});

// What to multiply gradients by so that their norm is at most max_norm: min(1, max_norm / norm),
// and NaN if that is infinite or NaN, as in TensorFlow. `times`: a factor that they get anyway
// (ScaledGradient), which `norm` is without, and the result with; where it is 0, so is the result,
// and only there.
Output clip_factor(Output norm, double max_norm, Output times = {}, At at = {});

// Each of xs times min(1, max_norm / global_norm(xs)), beside it: TensorFlow's clip_by_global_norm.
// The factor is f32; 16 bits are multiplied in f32 and rounded once. Throws InvalidArgument for an
// empty list, and unless 0 < max_norm < infinity.
std::vector<Output> clip_by_global_norm(std::span<const Output> xs, double max_norm, At at = {});

}  // namespace belfry
