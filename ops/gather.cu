#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/sort_indices.h"
#include "belfry/ops/gather_impl.h"
#include "belfry/ops/kernels/combine_rows.cuh"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry::cuda {
namespace {

// Takes units [begin, end) of the rows that the ids name, one unit per thread. `size.width` counts
// units.
template <class Unit>
struct TakeRows {
  using Shared = Nothing;
  const Unit* x;
  Indices ids;
  GatherSizes size;
  std::int64_t begin, end;
  Unit* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      const std::int64_t row = i / size.width, table = row / size.count;
      const std::int64_t at = table / size.middle * size.count + (row - table * size.count);
      const std::int64_t id = ids.below(size.rows, at);
      if (id >= 0) y[i] = x[(table * size.rows + id) * size.width + (i - row * size.width)];
    });
  }
};

// What is known about ids before a run.
struct IdPlan {
  IdPlan(const KernelPlan& plan, const Shape& x)
      : size(plan.options<GatherOptions>(), x, plan.input(1).shape),
        wide(plan.input(1).dtype == DType::kI64),
        refusal(std::make_shared<const Refusal>(
            [&node = plan.node(), limit = size.rows](std::int64_t, std::int64_t id) {
              refuse_id(node, id, limit);
            })) {}
  Indices operator()(const KernelPointers& p, KernelQueue& queue) const {
    return {p.input<void>(1), wide, queue.fault(refusal)};
  }

  GatherSizes size;
  bool wide;
  std::shared_ptr<const Refusal> refusal;
};

template <class Unit>
void take_rows(KernelQueue& queue, const KernelPointers& p, const IdPlan& ids,
               std::int64_t element) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  GatherSizes size = ids.size;
  size.width = size.width * element / kUnit;
  const TakeRows<Unit> kernel{
      p.input<Unit>(0),          ids(p, queue),   size, p.begin() * element / kUnit,
      p.end() * element / kUnit, p.output<Unit>()};
  launch(queue, kernel, grid_for(kernel.end - kernel.begin));
}

QueueRun gather(KernelPlan& plan) {
  const auto element = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [ids = IdPlan(plan, plan.input(0).shape), element](const KernelPointers& p,
                                                            KernelQueue& queue) {
    const auto all = static_cast<std::uint64_t>((ids.size.width | p.begin() | p.end()) * element) |
                     reinterpret_cast<std::uintptr_t>(p.input<void>(0)) |
                     reinterpret_cast<std::uintptr_t>(p.output<void>());
    if (all % 16 == 0)
      take_rows<Pack<std::uint32_t>>(queue, p, ids, element);
    else if (all % 4 == 0)
      take_rows<std::uint32_t>(queue, p, ids, element);
    else
      take_rows<std::uint8_t>(queue, p, ids, element);
  };
}

QueueRun gather_grad(KernelPlan& plan) {
  const IdPlan ids(plan, plan.output().shape);
  plan.workspace(sort_workspace(ids.size.batches * ids.size.count));
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [ids, bytes = plan.output().bytes()](const KernelPointers& p, KernelQueue& queue) {
      const auto& [batches, middle, rows, width, count] = ids.size;
      fill_zeros(queue, p.output<T>(), bytes);
      const PlacedIndex* const sorted =
          sort_indices(queue, ids(p, queue), batches * count, rows, p.workspace(), batches);
      launch(queue,
             CombineRows<T, kernels::AddRows>{p.input<T>(0), sorted, batches, middle, rows, width,
                                              count, p.output<T>()},
             grid_for(batches * count * middle * width));
    };
  });
}

const GpuKernel kernels_of_ops[] = {{kGather, gather, kTakesHalf}, {kGatherGrad, gather_grad}};

}  // namespace
}  // namespace belfry::cuda
