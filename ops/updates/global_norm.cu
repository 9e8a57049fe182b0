// Norms of gradients. Sums follow square_tree.h, so their bits are the same as on hosts.
#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/ops/updates/global_norm.h"
#include "belfry/ops/updates/square_tree.h"
#include "belfry/ops/updates/trust_ratio.h"

namespace belfry::cuda {
namespace {

constexpr int kLanes = kernels::kSquareLanes;

// Sums of a block's lanes; fold() leaves their sum in at[0].
struct Lanes {
  double at[kLanes];

  BELFRY_HD static void fold(const Block& block, Lanes& lanes) {
    by_halves(block, kLanes, [&](int to, int from) { lanes.at[to] += lanes.at[from]; });
  }
};

// parts[block]: the sum of squares of a part.
template <class T>
struct SquaresOfPart {
  using Shared = Lanes;
  const T* x;
  std::int64_t count;
  double* parts;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) {
      double sum = 0;
      for (int k = 0; k < kernels::kSquaresEach; ++k) {
        const std::int64_t i = (block.index * kernels::kSquaresEach + k) * kLanes + thread;
        const double value = i < count ? static_cast<double>(x[i]) : 0;
        sum += value * value;
      }
      shared.at[thread] = sum;
    });
    Lanes::fold(block, shared);
    block.each([&](int thread) {
      if (thread == 0) parts[block.index] = shared.at[0];
    });
  }
};

constexpr int kMostPositions = 256;

// sums[block]: the sum over the parts of the tensor at a position; 0 if there is none.
struct SumsOfParts {
  using Shared = Lanes;
  const double* parts;
  double* sums;
  std::int64_t first[kMostPositions + 1];

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t end = first[block.index + 1];
    block.each([&](int thread) {
      double sum = 0;
      for (std::int64_t i = first[block.index] + thread; i < end; i += kLanes) sum += parts[i];
      shared.at[thread] = sum;
    });
    Lanes::fold(block, shared);
    block.each([&](int thread) {
      if (thread == 0) sums[block.index] = shared.at[0];
    });
  }
};

// The first part of each position, and their number.
std::vector<std::int64_t> first_parts(const KernelPlan& plan) {
  const auto& [positions, count] = plan.options<SumsOfSquaresOptions>();
  std::vector<std::int64_t> first(static_cast<std::size_t>(count) + 1, 0);
  for (std::size_t i = 0; i < positions.size(); ++i)
    first[static_cast<std::size_t>(positions[i]) + 1] =
        kernels::square_parts(plan.input(i).shape.elements());
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  return first;
}

QueueRun sums_of_squares(KernelPlan& plan) {
  const std::vector<std::int64_t> first = first_parts(plan);
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < plan.inputs(); ++i) types.push_back(plan.input(i));
  plan.workspace(first.back() * static_cast<std::int64_t>(sizeof(double)));
  return [first, types](const KernelPointers& p, KernelQueue& queue) {
    auto* parts = reinterpret_cast<double*>(p.workspace());
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::int64_t count = types[i].shape.elements(), blocks = kernels::square_parts(count);
      visit_floating(types[i].dtype, [&]<class T>(T) {
        launch(queue, SquaresOfPart<T>{p.input<T>(i), count, parts},
               {.blocks = blocks, .threads = kLanes});
      });
      parts += blocks;
    }
    const auto positions = static_cast<std::int64_t>(first.size()) - 1;
    for (std::int64_t from = 0; from < positions; from += kMostPositions) {
      const std::int64_t blocks = std::min<std::int64_t>(kMostPositions, positions - from);
      SumsOfParts kernel{
          reinterpret_cast<const double*>(p.workspace()), p.output<double>() + from, {}};
      std::copy_n(first.begin() + from, blocks + 1, kernel.first);
      launch(queue, kernel, {.blocks = blocks, .threads = kLanes});
    }
  };
}

constexpr std::size_t kMostVectors = 256;  // towers

struct GlobalNorm {
  using Shared = Lanes;
  std::int64_t count;
  int vectors;
  const double* sums[kMostVectors];
  double* norm;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) {
      double sum = 0;
      for (std::int64_t i = thread; i < count; i += kLanes) {
        double of_all = 0;
        for (int k = 0; k < vectors; ++k) of_all += sums[k][i];
        sum += of_all;
      }
      shared.at[thread] = sum;
    });
    Lanes::fold(block, shared);
    block.each([&](int thread) {
      if (thread == 0) *norm = math::sqrt(shared.at[0]);
    });
  }
};

QueueRun global_norm(KernelPlan& plan) {
  if (plan.inputs() > kMostVectors) return {};
  return [count = plan.input(0).shape.elements()](const KernelPointers& p, KernelQueue& queue) {
    GlobalNorm kernel{count, static_cast<int>(p.inputs()), {}, p.output<double>()};
    for (std::size_t k = 0; k < p.inputs(); ++k) kernel.sums[k] = p.input<double>(k);
    launch(queue, kernel, {.threads = kLanes});
  };
}

struct ClipFactor {
  using Shared = Nothing;
  double most;
  const double* norm;
  const float* times;
  float* factor;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      if (thread == 0) *factor = kernels::clip_factor(*norm, most, times ? *times : 1.0f);
    });
  }
};

QueueRun clip_factor(KernelPlan& plan) {
  return [most = plan.options<ClipFactorOptions>().max_norm](const KernelPointers& p,
                                                             KernelQueue& queue) {
    const float* const times = p.inputs() > 1 ? p.input<float>(1) : nullptr;
    launch(queue, ClipFactor{most, p.input<double>(0), times, p.output<float>()}, {.threads = 1});
  };
}

struct TrustRatio {
  using Shared = Nothing;
  const double* variable;
  const double* update;
  const float* times;
  float* ratio;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      if (thread == 0) *ratio = kernels::trust_ratio(*variable, *update, times ? *times : 1.0f);
    });
  }
};

QueueRun trust_ratio(KernelPlan&) {
  return [](const KernelPointers& p, KernelQueue& queue) {
    const float* const times = p.inputs() > 2 ? p.input<float>(2) : nullptr;
    launch(queue, TrustRatio{p.input<double>(0), p.input<double>(1), times, p.output<float>()},
           {.threads = 1});
  };
}

const GpuKernel kernels_of_ops[] = {
    {kSumsOfSquares, sums_of_squares},
    {kGlobalNorm, global_norm},
    {kClipFactor, clip_factor},
    {kTrustRatio, trust_ratio},
};

}  // namespace
}  // namespace belfry::cuda
