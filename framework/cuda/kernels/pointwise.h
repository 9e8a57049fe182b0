// Kernels of pointwise ops from their functors; for sources that nvcc compiles.
#pragma once
#include <type_traits>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/strides.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {

// y[i] = f(x[0][i], ...) for i < count; N is 1 or 2. An output may be an input. A thread takes
// Pack<T>::kSize elements, at once if all tensors start at a multiple of 16 bytes. F16 and BF16 are
// computed in f32 and rounded.
template <class F, class T, int N>
struct Map {
  using Shared = Nothing;
  F f;
  std::int64_t count;
  bool packed;
  T* y;
  const T* x[N];

  BELFRY_HD T value(const Pack<T>* in, int j) const {
    using S = Stored<T>;
    if constexpr (N == 1)
      return S::narrow(f(S::widen(in[0].at[j])));
    else
      return S::narrow(f(S::widen(in[0].at[j]), S::widen(in[1].at[j])));
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first = (block.index * block.threads + thread) * kSize;
      if (packed && first + kSize <= count) {
        Pack<T> in[N], out;
        for (int n = 0; n < N; ++n) in[n] = *reinterpret_cast<const Pack<T>*>(x[n] + first);
        for (int j = 0; j < kSize; ++j) out.at[j] = value(in, j);
        *reinterpret_cast<Pack<T>*>(y + first) = out;
        return;
      }
      for (std::int64_t i = first; i < first + kSize && i < count; ++i) {
        Pack<T> in[N];
        for (int n = 0; n < N; ++n) in[n].at[0] = x[n][i];
        y[i] = value(in, 0);
      }
    });
  }
};

// Sets `packed`, then launches.
template <class F, class T, int N>
void launch_map(KernelQueue& queue, Map<F, T, N>& kernel) {
  kernel.packed = on_16_bytes(kernel.y);
  for (const T* x : kernel.x) kernel.packed = kernel.packed && on_16_bytes(x);
  launch(queue, kernel, grid_of_packs<T>(kernel.count));
}

template <class F, class T, int N>
void map(KernelQueue& queue, const KernelPointers& p) {
  Map<F, T, N> kernel{.count = p.end() - p.begin(), .y = p.output<T>() + p.begin()};
  for (int n = 0; n < N; ++n) kernel.x[n] = p.input<T>(static_cast<std::size_t>(n)) + p.begin();
  launch_map(queue, kernel);
}

// Calls f(T{}) for f16 bf16 f32 f64.
template <class F>
auto visit_stored(DType dtype, const F& f) {
  return kernels::visit_half_or(
      dtype, [](DType other, const F& g) { return visit_floating(other, g); }, f);
}

// The kernel of y = F(x), or y = F(a, b) for equal shapes.
template <class F, int N>
QueueRun pointwise(KernelPlan& plan) {
  static_assert(std::is_empty_v<F>, "one with options must be given them: launch a Map of it");
  return visit_stored(plan.dtype(), []<class T>(T) -> QueueRun {
    return [](const KernelPointers& p, KernelQueue& queue) { map<F, T, N>(queue, p); };
  });
}
template <class F>
QueueRun unary(KernelPlan& plan) {
  return pointwise<F, 1>(plan);
}
template <class F>
QueueRun binary(KernelPlan& plan) {
  return pointwise<F, 2>(plan);
}

// y[i] = f(a[..], b[..]) for begin <= i < end. An output may be an input of its shape.
template <class F, class T>
struct MapBroadcast {
  using Shared = Nothing;
  F f;
  Strides strides;
  std::int64_t begin, end;
  bool packed;  // a pack of y lies in one row, and all tensors start at multiples of 16 bytes
  T* y;
  const T *a, *b;

  BELFRY_HD T value(T left, T right) const {
    return Stored<T>::narrow(f(Stored<T>::widen(left), Stored<T>::widen(right)));
  }
  BELFRY_HD static Pack<T> load(const T* from, bool runs) {
    if (runs) return *reinterpret_cast<const Pack<T>*>(from);
    Pack<T> same;
    for (int j = 0; j < Pack<T>::kSize; ++j) same.at[j] = *from;
    return same;
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first = begin + (block.index * block.threads + thread) * kSize;
      if (packed && first + kSize <= end) {
        const auto [left, right] = strides.at(first);
        const Pack<T> l = load(a + left, strides.a_runs), r = load(b + right, strides.b_runs);
        Pack<T> out;
        for (int j = 0; j < kSize; ++j) out.at[j] = value(l.at[j], r.at[j]);
        *reinterpret_cast<Pack<T>*>(y + first) = out;
        return;
      }
      for (std::int64_t i = first; i < first + kSize && i < end; ++i) {
        const auto [left, right] = strides.at(i);
        y[i] = value(a[left], b[right]);
      }
    });
  }
};

template <class T, class F>
void map_broadcast(KernelQueue& queue, const KernelPointers& p, F f, const Strides& strides) {
  MapBroadcast<F, T> kernel{f,     strides,       p.begin(),     p.end(),
                            false, p.output<T>(), p.input<T>(0), p.input<T>(1)};
  constexpr int kSize = Pack<T>::kSize;
  kernel.packed = (strides.outer == 0 || strides.inner % kSize == 0) && p.begin() % kSize == 0 &&
                  on_16_bytes(kernel.y) && (!strides.a_runs || on_16_bytes(kernel.a)) &&
                  (!strides.b_runs || on_16_bytes(kernel.b));
  launch(queue, kernel, grid_of_packs<T>(p.end() - p.begin()));
}

}  // namespace belfry::cuda
