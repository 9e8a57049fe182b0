// Attention of joined queries, keys and values by kernels of separate ones, between copies: what
// the variant `attention.joined` saves.
#pragma once
#include <array>
#include <vector>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/by_products.cuh"

namespace belfry::cuda::between_copies {

// An element per thread; steps are in elements.
template <class T>
struct CopyColumns {
  using Shared = Nothing;
  std::int64_t rows, columns, from_step, to_step;
  const T* from;
  T* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= rows * columns) return;
      to[i / columns * to_step + i % columns] = from[i / columns * from_step + i % columns];
    });
  }
};

// Where the three parts are in the workspace, and how they are copied.
class Parts {
 public:
  Parts(const AttentionShape& shape, DType dtype, by_products::Layout& layout)
      : shape_(shape), dtype_(dtype) {
    for (std::size_t i = 0; i < 3; ++i) at_[i] = layout.add(type(i).bytes());
  }
  TensorType type(std::size_t i) const { return {{shape_.batch, shape_.keys, columns(i)}, dtype_}; }
  void* at(const KernelPointers& p, std::size_t i) const { return p.workspace() + at_[i]; }
  // From the tensor of all three, or back to it.
  void separate(const KernelPointers& p, KernelQueue& queue, const void* joined) const {
    each([&]<class T>(std::size_t i, T, std::int64_t before) {
      copy(queue, i, shape_.q_step(), columns(i), static_cast<const T*>(joined) + before,
           static_cast<T*>(at(p, i)));
    });
  }
  void join(const KernelPointers& p, KernelQueue& queue, void* joined) const {
    each([&]<class T>(std::size_t i, T, std::int64_t before) {
      copy(queue, i, columns(i), shape_.q_step(), static_cast<const T*>(at(p, i)),
           static_cast<T*>(joined) + before);
    });
  }

 private:
  std::int64_t columns(std::size_t i) const {
    return (i == 0 ? shape_.heads : shape_.kv_heads) * shape_.head_dim;
  }
  // Calls f(i, T, the columns before part i), where T is as wide as an element.
  template <class F>
  void each(const F& f) const {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < 3; before += columns(i++)) {
      if (size_of(dtype_) == 2)
        f(i, std::uint16_t(), before);
      else if (size_of(dtype_) == 4)
        f(i, std::uint32_t(), before);
      else
        f(i, std::uint64_t(), before);
    }
  }
  template <class T>
  void copy(KernelQueue& queue, std::size_t i, std::int64_t from_step, std::int64_t to_step,
            const T* from, T* to) const {
    const std::int64_t rows = shape_.batch * shape_.keys;
    launch(queue, CopyColumns<T>{rows, columns(i), from_step, to_step, from, to},
           grid_for(rows * columns(i)));
  }

  AttentionShape shape_;
  DType dtype_;
  std::int64_t at_[3];
};

// A joined op by prepare(plan of the separate op). `first` as for attention_shape_of().
template <class Prepare>
QueueRun prepare(KernelPlan& plan, std::size_t first, const Prepare& prepare_apart) {
  by_products::Layout layout;
  const AttentionShape shape = kernels::attention_shape_of(plan, first);
  const bool gradient = first == 1;
  const Parts qkv(shape, plan.dtype(), layout), grads(shape, plan.dtype(), layout);
  std::vector<TensorType> inputs, outputs;
  const auto add = [&](std::vector<TensorType>& types, bool joined, const TensorType& type) {
    if (!joined) return types.push_back(type);
    for (std::size_t part = 0; part < 3; ++part) types.push_back(qkv.type(part));
  };
  for (std::size_t i = 0; i < plan.inputs(); ++i) add(inputs, i == first, plan.input(i));
  for (std::size_t i = 0; i < plan.outputs(); ++i) add(outputs, gradient && i == 0, plan.output(i));
  KernelPlan apart(plan.node(), inputs, outputs, plan.range());
  apart.set_op(gradient ? kAttentionGrad : kAttention);
  apart.set_batch(plan.batch());
  QueueRun run = prepare_apart(apart);
  plan.workspace(layout.bytes() + apart.workspace_bytes());
  return [qkv, grads, first, gradient, bytes = layout.bytes(), run = std::move(run)](
             const KernelPointers& p, KernelQueue& queue) {
    std::array<void*, 8> in;
    std::array<void*, 4> out;
    std::size_t ins = 0, outs = 0;
    for (std::size_t i = 0; i < p.inputs(); ++i) {
      if (i != first) in[ins++] = p.mutable_inputs()[i];
      for (std::size_t part = 0; i == first && part < 3; ++part) in[ins++] = qkv.at(p, part);
    }
    for (std::size_t i = 0; i < p.outputs(); ++i) {
      const bool joined = gradient && i == 0;
      if (!joined) out[outs++] = p.output<void>(i);
      for (std::size_t part = 0; joined && part < 3; ++part) out[outs++] = grads.at(p, part);
    }
    qkv.separate(p, queue, p.input<void>(first));
    run(KernelPointers(std::span(in).first(ins), std::span(out).first(outs), p.workspace() + bytes,
                       {p.begin(), p.end()}, p.step(), p.first_row()),
        queue);
    if (gradient) grads.join(p, queue, p.output<void>(0));
  };
}

}  // namespace belfry::cuda::between_copies
