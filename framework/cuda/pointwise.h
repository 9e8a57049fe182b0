// Kernels of pointwise ops from their functors; for sources that nvcc compiles.
#pragma once
#include "belfry/framework/cuda/gpu_kernel.h"
#include "belfry/framework/cuda/launch.h"

namespace belfry::cuda {

// What a thread reads or writes at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

// y[i] = f(x[0][i], ...) for i < count; N is 1 or 2. An output may be an input. A thread takes
// Pack<T>::kSize elements, 16 bytes at once where all tensors start at a multiple of them.
template <class F, class T, int N>
struct Map {
  using Shared = Nothing;
  F f;
  std::int64_t count;
  bool packed;
  T* y;
  const T* x[N];

  BELFRY_HD T value(const Pack<T>* in, int j) const {
    if constexpr (N == 1)
      return f(in[0].at[j]);
    else
      return f(in[0].at[j], in[1].at[j]);
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

template <class F, class T, int N>
void map(Queue& queue, const Pointers& p) {
  Map<F, T, N> kernel{.count = p.end() - p.begin(), .y = p.output<T>() + p.begin()};
  const auto misaligned = [](const T* q) { return reinterpret_cast<std::uintptr_t>(q) % 16 != 0; };
  kernel.packed = !misaligned(kernel.y);
  for (int n = 0; n < N; ++n) {
    kernel.x[n] = p.input<T>(static_cast<std::size_t>(n)) + p.begin();
    kernel.packed = kernel.packed && !misaligned(kernel.x[n]);
  }
  constexpr int kSize = Pack<T>::kSize;
  launch(queue, kernel, grid_for((kernel.count + kSize - 1) / kSize));
}

// The kernel of y = F(x), or y = F(a, b) for equal shapes.
template <class F, int N>
GpuRun pointwise(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> GpuRun {
    return [](const Pointers& p, Queue& queue) { map<F, T, N>(queue, p); };
  });
}
template <class F>
GpuRun unary(KernelPlan& plan) {
  return pointwise<F, 1>(plan);
}
template <class F>
GpuRun binary(KernelPlan& plan) {
  return pointwise<F, 2>(plan);
}

}  // namespace belfry::cuda
