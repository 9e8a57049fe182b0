#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/sort_indices.h"
#include "belfry/ops/gather.h"

namespace belfry::cuda {
namespace {

// Takes units [begin, end) of the table's rows that the ids name, one unit per thread.
template <class Unit>
struct TakeRows {
  using Shared = Nothing;
  const Unit* table;
  Indices ids;
  std::int64_t rows, row, begin, end;  // a row has `row` units
  Unit* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      const std::int64_t at = i / row, id = ids.below(rows, at);
      if (id >= 0) y[i] = table[id * row + (i - at * row)];
    });
  }
};

// What is known about ids before a run.
struct IdPlan {
  explicit IdPlan(const KernelPlan& plan, const Shape& table)
      : rows(table[0]),
        width(table.product(1, table.rank())),
        count(plan.input(1).shape.elements()),
        wide(plan.input(1).dtype == DType::kI64),
        refusal(std::make_shared<const Refusal>(
            [&node = plan.node(), limit = rows](std::int64_t, std::int64_t id) {
              refuse_id(node, id, limit);
            })) {}
  Indices operator()(const KernelPointers& p, KernelQueue& queue) const {
    return {p.input<void>(1), wide, queue.fault(refusal)};
  }

  std::int64_t rows, width, count;
  bool wide;
  std::shared_ptr<const Refusal> refusal;
};

template <class Unit>
void take_rows(KernelQueue& queue, const KernelPointers& p, const IdPlan& ids,
               std::int64_t element) {
  constexpr auto kUnit = static_cast<std::int64_t>(sizeof(Unit));
  const TakeRows<Unit> kernel{p.input<Unit>(0),
                              ids(p, queue),
                              ids.rows,
                              ids.width * element / kUnit,
                              p.begin() * element / kUnit,
                              p.end() * element / kUnit,
                              p.output<Unit>()};
  launch(queue, kernel, grid_for(kernel.end - kernel.begin));
}

QueueRun gather(KernelPlan& plan) {
  const auto element = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [ids = IdPlan(plan, plan.input(0).shape), element](const KernelPointers& p,
                                                            KernelQueue& queue) {
    const auto all = static_cast<std::uint64_t>((ids.width | p.begin() | p.end()) * element) |
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

// For each id, the threads of its first row of dy add all its rows, in order of positions.
template <class T>
struct AddRows {
  using Shared = Nothing;
  const T* dy;
  const PlacedIndex* sorted;
  std::int64_t count, rows, width;
  T* table;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= count * width) return;
      const std::int64_t first = i / width, column = i - first * width, id = sorted[first].index;
      if (id == rows || (first > 0 && sorted[first - 1].index == id)) return;
      T sum = 0;
      for (std::int64_t k = first; k < count && sorted[k].index == id; ++k)
        sum += dy[sorted[k].position * width + column];
      table[id * width + column] = sum;
    });
  }
};

QueueRun gather_grad(KernelPlan& plan) {
  const IdPlan ids(plan, plan.output().shape);
  plan.workspace(sort_workspace(ids.count));
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [ids, bytes = plan.output().bytes()](const KernelPointers& p, KernelQueue& queue) {
      fill_zeros(queue, p.output<T>(), bytes);
      const PlacedIndex* const sorted =
          sort_indices(queue, ids(p, queue), ids.count, ids.rows, p.workspace());
      launch(queue,
             AddRows<T>{p.input<T>(0), sorted, ids.count, ids.rows, ids.width, p.output<T>()},
             grid_for(ids.count * ids.width));
    };
  });
}

const GpuKernel kernels_of_ops[] = {{kGather, gather, kTakesHalf}, {kGatherGrad, gather_grad}};

}  // namespace
}  // namespace belfry::cuda
