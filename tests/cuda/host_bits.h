// Compares kernels of the GPU module with those of the host, for gpu_ops_tests.
#pragma once
#include <cstddef>
#include <vector>

#include "belfry/tests/support/grad_check.h"

namespace belfry::host_bits {

// Expects equal bits in f32 and f64.
void expect_host_bits(const Builder& build, const std::vector<Tensor>& inputs);
// The gradient of f with respect to input 0, along input `along`.
Builder gradient(const Builder& f, std::size_t along);
// i32 in [0, limit).
Tensor integers(Shape shape, int limit);

}  // namespace belfry::host_bits
