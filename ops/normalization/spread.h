// Combines the moments of two parts of a batch, on hosts and GPUs.
#pragma once
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {

// The mean of `count` values, and the sum of their squared distances from it.
template <class T>
struct Spread {
  T count, mean, squares;
};

// Chan et al. (1979).
template <class T>
BELFRY_HD Spread<T> combined(const Spread<T>& a, const Spread<T>& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const T count = a.count + b.count, distance = b.mean - a.mean;
  const T share = a.count == b.count ? T(0.5) : b.count / count;  // a division is slow
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * (a.count * share)};
}

}  // namespace belfry::kernels
