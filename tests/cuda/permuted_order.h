// Orders in which hosts run the blocks of a launch and the threads of a phase.
#pragma once
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "belfry/framework/cuda/kernels/block.h"

namespace belfry::cuda {

// Order 1 reverses the numbers, so of each two threads the other one comes first. Orders 2, 3, ...
// are shuffled.
class PermutedOrder {
 public:
  PermutedOrder(int number, Grid grid)
      : random_(static_cast<std::uint64_t>(number)),
        blocks_(permuted<std::int64_t>(number, grid.blocks)),
        threads_(permuted<int>(number, grid.threads)) {}

  HostOrder order() const { return {blocks_.data(), threads_.data()}; }

 private:
  template <class T>
  std::vector<T> permuted(int number, T count) {
    std::vector<T> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), T(0));
    if (number == 1)
      std::ranges::reverse(all);
    else
      std::ranges::shuffle(all, random_);
    return all;
  }

  std::mt19937_64 random_;
  std::vector<std::int64_t> blocks_;
  std::vector<int> threads_;
};

}  // namespace belfry::cuda
