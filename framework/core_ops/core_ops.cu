// The ops of this folder, in one source, as those of ops/pointwise.cu.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/cuda/fill.h"
#include "belfry/framework/cuda/pointwise.h"
#include "belfry/framework/cuda/tree_sum.h"
#include "belfry/framework/kernels/counter.h"

namespace belfry::cuda {
namespace {

QueueRun nothing(KernelPlan&) {
  return [](const Pointers&, Queue&) {};
}

QueueRun add_n(KernelPlan& plan) {
  TreeSum sum(plan, plan.inputs(), 1, false);
  sum.append(plan.output().shape.elements());
  return sum;
}

struct Same {
  BELFRY_HD std::uint8_t operator()(std::uint8_t x) const { return x; }
};

// Elements [begin, end) of a copy, as bytes.
void copy_bytes(Queue& queue, const Pointers& p, std::int64_t unit, const void* from, void* to) {
  const std::int64_t begin = p.begin() * unit;
  Map<Same, std::uint8_t, 1> kernel{.count = p.end() * unit - begin,
                                    .y = static_cast<std::uint8_t*>(to) + begin,
                                    .x = {static_cast<const std::uint8_t*>(from) + begin}};
  launch_map(queue, kernel);
}

QueueRun copy(KernelPlan& plan) {
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [unit](const Pointers& p, Queue& queue) {
    copy_bytes(queue, p, unit, p.input<void>(0), p.output<void>());
  };
}

QueueRun assign(KernelPlan& plan) {
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [unit](const Pointers& p, Queue& queue) {
    copy_bytes(queue, p, unit, p.input<void>(1), p.written<void>(0));
  };
}

// Integers wrap.
template <int sign>
struct Plus {
  template <class T>
  BELFRY_HD T operator()(T old, T delta) const {
    if constexpr (std::is_integral_v<T>) {
      const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(delta);
      return static_cast<T>(sign > 0 ? a + b : a - b);
    } else {
      return sign > 0 ? old + delta : old - delta;
    }
  }
};

template <int sign>
QueueRun assign_plus(KernelPlan& plan) {
  return visit_any(plan.dtype(), []<class T>(T) -> QueueRun {
    return [](const Pointers& p, Queue& queue) {
      Map<Plus<sign>, T, 2> kernel{.count = p.end() - p.begin(),
                                   .y = p.written<T>(0) + p.begin(),
                                   .x = {p.input<T>(0) + p.begin(), p.input<T>(1) + p.begin()}};
      launch_map(queue, kernel);
    };
  });
}

QueueRun fill_with(double value, DType dtype) {
  const auto unit = static_cast<std::int64_t>(size_of(dtype));
  Pack<std::uint8_t> pattern{};
  if (size_of(dtype) != sizeof(std::uint16_t))  // of which there are zeros alone
    visit_any(dtype, [&]<class T>(T) {
      const T v = static_cast<T>(value);
      for (std::size_t i = 0; i < sizeof(pattern); i += sizeof(T))
        std::memcpy(pattern.at + i, &v, sizeof(T));
    });
  return [=](const Pointers& p, Queue& queue) {
    fill_bytes(queue, pattern, p.output<std::uint8_t>() + p.begin() * unit,
               (p.end() - p.begin()) * unit);
  };
}

QueueRun fill(KernelPlan& plan) { return fill_with(plan.options<FillOptions>().value, plan.dtype()); }
QueueRun fill_like(KernelPlan& plan) {
  return fill_with(plan.options<FillLikeOptions>().value, plan.dtype());
}

// y[i] = draw(key, *step, i).
template <class Draw, class T>
struct RandomNumbers {
  using Shared = Nothing;
  Draw draw;
  std::uint64_t key;
  const std::uint64_t* step;
  std::int64_t begin, end;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i < end) y[i] = static_cast<T>(draw(key, *step, static_cast<std::uint64_t>(i)));
    });
  }
};

template <class Draw>
QueueRun random_numbers(const KernelPlan& plan, Draw draw) {
  return visit_floating(plan.dtype(), [draw, key = random_key(plan.node())]<class T>(T) -> QueueRun {
    return [draw, key](const Pointers& p, Queue& queue) {
      launch(queue, RandomNumbers<Draw, T>{draw, key, queue.step(), p.begin(), p.end(), p.output<T>()},
             grid_for(p.end() - p.begin()));
    };
  });
}

QueueRun random_uniform(KernelPlan& plan) {
  const auto& options = plan.options<RandomUniformOptions>();
  return random_numbers(plan, functors::Uniform{options.low, options.high - options.low});
}
QueueRun random_normal(KernelPlan& plan) {
  return random_numbers(plan, functors::Normal{plan.options<RandomNormalOptions>().stddev});
}

const GpuKernel kernels_of_ops[] = {
    {kNoOp, nothing},
    {kAddN, add_n},
    {kCopy, copy},
    {kAssign, assign},
    {kAssignAdd, assign_plus<1>},
    {kAssignSub, assign_plus<-1>},
    {kFill, fill},
    {kFillLike, fill_like},
    {kRandomUniform, random_uniform},
    {kRandomNormal, random_normal},
};

}  // namespace
}  // namespace belfry::cuda
