// Accesses of several elements at once, mostly of 16 bytes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "belfry/framework/cuda/kernels/block.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {

using kernels::Stored;
// The type that elements of type X are computed in.
template <class X>
using Wide = typename Stored<X>::Type;

// Elements that a thread reads or writes at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

// N elements side by side, aligned to their joint size.
template <class X, int N>
struct alignas(sizeof(X) * N) Lanes {
  X at[N];

  BELFRY_HD static Lanes load(const X* from) { return *reinterpret_cast<const Lanes*>(from); }
  BELFRY_HD void store(X* to) const { *reinterpret_cast<Lanes*>(to) = *this; }
  BELFRY_HD Wide<X> wide(int j) const { return Stored<X>::widen(at[j]); }
};

inline bool on_16_bytes(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Calls f with the lanes of a thread as an integral constant: Pack<X>::kSize if the addresses and
// rows of `columns` elements allow it, else 1. Null pointers count as aligned.
template <class X, class F>
void visit_lanes(std::int64_t columns, std::initializer_list<const void*> tensors, const F& f) {
  bool packed = columns % Pack<X>::kSize == 0;
  for (const void* tensor : tensors) packed = packed && on_16_bytes(tensor);
  if (packed)
    f(std::integral_constant<int, Pack<X>::kSize>{});
  else
    f(std::integral_constant<int, 1>{});
}

// Enough blocks for a thread per Pack of `count` elements.
template <class T>
Grid grid_of_packs(std::int64_t count) {
  return grid_for((count + Pack<T>::kSize - 1) / Pack<T>::kSize);
}

}  // namespace belfry::cuda
