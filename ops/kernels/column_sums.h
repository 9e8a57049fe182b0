// Sums over the rows of a tensor that is made block by block, while each block is in cache.
#pragma once
#include <cstdint>
#include <functional>

namespace belfry::kernels {

// Elements of scratch memory that column_sums_by_blocks() takes.
std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns);

// make(begin, end) fills rows [begin, end) of x [rows, columns]; y [columns] becomes the
// column_sums() of all rows. f32 and f64.
template <class T>
void column_sums_by_blocks(const T* x, std::int64_t rows, std::int64_t columns,
                           const std::function<void(std::int64_t begin, std::int64_t end)>& make,
                           T* y, T* scratch);

}  // namespace belfry::kernels
