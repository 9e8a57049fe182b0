// Sees every allocation of the program by operator new, and of tensors by their Allocator.
#pragma once
#include <cstddef>

namespace belfry::test {

// Of the bytes asked for at once since forget_allocations().
std::size_t largest_allocation();
void forget_allocations();

}  // namespace belfry::test
