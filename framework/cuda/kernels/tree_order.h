// The canonical tree over n terms (kernels/reduce.h), for kernels that have no recursion.
#pragma once
#include <cstddef>
#include <cstdint>

namespace belfry::cuda {

// Makes the tree with a stack. Group g has size[g] neighbours, at most `few`; their tree's sum is
// pushed. Then the last two sums are added, additions[g] times.
template <int few, int most>
struct TreeOrder {
  static constexpr int kFew = few, kMost = most, kDepth = 9;  // of the stack
  int count = 0;
  std::uint8_t size[most], additions[most];

  // Call it once. There is room for `most` groups, and for 2^8 of them on the stack.
  void plan(std::size_t terms) {
    if (terms <= few) {
      size[count] = static_cast<std::uint8_t>(terms);
      additions[count++] = 0;
      return;
    }
    plan((terms + 1) / 2);
    plan(terms / 2);
    ++additions[count - 1];
  }
};

}  // namespace belfry::cuda
