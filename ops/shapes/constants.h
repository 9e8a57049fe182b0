// Constants by their NumPy names. `zeros` and `ones` are made where they are used (fill.h); the
// others are stored. f32 unless another type is given.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

Output zeros(Graph& graph, Shape shape, DType dtype = DType::kF32, At at = {});
Output ones(Graph& graph, Shape shape, DType dtype = DType::kF32, At at = {});
// Of x's type and shape, also where that is unknown until the graph runs.
Output zeros_like(Output x, At at = {});
Output ones_like(Output x, At at = {});

// The n x n matrix with ones on its diagonal, or the first `columns` columns of a larger one.
Output eye(Graph& graph, std::int64_t n, DType dtype = DType::kF32, At at = {});
Output eye(Graph& graph, std::int64_t n, std::int64_t columns, DType dtype = DType::kF32,
           At at = {});

// begin, begin + step, ..., all before end.
Output arange(Graph& graph, double begin, double end, double step = 1, DType dtype = DType::kF32,
              At at = {});
// `count` numbers at equal distances, from `begin` to `end`, both of which are among them.
Output linspace(Graph& graph, double begin, double end, std::int64_t count,
                DType dtype = DType::kF32, At at = {});

// [n,time]: row i has ones at the first lengths[i] places, and zeros after them. Weights of
// sequences that are filled up, for weighted_mean(). `lengths`: integers [n].
Output sequence_mask(Output lengths, std::int64_t time, DType dtype = DType::kF32, At at = {});

}  // namespace belfry
