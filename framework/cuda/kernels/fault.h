// A running kernel may find input that it cannot take, e.g. a label that is not a class. The kernel
// records it and continues; the host throws when it looks.
#pragma once
#include <cstdint>
#include <functional>

#include "belfry/framework/kernels/simd.h"

namespace belfry::cuda {

// Kernels record here, in memory of their GPU, the first element, in order, that they cannot take.
struct Fault {
  static constexpr unsigned long long kNone = ~0ull;
  unsigned long long first = kNone;  // element << 32 | value + 2^31, both clamped

  std::int64_t element() const { return static_cast<std::int64_t>(first >> 32); }
  std::int64_t value() const {
    return static_cast<std::int64_t>(first & 0xffffffff) - 0x80000000ll;
  }
};

BELFRY_HD void note(Fault* fault, std::int64_t element, std::int64_t value) {
  constexpr std::int64_t kMost = 0x7fffffff;
  const std::int64_t above = value > kMost ? kMost : value;
  const std::int64_t near = above < -kMost - 1 ? -kMost - 1 : above;
  const std::int64_t place = element < 0xfffffffell ? element : 0xfffffffell;
  const auto packed = static_cast<unsigned long long>(place) << 32 |
                      static_cast<unsigned long long>(near + kMost + 1);
#if defined(__CUDA_ARCH__)
  atomicMin(&fault->first, packed);  // of integers: the order does not matter
#else
  if (packed < fault->first) fault->first = packed;
#endif
}

// Throws the host's error for a Fault.
struct Refusal {
  std::function<void(std::int64_t element, std::int64_t value)> raise;
};

}  // namespace belfry::cuda
