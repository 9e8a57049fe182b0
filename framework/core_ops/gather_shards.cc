#include "belfry/framework/core_ops/gather_shards.h"

#include <cstring>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

OutputTypes gather_shards_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0, "needs at least one input");
  Shape shape = c.input(0);
  for (std::size_t i = 1; i < c.inputs(); ++i) shape[0] += c.input(i)[0];
  return {shape};
}

KernelRun gather_shards_kernel(KernelPlan& plan) {
  EndToEnd shards;
  for (std::size_t i = 0; i < plan.inputs(); ++i) shards.append(plan.input(i).shape.elements());
  return [shards,
          size = static_cast<std::int64_t>(size_of(plan.dtype()))](const KernelPointers& p) {
    std::byte* to = p.output<std::byte>() + p.begin() * size;
    shards.for_each({p.begin(), p.end()}, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
      const std::int64_t bytes = (end - begin) * size;
      std::memcpy(to, p.input<std::byte>(i) + begin * size, static_cast<std::size_t>(bytes));
      to += bytes;
    });
  };
}

OutputTypes sum_shape(const ShapeContext& c) { return kAddN.shape(c); }
// f16 and bf16 are added in f32 and rounded once.
KernelRun sum_16(KernelPlan& plan, kernels::HalfPath path) {
  return [convert = kernels::half_conversion(plan.dtype(), path)](const KernelPointers& p) {
    void* const sum[] = {p.output<void>()};
    kernels::tree_sum_16(convert, p.all_inputs(), sum, 1, p.begin(), p.end());
  };
}

KernelRun sum_shards_cpu(KernelPlan& plan) {
  return is_half(plan.dtype()) ? sum_16(plan, kernels::half_paths().back()) : kAddN.cpu(plan);
}
KernelRun sum_shards_reference(KernelPlan& plan) {
  return is_half(plan.dtype()) ? sum_16(plan, kernels::HalfPath::kScalar) : kAddN.reference(plan);
}

}  // namespace

const Op kGatherShards{.name = "GatherShards",
                       .inputs = kVariadicInputs,
                       .shape = gather_shards_shape,
                       .no_gradient = kMadeByPlans,
                       .split = WorkSplit::kElements,
                       .reference = gather_shards_kernel,
                       .half = true,
                       .cpu_only = "devices on GPUs have one shard"};

const Op kSumShards{.name = "SumShards",
                    .inputs = kVariadicInputs,
                    .shape = sum_shape,
                    .no_gradient = kMadeByPlans,
                    .split = WorkSplit::kElements,
                    .cpu = sum_shards_cpu,
                    .reference = sum_shards_reference,
                    .half = true,
                    .cpu_only = "devices on GPUs have one shard"};

}  // namespace belfry
