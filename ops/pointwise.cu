// All pointwise ops of this folder, in one source: nvcc takes seven seconds for an op's headers,
// and a tenth of a second for a kernel.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/pitched_kernel.h"
#include "belfry/framework/kernels/counter.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/cos.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/stored_numbers.cuh"
#include "belfry/ops/log.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/sin.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"
#include "belfry/ops/weigh.h"

namespace belfry::cuda {
namespace {

struct IntegerDiv {
  Fault* fault;
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    if (b == 0) {
      note(fault, 0, 0);
      return 0;
    }
    return b == -1 ? functors::Sub{}(T(0), a) : a / b;  // the smallest integer has no opposite
  }
};

QueueRun div(KernelPlan& plan) {
  const Strides strides = operands(plan);
  if (is_floating(plan.dtype()))
    return visit_stored(plan.dtype(), [&]<class T>(T) -> QueueRun {
      return [strides](const KernelPointers& p, KernelQueue& queue) {
        map_broadcast<T>(queue, p, functors::Div{}, strides);
      };
    });
  const auto refusal =
      std::make_shared<const Refusal>([&node = plan.node()](std::int64_t, std::int64_t) {
        throw InvalidArgument(cat(node.describe(), ": division by 0"));
      });
  const auto run = [=]<class T>(T) -> QueueRun {
    return [=](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<T>(queue, p, IntegerDiv{queue.fault(refusal)}, strides);
    };
  };
  return plan.dtype() == DType::kI32 ? run(std::int32_t{}) : run(std::int64_t{});
}

template <class F>
QueueRun weigh(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [strides = operands(plan)]<class T>(T) -> QueueRun {
    return [strides](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<T>(queue, p, F{}, strides);
    };
  });
}

// Elements are opaque bits: only their size matters.
QueueRun repeat(const KernelPlan& plan, const Shape& x) {
  const Strides strides(kernels::Broadcast(x.dims(), plan.output().shape.dims()));
  return visit_bits(plan.dtype(), [strides]<class Bits>(Bits) -> QueueRun {
    return [strides](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<Bits>(queue, p, functors::First{}, strides);
    };
  });
}

QueueRun broadcast_to(KernelPlan& plan) { return repeat(plan, plan.input(0).shape); }

QueueRun broadcast_along(KernelPlan& plan) {
  const auto& options = plan.options<BroadcastAlongOptions>();
  const Shape& like = plan.output().shape;
  const Shape x = options.before(like);
  if (options.values == belfry::BroadcastValues::kRepeat) return repeat(plan, x);
  const Strides strides(kernels::Broadcast(x.dims(), like.dims()));
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const functors::FirstOver<T> share{static_cast<T>(options.repetitions(like))};
    return [=](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<T>(queue, p, share, strides);
    };
  });
}

QueueRun prepare_cast(KernelPlan& plan, Algorithms&, const Pitches& pitches) {
  const DType from = plan.input(0).dtype, to = plan.dtype();
  if (pitches.all.empty())
    return [from, to](const KernelPointers& p, KernelQueue& queue) {
      cast(queue, from, p.input<void>(0), to, p.output<void>(), p.begin(), p.end());
    };
  const Shape& shape = plan.output().shape;
  const CastRows rows{shape.elements() / shape.back(), shape.back(), pitches.input(plan, 0),
                      pitches.output(plan)};
  return [from, to, rows](const KernelPointers& p, KernelQueue& queue) {
    cast(queue, from, p.input<void>(0), to, p.output<void>(), rows);
  };
}

// y[i] = x[i] times `scale` or 0, by the mask, for begin <= i < end. y may be x.
template <class T>
struct Dropout {
  using Shared = Nothing;
  bool draws;  // the mask is an output
  std::uint64_t key;
  const std::uint64_t* step;
  std::uint64_t threshold;
  T scale;
  std::int64_t begin, end;
  std::int64_t offset;  // the number of element 0 over all towers
  bool packed;
  const T* x;
  std::uint8_t* mask;
  T* y;

