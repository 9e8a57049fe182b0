// Batch normalisation and what it is made of over several towers.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_statistics.h"

namespace belfry::cuda {
namespace {

constexpr std::int64_t kLeaf = 8;  // rows

// The mean of so many values, and their squared distances from it.
template <class T>
struct Spread {
  T count, mean, squares;
};

// Chan et al. (1979).
template <class T>
BELFRY_HD Spread<T> combined(const Spread<T>& a, const Spread<T>& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const T count = a.count + b.count, distance = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * (a.count * share)};
}

// Of rows 8 by 8, or of what groups of them have left.
template <class T>
struct MomentLeaf {
  using Value = Spread<T>;
  const T* x;
  const Value* parts;  // null for rows
  std::int64_t rows, channels;
  Value* to_parts;  // null in the last step
  T *mean, *variance;
  T* count;         // null: `variance` is one; else it is the sum of squares
  const T* weight;  // beside `count`; null: 1

  BELFRY_HD static Value neutral() { return {0, 0, 0}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) { return combined(a, b); }

  // Means are summed as differences from the first row: a large one does not swallow them.
  BELFRY_HD Value operator()(std::int64_t, std::int64_t leaf, std::int64_t channel) const {
    if (parts) return parts[leaf * channels + channel];
    const T* const from = x + leaf * kLeaf * channels + channel;
    const std::int64_t rest = rows - leaf * kLeaf, number = rest < kLeaf ? rest : kLeaf;
    T value[kLeaf], sum = 0, squares = 0;
    for (int k = 0; k < kLeaf; ++k) value[k] = k < number ? from[k * channels] : from[0];
    for (int k = 1; k < kLeaf; ++k) sum += value[k] - value[0];
    const T middle = value[0] + sum / static_cast<T>(number);
    for (int k = 0; k < kLeaf; ++k)
      if (k < number) squares += (value[k] - middle) * (value[k] - middle);
    return {static_cast<T>(number), middle, squares};
  }

  BELFRY_HD void finish(std::int64_t, std::int64_t group, std::int64_t channel,
                        const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    mean[channel] = total.mean;
    variance[channel] = count ? total.squares : total.squares / static_cast<T>(rows);
    if (count && channel == 0) *count = weight && *weight == 0 ? T(0) : static_cast<T>(rows);
  }
};

template <class T>
struct Products {
  T sum, product;  // of dy, and of dy (x - mean)
};

template <class T>
struct ProductLeaf {
  using Value = Products<T>;
  const T *dy, *x, *mean, *variance;
  T epsilon;
  const Value* parts;
  std::int64_t rows, channels;
  Value* to_parts;
  T *products, *dgamma, *dbeta;
  const T* gamma;
  T *dmean, *dvariance;  // null: of moments that are x's own

  BELFRY_HD static Value neutral() { return {0, 0}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) {
    return {a.sum + b.sum, a.product + b.product};
  }

  BELFRY_HD Value operator()(std::int64_t, std::int64_t leaf, std::int64_t channel) const {
    if (parts) return parts[leaf * channels + channel];
    const std::int64_t first = leaf * kLeaf * channels + channel;
    const std::int64_t rest = rows - leaf * kLeaf, number = rest < kLeaf ? rest : kLeaf;
    const T middle = mean[channel];
    Value total = neutral();
    for (int k = 0; k < kLeaf; ++k) {
      if (k >= number) continue;
      const std::int64_t at = first + k * channels;
      total.sum += dy[at];
      total.product += dy[at] * (x[at] - middle);
    }
    return total;
  }

  BELFRY_HD void finish(std::int64_t, std::int64_t group, std::int64_t channel,
                        const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    dbeta[channel] = total.sum;
    products[channel] = total.product;
    const T spread = variance[channel] + epsilon;
    const T own = total.product / math::sqrt(spread);
    dgamma[channel] = own;
    if (!dmean) return;
    dmean[channel] = -(total.sum * gamma[channel] / math::sqrt(spread));
    dvariance[channel] = own * gamma[channel] / spread * T(-0.5);
  }
};

struct Extent {
  explicit Extent(const Shape& x) : rows(x.product(0, x.rank() - 1)), channels(x.back()) {}

  LeafGroups groups() const { return LeafGroups((rows + kLeaf - 1) / kLeaf); }
  // Bytes for what groups leave, if there are several.
  template <class Value>
  std::int64_t parts_bytes() const {
    return groups().groups == 1
               ? 0
               : groups().groups * channels * static_cast<std::int64_t>(sizeof(Value));
  }

