#include "belfry/ops/all_reduce.h"

#include "belfry/framework/collective_hook.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/kernels/plain.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/scopes.h"

namespace belfry {
namespace {

OutputTypes all_reduce_shape(const ShapeContext& c) {
  c.require(c.inputs() >= 1, "needs at least one tensor");
  const DType dtype = c.dtype();
  c.require(dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kI32,
            "sums f32, f64 and i32, not ", name_of(dtype), "; cast first");
  c.require(is_floating(dtype) || !c.options<AllReduceOptions>().mean,
            "the mean of integers is not defined; cast to f32 first");
  OutputTypes types;
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    c.require(c.dtype(i) == dtype && c.input(i).compatible(c.input(0)), "participant ", i, " has ",
              c.type(i), ", but participant 0 has ", c.type(0));
    types.emplace_back(c.type(i));
  }
  return types;
}

// Every input reaches every output, so gradients are summed in the same way.
std::vector<Output> all_reduce_gradient(const Node& node, std::span<const Output> grads) {
  std::vector<Output> present(grads.begin(), grads.end());
  for (std::size_t i = 0; i < present.size(); ++i) {
    if (present[i]) continue;
    const ColocateWith scope(node.input(i));
    present[i] = fill_like(node.output(i), 0);
  }
  return all_reduce(present, node.options<AllReduceOptions>());
}

// combine(inputs, outputs, begin, end) for the elements of a launch.
template <class T, class Combine>
KernelRun all_reduce_kernel(const KernelPlan& plan, Combine combine) {
  const Node* const node = &plan.node();
  return [node, combine](const Pointers& p) {
    call_collective_hook(*node, {p.begin(), p.end()});
    auto outputs = p.all_outputs<T>();
    combine(p.all_inputs<T>().span(), outputs.unique(), p.begin(), p.end());
  };
}

template <class F>
KernelRun visit_summable(DType dtype, const F& f) {
  return dtype == DType::kI32 ? f(std::int32_t{}) : visit_floating(dtype, f);
}

KernelRun all_reduce_cpu(KernelPlan& plan) {
  const bool mean = plan.options<AllReduceOptions>().mean;
  return visit_summable(plan.dtype(), [&]<class T>(T) {
    using Inputs = std::span<const T* const>;
    using Outputs = std::span<T* const>;
    return all_reduce_kernel<T>(
        plan, [mean](Inputs inputs, Outputs outputs, std::int64_t begin, std::int64_t end) {
          if constexpr (std::is_floating_point_v<T>) {
            if (mean)
              return kernels::tree_mean(inputs, outputs, static_cast<T>(inputs.size()), begin, end);
          }
          kernels::tree_sum(inputs, outputs, begin, end);
        });
  });
}

KernelRun all_reduce_reference(KernelPlan& plan) {
  const bool mean = plan.options<AllReduceOptions>().mean;
  return visit_summable(plan.dtype(), [&]<class T>(T) {
    return all_reduce_kernel<T>(
        plan, [mean](std::span<const T* const> inputs, std::span<T* const> outputs,
                     std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const T sum = kernels::plain_tree(inputs, i);
            for (T* const out : outputs) out[i] = mean ? sum / static_cast<T>(inputs.size()) : sum;
          }
        });
  });
}

}  // namespace

const Op kAllReduce{.name = "AllReduce",
                    .inputs = kVariadic,
                    .shape = all_reduce_shape,
                    .gradient = all_reduce_gradient,
                    .missing_grads = true,
                    .split = Split::kElements,
                    .in_place = InPlace::kPairwise,
                    .collective = true,
                    .cpu = all_reduce_cpu,
                    .reference = all_reduce_reference};

std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options, At at) {
  require(!xs.empty(), at.site.str(), ": all_reduce of no tensors");
  Node& node = xs[0].graph().add(kAllReduce, xs, at, Options(options));
  std::vector<Output> sums;
  for (std::size_t i = 0; i < xs.size(); ++i) sums.push_back(node.output(i));
  return sums;
}

}  // namespace belfry
