// Kernels of updates, alone or after a sum; for sources that nvcc compiles. An update is:
//
//   template <class T>
//   struct Sgd {
//     using Step = kernels::SgdStep<T>;  // what it computes with
//     using Options = SgdUpdateOptions;  // of its nodes
//     static constexpr std::size_t kVariables = 1;  // it writes: its inputs 0..
//     static constexpr std::size_t kGradient = 1;   // the input
//     const T* rate;
//     // Takes the rate and so on from the GPU's memory; false if nothing is to be written: they
//     // cannot be used, or the gradient's factor is 0.
//     BELFRY_HD bool read(Step& step) const;
//     BELFRY_HD static void apply(const Step& step, T g, T* at);  // of each variable
//     // make(operands, queue) is the update in a launch.
//     static auto maker(const Node& node);
//   };
#pragma once
#include <memory>
#include <utility>

#include "belfry/framework/cuda/kernels/fused_kernel.h"
#include "belfry/framework/cuda/kernels/sum_kernel.h"

namespace belfry::cuda {

// The inputs of an update among those of its launch.
class Operands {
 public:
  explicit Operands(const KernelPointers& p) : inputs_(p.mutable_inputs()) {}
  Operands(const KernelPointers& p, const FusedTensors::Update& update)
      : inputs_(p.mutable_inputs()), update_(&update) {}

  template <class T>
  T* at(std::size_t i) const {
    return static_cast<T*>(inputs_[update_ ? static_cast<std::size_t>(update_->inputs[i]) : i]);
  }
  // The gradient's factor, input i; null if there are fewer inputs.
  const float* factor(std::size_t i) const {
    const std::size_t count = update_ ? update_->inputs.size() : inputs_.size();
    return i < count ? at<float>(i) : nullptr;
  }

 private:
  std::span<void* const> inputs_;
  const FusedTensors::Update* update_ = nullptr;
};

// The factor; 1 if it is left out.
template <class T>
BELFRY_HD T factor_at(const float* factor) {
  return factor ? static_cast<T>(*factor) : T(1);
}

// Updates elements first .. first + W - 1.
template <int W, class U, class T>
BELFRY_HD void apply_to(const typename U::Step& step, const T (&gradient)[W], T* const* variable,
                        std::int64_t first) {
  constexpr std::size_t n = U::kVariables;
  struct alignas(W == 1 ? alignof(T) : 16) Elements {
    T at[W];
  };
  Elements elements[n];
  for (std::size_t k = 0; k < n; ++k)
    elements[k] = *reinterpret_cast<const Elements*>(variable[k] + first);
  for (int j = 0; j < W; ++j) {
    T at[n];
    for (std::size_t k = 0; k < n; ++k) at[k] = elements[k].at[j];
    U::apply(step, gradient[j], at);
    for (std::size_t k = 0; k < n; ++k) elements[k].at[j] = at[k];
  }
  for (std::size_t k = 0; k < n; ++k) store(elements[k].at, variable[k] + first);
}

// Updates elements [0, count) of the variables. A thread takes a Pack of each.
template <class U, class T>
struct UpdateKernel {
  struct Shared {
    typename U::Step step;
    bool valid;
  };
  U update;
  std::int64_t count;
  bool packed;
  const T* gradient;
  T* variable[U::kVariables];

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) {
      if (thread == 0) shared.valid = update.read(shared.step);
    });
    block.each([&](int thread) {
      if (!shared.valid) return;
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first = (block.index * block.threads + thread) * kSize;
      if (packed && first + kSize <= count) {
        const auto g = *reinterpret_cast<const Pack<T>*>(gradient + first);
        return apply_to<kSize, U>(shared.step, g.at, variable, first);
      }
      for (std::int64_t i = first; i < first + kSize && i < count; ++i) {
        const T g[1] = {gradient[i]};
        apply_to<1, U>(shared.step, g, variable, i);
      }
    });
  }
};