  std::int64_t rows, channels;
};

// In one launch, or two where there are many rows.
template <class Leaf>
void over_rows(Queue& queue, const Extent& x, Leaf leaf, std::byte* workspace) {
  const LeafGroups by = x.groups();
  auto* const parts = reinterpret_cast<typename Leaf::Value*>(workspace);
  leaf.parts = nullptr;
  leaf.to_parts = by.groups == 1 ? nullptr : parts;
  column_tree(queue, leaf, 1, (x.rows + kLeaf - 1) / kLeaf, x.channels, by);
  if (by.groups == 1) return;
  leaf.parts = parts;
  leaf.to_parts = nullptr;
  LeafGroups one(1);
  one.per_group = by.groups;
  column_tree(queue, leaf, 1, by.groups, x.channels, one);
}

template <class T>
void moments(Queue& queue, const Extent& x, const T* from, T* mean, T* variance, T* count,
             const T* weight, std::byte* workspace) {
  over_rows(queue, x,
            MomentLeaf<T>{.x = from,
                          .parts = nullptr,
                          .rows = x.rows,
                          .channels = x.channels,
                          .to_parts = nullptr,
                          .mean = mean,
                          .variance = variance,
                          .count = count,
                          .weight = weight},
            workspace);
}

// Tiles of 128 rows and 32 channels: a thread keeps its channel, whose factors it computes once.
struct Tiles {
  static constexpr int kColumns = 32, kLines = 8, kRows = 128, kThreads = kColumns * kLines;
  std::int64_t rows, channels;

  Grid grid() const {
    return {.blocks = (rows + kRows - 1) / kRows * ((channels + kColumns - 1) / kColumns),
            .threads = kThreads};
  }
  // prepare(channel) gives f; f(i) for each element i of that channel.
  template <class Prepare>
  BELFRY_HD void each(const Block& block, const Prepare& prepare) const {
    const std::int64_t across = (channels + kColumns - 1) / kColumns;
    const std::int64_t channel = block.index % across * kColumns,
                       row = block.index / across * kRows;
    block.each([&](int thread) {
      const std::int64_t c = channel + thread % kColumns;
      if (c >= channels) return;
      const auto f = prepare(c);
      for (int line = thread / kColumns; line < kRows && row + line < rows; line += kLines)
        f((row + line) * channels + c);
    });
  }
};

// y may be x.
template <class T>
struct Normalise {
  using Shared = Nothing;
  Tiles tiles;
  const T *x, *mean, *variance, *gamma, *beta;
  T epsilon;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    tiles.each(block, [&](std::int64_t c) {
      const T scale = gamma[c] / math::sqrt(variance[c] + epsilon);
      return [this, scale, shift = beta[c], middle = mean[c]](std::int64_t i) {
        y[i] = (x[i] - middle) * scale + shift;
      };
    });
  }
};

// dx = scale (dy - offset - (x - mean) slope), where the last two are 0 for given moments. dx may
// be dy.
template <class T>
struct InputGradient {
  using Shared = Nothing;
  Tiles tiles;
  bool train;
  const T *dy, *x, *mean, *variance, *gamma;
  T epsilon;
  const T *sums, *products;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    tiles.each(block, [&](std::int64_t c) {
      const T rows = static_cast<T>(tiles.rows), spread = variance[c] + epsilon;
      const T scale = gamma[c] / math::sqrt(spread), offset = sums[c] / rows;
      const T slope = products[c] / rows / spread, middle = mean[c];
      return [this, scale, offset, slope, middle](std::int64_t i) {
        dx[i] = train ? scale * (dy[i] - offset - (x[i] - middle) * slope) : scale * dy[i];
      };
    });
  }
};

template <class T>
void normalise(Queue& queue, const Pointers& p, const Extent& x, const T* mean, const T* variance,
               double epsilon) {
  const Normalise<T> kernel{
      {x.rows, x.channels}, p.input<T>(0),           mean,         variance, p.input<T>(1),
      p.input<T>(2),        static_cast<T>(epsilon), p.output<T>()};
  launch(queue, kernel, kernel.tiles.grid());
}

