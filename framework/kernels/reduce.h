// Sums and maxima in a fixed order, which depends only on the number of terms: not on the vector
// width, the instruction set, the range or the place of the data. All orders are trees of
// logarithmic depth, so rounding errors grow with the logarithm of the number of terms.
//
// A "fold" of n terms cuts them into blocks of 1024. Inside a block it adds the second half to the
// first, element by element, until one is left; missing terms change nothing. It adds the blocks'
// results pairwise. T is f32 or f64, for tree_sum also i32. Pointers are to element 0 of whole
// tensors.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/framework/kernels/half.h"

namespace belfry::kernels {

// The fold of x[0], ..., x[n - 1]. No terms give -0, the neutral element.
template <class T>
T sum(const T* x, std::int64_t n);

// y[r] = fold of row r of x [.., columns], for rows [begin, end).
template <class T>
void row_sums(const T* x, std::int64_t columns, T* y, std::int64_t begin, std::int64_t end);

// Like row_sums(), with the maximum: NaN if the row has one, -inf if it is empty.
template <class T>
void row_maxima(const T* x, std::int64_t columns, T* y, std::int64_t begin, std::int64_t end);

// y[c] = sum of column c of x [rows, columns], for columns [begin, end): a fold with blocks of 8.
template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t columns, T* y, std::int64_t begin,
                 std::int64_t end);

// The canonical sum over towers and shards: the balanced tree over the inputs, split at ceil(n /
// 2), left + right. Writes elements [begin, end) of every output. Integers wrap. There is at least
// one input and one output; all point at T. An output may be an input (an all-reduce in place) or
// another output, but no other overlap is allowed.
template <class T>
void tree_sum(std::span<const void* const> inputs, std::span<void* const> outputs,
              std::int64_t begin, std::int64_t end);

// Like tree_sum(), divided once by `divisor` at the end. f32 and f64 only.
template <class T>
void tree_mean(std::span<const void* const> inputs, std::span<void* const> outputs, T divisor,
               std::int64_t begin, std::int64_t end);

// Like tree_mean(), for f16 or bf16, whichever `convert` is for. It converts the inputs to f32,
// sums and divides there, and rounds once. A divisor of 1 gives the sum.
void tree_sum_16(const HalfConversion& convert, std::span<const void* const> inputs,
                 std::span<void* const> outputs, float divisor, std::int64_t begin,
                 std::int64_t end);

}  // namespace belfry::kernels