template <template <class> class U>
QueueRun update(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [make = U<T>::maker(plan.node()),
            part_from = plan.options<typename U<T>::Options>().part_from,
            size = plan.input(U<T>::kGradient).shape.elements()](const KernelPointers& p,
                                                                 KernelQueue& queue) {
      const WorkRange range = part_from == 0 ? WorkRange{p.begin(), p.end()} : WorkRange{0, size};
      UpdateKernel<U<T>, T> kernel{make(Operands(p), queue),
                                   range.size(),
                                   true,
                                   p.input<T>(U<T>::kGradient) + range.begin,
                                   {}};
      kernel.packed = on_16_bytes(kernel.gradient);
      for (std::size_t k = 0; k < U<T>::kVariables; ++k) {
        kernel.variable[k] =
            p.written<T>(k) + range.begin + (k == 0 && part_from > 0 ? part_from - 1 : 0);
        kernel.packed = kernel.packed && on_16_bytes(kernel.variable[k]);
      }
      launch(queue, kernel, grid_of_packs<T>(kernel.count));
    };
  });
}

// Applies f32 sums; the sink's pointers are each update's variables.
template <class U>
struct Apply {
  static constexpr std::size_t kTensors = FusedTensors::kMostGrouped, kPointers = 160;
  static constexpr int kUpdates = FusedTensors::kMostOnGpus;
  struct Shared {
    typename U::Step step[kUpdates];
    bool valid[kUpdates];
  };

  U update[kUpdates];
  int first[kTensors], count[kTensors];  // updates of each tensor

  BELFRY_HD void prepare(int at, int thread, Shared& shared) const {
    if (thread < count[at])
      shared.valid[thread] = update[first[at] + thread].read(shared.step[thread]);
  }
  template <int W>
  BELFRY_HD void take(int at, std::int64_t i, const float (&sum)[W], void* const* to,
                      const Shared& shared) const {
    for (int u = 0; u < count[at]; ++u) {
      if (!shared.valid[u]) continue;
      float* variable[U::kVariables];
      for (std::size_t k = 0; k < U::kVariables; ++k)
        variable[k] = static_cast<float*>(to[static_cast<std::size_t>(u) * U::kVariables + k]);
      apply_to<W, U>(shared.step[u], sum, variable, i);
    }
  }
};

template <template <class> class Update>
QueueRun fused(const FusedGroup& group) {
  using U = Update<float>;
  using Make = decltype(U::maker(std::declval<const Node&>()));
  std::vector<Make> makers;
  for (const FusedTensors::Tensor& tensor : group.tensors)
    for (const FusedTensors::Update& update : tensor.updates)
      makers.push_back(U::maker(*update.member->node));
  return [group, makers](const KernelPointers& p, KernelQueue& queue) {
    SumLaunches<float, Apply<U>> launches(queue, group.towers,
                                          group.mean ? static_cast<int>(group.towers) : 1);
    auto make = makers.begin();
    int used = 0;  // updates of the launch
    for (const FusedTensors::Tensor& tensor : group.tensors) {
      const auto count = static_cast<int>(tensor.updates.size());
      if (used + count > Apply<U>::kUpdates) launches.flush();
      const int at =
          launches.add(p.all_inputs().subspan(tensor.first_input, group.towers),
                       tensor.updates.size() * U::kVariables, 0, tensor.type.shape.elements());
      if (at == 0) used = 0;
      Apply<U>& apply = launches.sink();
      apply.first[at] = used;
      apply.count[at] = count;
      for (const FusedTensors::Update& update : tensor.updates) {
        const Operands operands(p, update);
        apply.update[used++] = (*make++)(operands, queue);
        for (std::size_t k = 0; k < U::kVariables; ++k) launches.point(operands.at<float>(k));
      }
    }
    launches.flush();
  };
}

}  // namespace belfry::cuda
