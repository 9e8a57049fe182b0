// Kernels of framework/core_ops, in one source, like those of ops/pointwise.cu.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/cuda/kernels/copy_bytes.h"
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/tree_sum.h"
#include "belfry/framework/kernels/counter.h"
#include "belfry/framework/kernels/half.h"

namespace belfry::cuda {
namespace {

QueueRun add_n(KernelPlan& plan) {
  TreeSum sum(plan.dtype(), plan.inputs(), 1, 1);
  sum.append(plan.output().shape.elements());
  return sum;
}

// Computes elements [begin, end) of a sum of rows along a tree. Some of the rows are rows of a
// matrix.
template <class T>
struct AddRows {
  static constexpr int kMostRows = 3072, kMostOwn = 24, kDepth = 24;
  using Shared = Nothing;

  const T* rows;           // of the matrix
  const T* own[kMostOwn];  // the others, neighbours in the sum
  T* sum;
  std::int64_t length, begin, end;
  T divisor;
  int count, first_own, own_count;
  std::uint8_t additions[kMostRows];  // after each row

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      T stack[kDepth] = {};
      int depth = 0;
      for (int r = 0; r < count; ++r) {
        const int k = r - first_own;
        T term = k < 0           ? rows[r * length + i]
                 : k < own_count ? own[k][i]
                                 : rows[(r - own_count) * length + i];
        for (int n = 0; n < additions[r]; ++n) term = stack[--depth] + term;
        stack[depth++] = term;
      }
      sum[i] = stack[0] / divisor;
    });
  }
};

QueueRun add_pieces(KernelPlan& plan) {
  const PieceSum sum = piece_sum(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    AddRows<T> kernel{};
    const auto& tree = sum.additions;
    require(tree.size() <= AddRows<T>::kMostRows && sum.own <= AddRows<T>::kMostOwn,
            plan.node().describe(), ": ", tree.size(), " partial sums on a GPU, ", sum.own,
            " of them its own: at most ", AddRows<T>::kMostRows, " and ", AddRows<T>::kMostOwn,
            " are possible");
    kernel.length = sum.piece.size();
    kernel.divisor = static_cast<T>(sum.divisor);
    kernel.count = static_cast<int>(tree.size());
    kernel.first_own = sum.first_own;
    kernel.own_count = sum.own;
    for (std::size_t r = 0; r < tree.size(); ++r)
      kernel.additions[r] = static_cast<std::uint8_t>(tree[r]);
    return [kernel, sum](const KernelPointers& p, KernelQueue& queue) mutable {
      const WorkRange range = sum.in_piece(p);
      if (range.size() == 0) return;
      for (int k = 0; k < sum.own; ++k)
        kernel.own[k] = p.input<T>(static_cast<std::size_t>(k)) + sum.piece.begin;
      kernel.rows = p.input<T>(p.inputs() - 1);
      kernel.sum = p.output<T>() + (sum.whole ? sum.piece.begin : 0);
      kernel.begin = range.begin;
      kernel.end = range.end;
      launch(queue, kernel, grid_for(range.size()));
    };
  });
}

// The value may already be in the variable (pass memory).
QueueRun assign(KernelPlan& plan) {
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [unit](const KernelPointers& p, KernelQueue& queue) {
    if (p.written<std::byte>(0) == p.input<std::byte>(1)) return;
    const std::int64_t begin = p.begin() * unit;
    copy_bytes(queue, p.input<std::byte>(1) + begin, p.written<std::byte>(0) + begin,
               p.end() * unit - begin);
  };
}

// Copies what is before and after this process's part.
QueueRun assign_gathered(KernelPlan& plan) {
  const auto unit = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [unit, options = plan.options<AssignGatheredOptions>()](const KernelPointers& p,
                                                                 KernelQueue& queue) {
    for (const auto& [begin, end] : parts_of_others(options, {p.begin(), p.end()}))
      copy_bytes(queue, p.input<std::byte>(1) + (options.first + begin) * unit,
                 p.written<std::byte>(0) + begin * unit, (end - begin) * unit);
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
    return [](const KernelPointers& p, KernelQueue& queue) {
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
  const auto repeat = [&](auto v) {
    for (std::size_t i = 0; i < sizeof(pattern); i += sizeof(v))
      std::memcpy(pattern.at + i, &v, sizeof(v));
  };
  if (is_half(dtype))
    repeat(kernels::half_bits(value, dtype));
  else
    visit_any(dtype, [&]<class T>(T) { repeat(static_cast<T>(value)); });
  return [=](const KernelPointers& p, KernelQueue& queue) {
    fill_bytes(queue, pattern, p.output<std::uint8_t>() + p.begin() * unit,
               (p.end() - p.begin()) * unit);
  };
}

QueueRun fill(KernelPlan& plan) {
  return fill_with(plan.options<FillOptions>().value, plan.dtype());
}
QueueRun fill_like(KernelPlan& plan) {
  return fill_with(plan.options<FillLikeOptions>().value, plan.dtype());
}

// y[i] = draw.number(key, *step, first + i). If fixed, the step is no key, but *step rows come
// first.
template <class Draw, class T>
struct RandomNumbers {
  using Shared = Nothing;
  Draw draw;
  std::uint64_t key;
  const std::uint64_t* step;
  bool fixed;
  std::int64_t row, first, begin, end;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      const std::uint64_t before = fixed ? static_cast<std::uint64_t>(row) * *step : 0;
      y[i] = draw.template number<T>(key, fixed ? 0 : *step,
                                     before + static_cast<std::uint64_t>(first + i));
    });
  }
};

template <class RandomOptions, class Draw>
QueueRun random_numbers(const KernelPlan& plan, Draw draw) {
  const bool fixed = plan.options<RandomOptions>().fixed;
  const bool numbered = plan.batch().numbered;
  const std::uint64_t key = random_key(plan.node(), numbered);
  const Shape& shape = plan.output().shape;
  const std::int64_t row = numbered ? shape.product(1, shape.rank()) : 0;
  return visit_floating(plan.dtype(), [=]<class T>(T) -> QueueRun {
    return [=](const KernelPointers& p, KernelQueue& queue) {
      const RandomNumbers<Draw, T> kernel{draw,      key,     queue.step(),
                                          fixed,     row,     p.first_row() * row,
                                          p.begin(), p.end(), p.output<T>()};
      launch(queue, kernel, grid_for(p.end() - p.begin()));
    };
  });
}

QueueRun random_uniform(KernelPlan& plan) {
  const auto& options = plan.options<RandomUniformOptions>();
  return random_numbers<RandomUniformOptions>(
      plan, functors::Uniform{options.low, options.high - options.low});
}
QueueRun random_normal(KernelPlan& plan) {
  return functors::visit_normal(plan.options<RandomNormalOptions>(), [&](auto draw) -> QueueRun {
    return random_numbers<RandomNormalOptions>(plan, draw);
  });
}

const GpuKernel kernels_of_ops[] = {
    {kAddN, add_n, kTakesHalf},       {kAddPieces, add_pieces},
    {kAssign, assign, kTakesHalf},    {kAssignGathered, assign_gathered, kTakesHalf},
    {kAssignAdd, assign_plus<1>},     {kAssignSub, assign_plus<-1>},
    {kFill, fill, kTakesHalf},        {kFillLike, fill_like, kTakesHalf},
    {kRandomUniform, random_uniform}, {kRandomNormal, random_normal},
};

}  // namespace
}  // namespace belfry::cuda