  // Multiplies dropped elements by zero, which keeps NaN.
  BELFRY_HD T value(std::int64_t i, T from) const {
    if (draws)
      mask[i] =
          kernels::mix(key, *step, static_cast<std::uint64_t>(offset + i)) >= threshold ? 1 : 0;
    return from * (mask[i] != 0 ? scale : T(0));
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      constexpr int kSize = Pack<T>::kSize;
      const std::int64_t first = begin + (block.index * block.threads + thread) * kSize;
      if (packed && first + kSize <= end) {
        auto pack = *reinterpret_cast<const Pack<T>*>(x + first);
        for (int j = 0; j < kSize; ++j) pack.at[j] = value(first + j, pack.at[j]);
        *reinterpret_cast<Pack<T>*>(y + first) = pack;
        return;
      }
      for (std::int64_t i = first; i < first + kSize && i < end; ++i) y[i] = value(i, x[i]);
    });
  }
};

template <bool draws>
QueueRun dropout(KernelPlan& plan) {
  const auto& options = plan.options<DropoutOptions>();
  const bool numbered = plan.batch().numbered;
  const std::uint64_t key = draws ? random_key(plan.node(), numbered) : 0;
  const Shape& shape = plan.output().shape;
  const std::int64_t row = numbered ? shape.product(1, shape.rank()) : 0;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [key, row, threshold = options.threshold(), scale = static_cast<T>(options.scale())](
               const KernelPointers& p, KernelQueue& queue) {
      Dropout<T> kernel{draws, key,           queue.step(), threshold,
                        scale, p.begin(),     p.end(),      p.first_row() * row,
                        false, p.input<T>(0), nullptr,      p.output<T>()};
      if constexpr (draws)
        kernel.mask = p.output<std::uint8_t>(1);
      else
        kernel.mask = const_cast<std::uint8_t*>(p.input<std::uint8_t>(1));  // it is only read
      kernel.packed =
          p.begin() % Pack<T>::kSize == 0 && on_16_bytes(kernel.x) && on_16_bytes(kernel.y);
      launch(queue, kernel, grid_of_packs<T>(p.end() - p.begin()));
    };
  });
}

template <GpuPrepare exact, GpuPrepare by_tanh>
QueueRun gelu(KernelPlan& plan) {
  return plan.options<GeluOptions>().form == GeluForm::kExact ? exact(plan) : by_tanh(plan);
}

const GpuKernel kernels_of_ops[] = {
    {kRelu, unary<functors::Relu>, kTakesHalf},
    {kReluGrad, binary<functors::ReluGrad>, kTakesHalf},
    {kTanh, unary<functors::Tanh>, kTakesHalf},
    {kTanhGrad, binary<functors::TanhGrad>, kTakesHalf},
    {kSigmoid, unary<functors::Sigmoid>, kTakesHalf},
    {kSigmoidGrad, binary<functors::SigmoidGrad>, kTakesHalf},
    {kSigmoidCrossEntropy, binary<functors::SigmoidCrossEntropy>, kTakesHalf},
    {kSilu, unary<functors::Silu>, kTakesHalf},
    {kSiluGrad, binary<functors::SiluGrad>, kTakesHalf},
    {kGelu, gelu<unary<functors::Gelu>, unary<functors::GeluTanh>>, kTakesHalf},
    {kGeluGrad, gelu<binary<functors::GeluGrad>, binary<functors::GeluTanhGrad>>, kTakesHalf},
    {kExp, unary<functors::Exp>, kTakesHalf},
    {kLog, unary<functors::Log>, kTakesHalf},
    {kSqrt, unary<functors::Sqrt>, kTakesHalf},
    {kSin, unary<functors::Sin>, kTakesHalf},
    {kCos, unary<functors::Cos>, kTakesHalf},
    {kSquare, unary<functors::Square>, kTakesHalf},
    {kNeg, unary_arithmetic<functors::Neg>, kTakesHalf},
    {kAdd, arithmetic<functors::Add>, kTakesHalf},
    {kSub, arithmetic<functors::Sub>, kTakesHalf},
    {kMul, arithmetic<functors::Mul>, kTakesHalf},
    {kDiv, div, kTakesHalf},
    {kWeigh, weigh<functors::Times>},
    {kUnweigh, weigh<functors::Over>},
    {kCounted, weigh<functors::Keep>},
    {kBroadcastTo, broadcast_to, kTakesHalf},
    {kBroadcastAlong, broadcast_along},
    {kDropout, dropout<true>},
    {kDropoutGrad, dropout<false>},
};
const PitchedKernel cast_kernel(kCast, prepare_cast);

}  // namespace
}  // namespace belfry::cuda
