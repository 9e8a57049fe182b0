// The optimizers' updates, in one source, as the ops of ops/pointwise.cu.
#include "belfry/framework/cuda/gpu_kernel.h"
#include "belfry/framework/cuda/launch.h"
#include "belfry/framework/cuda/pack.h"
#include "belfry/ops/adam_update.h"
#include "belfry/ops/kernels/update_steps.h"
#include "belfry/ops/momentum_update.h"
#include "belfry/ops/sgd_update.h"

namespace belfry::cuda {
namespace {

// What an update is made of: read() takes the rate and so on from the GPU's memory and tells
// whether they can be used.
template <class T>
struct Sgd {
  using Step = kernels::SgdStep<T>;
  static constexpr int kVariables = 1;
  const T* rate;
  BELFRY_HD bool read(Step& step) const {
    step = {*rate};
    return true;
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0]); }
};

template <class T>
struct Momentum {
  using Step = kernels::MomentumStep<T>;
  static constexpr int kVariables = 2;
  T momentum;
  const T* rate;
  BELFRY_HD bool read(Step& step) const {
    step = {momentum, *rate};
    return true;
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1]); }
};

template <class T>
struct Adam {
  using Step = kernels::AdamStep<T>;
  static constexpr int kVariables = 3;
  AdamUpdateOptions options;
  const std::int64_t* count;
  const T* rate;
  Fault* fault;
  BELFRY_HD bool read(Step& step) const {
    if (*count < 1) {
      note(fault, 0, *count);
      return false;
    }
    step = Step::at(options, *count, *rate);
    return true;
  }
  BELFRY_HD static void apply(const Step& step, T g, T* at) { step(g, at[0], at[1], at[2]); }
};

// Elements [0, count) of the variables. A thread takes a Pack of each.
template <class U, class T>
struct Update {
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
      constexpr int kSize = Pack<T>::kSize, n = U::kVariables;
      const std::int64_t first = (block.index * block.threads + thread) * kSize;
      if (packed && first + kSize <= count) {
        const auto g = *reinterpret_cast<const Pack<T>*>(gradient + first);
        Pack<T> packs[n];
        for (int k = 0; k < n; ++k) packs[k] = *reinterpret_cast<Pack<T>*>(variable[k] + first);
        for (int j = 0; j < kSize; ++j) {
          T at[n];
          for (int k = 0; k < n; ++k) at[k] = packs[k].at[j];
          U::apply(shared.step, g.at[j], at);
          for (int k = 0; k < n; ++k) packs[k].at[j] = at[k];
        }
        for (int k = 0; k < n; ++k) *reinterpret_cast<Pack<T>*>(variable[k] + first) = packs[k];
        return;
      }
      for (std::int64_t i = first; i < first + kSize && i < count; ++i) {
        T at[n];
        for (int k = 0; k < n; ++k) at[k] = variable[k][i];
        U::apply(shared.step, gradient[i], at);
        for (int k = 0; k < n; ++k) variable[k][i] = at[k];
      }
    });
  }
};

template <class T, class U>
void update(Queue& queue, const Pointers& p, const U& how, std::size_t gradient) {
  Update<U, T> kernel{how, p.end() - p.begin(), true, p.input<T>(gradient) + p.begin(), {}};
  kernel.packed = on_16_bytes(kernel.gradient);
  for (int k = 0; k < U::kVariables; ++k) {
    kernel.variable[k] = p.written<T>(static_cast<std::size_t>(k)) + p.begin();
    kernel.packed = kernel.packed && on_16_bytes(kernel.variable[k]);
  }
  launch(queue, kernel, grid_of_packs<T>(kernel.count));
}

QueueRun sgd(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> QueueRun {
    return [](const Pointers& p, Queue& queue) { update<T>(queue, p, Sgd<T>{p.input<T>(2)}, 1); };
  });
}

QueueRun momentum(KernelPlan& plan) {
  const double momentum = plan.options<MomentumUpdateOptions>().momentum;
  return visit_floating(plan.dtype(), [momentum]<class T>(T) -> QueueRun {
    return [m = static_cast<T>(momentum)](const Pointers& p, Queue& queue) {
      update<T>(queue, p, Momentum<T>{m, p.input<T>(3)}, 2);
    };
  });
}

QueueRun adam(KernelPlan& plan) {
  const auto refusal = std::make_shared<const Refusal>(
      [&node = plan.node()](std::int64_t, std::int64_t step) { refuse_adam_step(node, step); });
  const auto options = plan.options<AdamUpdateOptions>();
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [refusal, options](const Pointers& p, Queue& queue) {
      const Adam<T> adam{options, p.input<std::int64_t>(3), p.input<T>(5), queue.fault(refusal)};
      update<T>(queue, p, adam, 4);
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kSgdUpdate, sgd},
    {kMomentumUpdate, momentum},
    {kAdamUpdate, adam},
};

}  // namespace
}  // namespace belfry::cuda