QueueRun train(KernelPlan& plan) {
  const Extent x(plan.input(0).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    plan.workspace(x.parts_bytes<Spread<T>>());
    return [x, epsilon](const Pointers& p, Queue& queue) {
      T *const mean = p.output<T>(1), *const variance = p.output<T>(2);
      moments<T>(queue, x, p.input<T>(0), mean, variance, nullptr, nullptr, p.workspace());
      normalise<T>(queue, p, x, mean, variance, epsilon);
    };
  });
}

QueueRun inference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [x = Extent(plan.input(0).shape), epsilon = plan.options<BatchNormOptions>().epsilon](
               const Pointers& p, Queue& queue) {
      normalise<T>(queue, p, x, p.input<T>(3), p.input<T>(4), epsilon);
    };
  });
}

template <bool trained>
QueueRun gradient(KernelPlan& plan) {
  const Extent x(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const std::int64_t parts = x.parts_bytes<Products<T>>();
    plan.workspace(parts + x.channels * static_cast<std::int64_t>(sizeof(T)));
    return [x, small = static_cast<T>(epsilon), parts](const Pointers& p, Queue& queue) {
      const T *const dy = p.input<T>(0), *const from = p.input<T>(1), *const mean = p.input<T>(3);
      const T* const variance = p.input<T>(4);
      T* const products = reinterpret_cast<T*>(p.workspace() + parts);
      over_rows(queue, x,
                ProductLeaf<T>{.dy = dy,
                               .x = from,
                               .mean = mean,
                               .variance = variance,
                               .epsilon = small,
                               .parts = nullptr,
                               .rows = x.rows,
                               .channels = x.channels,
                               .to_parts = nullptr,
                               .products = products,
                               .dgamma = p.output<T>(1),
                               .dbeta = p.output<T>(2),
                               .gamma = p.input<T>(2),
                               .dmean = trained ? nullptr : p.output<T>(3),
                               .dvariance = trained ? nullptr : p.output<T>(4)},
                p.workspace());
      const InputGradient<T> kernel{
          {x.rows, x.channels}, trained,  dy,           from, mean, variance, p.input<T>(2), small,
          p.output<T>(2),       products, p.output<T>()};
      launch(queue, kernel, kernel.tiles.grid());
    };
  });
}

QueueRun batch_moments(KernelPlan& plan) {
  const Extent x(plan.input(0).shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    plan.workspace(x.parts_bytes<Spread<T>>());
    return [x](const Pointers& p, Queue& queue) {
      if (x.rows == 0) {
        const std::int64_t bytes = x.channels * static_cast<std::int64_t>(sizeof(T));
        fill_zeros(queue, p.output<T>(0), bytes);
        fill_zeros(queue, p.output<T>(1), bytes);
      }
      if (x.rows == 0 || x.channels == 0)
        return fill_one(queue, static_cast<T>(x.rows), p.output<T>(2));
      moments<T>(queue, x, p.input<T>(0), p.output<T>(0), p.output<T>(1), p.output<T>(2),
                 p.inputs() > 1 ? p.input<T>(1) : nullptr, p.workspace());
    };
  });
}

// y = (x - mean) slope + offset.
template <class T>
struct StatisticsGradient {
  using Shared = Nothing;
  Tiles tiles;
  const T *x, *dmean, *dvariance, *mean, *count, *weight;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    tiles.each(block, [&](std::int64_t c) {
      const bool counts = *weight != 0;
      const T slope = counts ? 2 * dvariance[c] / *count : T(0);
      const T offset = counts ? dmean[c] / *count : T(0);
      return [this, counts, slope, offset, middle = mean[c]](std::int64_t i) {
        dx[i] = counts ? (x[i] - middle) * slope + offset : T(0);
      };
    });
  }
};

QueueRun statistics_gradient(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [x = Extent(plan.input(0).shape)](const Pointers& p, Queue& queue) {
      const StatisticsGradient<T> kernel{{x.rows, x.channels}, p.input<T>(0), p.input<T>(1),
                                         p.input<T>(2),        p.input<T>(3), p.input<T>(4),
                                         p.input<T>(5),        p.output<T>()};
      launch(queue, kernel, kernel.tiles.grid());
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kBatchNormTrain, train},         {kBatchNormTrainGrad, gradient<true>},
    {kBatchNormInference, inference}, {kBatchNormInferenceGrad, gradient<false>},
    {kBatchMoments, batch_moments},   {kBatchStatisticsGrad, statistics_gradient},
};

}  // namespace
}  // namespace belfry::cuda
