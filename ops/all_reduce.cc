#include "belfry/ops/all_reduce.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/device/collective_hook.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/kernels/plain.h"
#include "belfry/framework/kernels/reduce.h"

namespace belfry {
namespace {

int participants(const Node& node) { return node.options<AllReduceOptions>().participants; }

int all_reduce_divisor(const Node& node) {
  const AllReduceOptions& options = node.options<AllReduceOptions>();
  return options.mean ? options.participants * options.processes : 1;
}

// Reduces one tensor, or several with options.participants.
std::vector<Output> reduce_with(const Op& op, std::span<const Output> xs, AllReduceOptions options,
                                At at) {
  require(!xs.empty(), at.site.str(), ": all_reduce of no tensors");
  if (options.participants == 0) options.participants = static_cast<int>(xs.size());
  options.processes = op.ranks ? xs[0].graph().process().size : 1;
  Node& node = xs[0].graph().add(op, xs, at, NodeOptions(options));
  std::vector<Output> sums;
  for (std::size_t i = 0; i < xs.size(); ++i) sums.push_back(node.output(i));
  return sums;
}

std::vector<std::vector<Output>> reduce_bucket(const Op& op,
                                               std::span<const std::vector<Output>> tensors,
                                               AllReduceOptions options, At at) {
  require(!tensors.empty() && !tensors[0].empty(), at.site.str(), ": all_reduce of no tensors");
  const std::size_t towers = tensors[0].size();
  std::vector<Output> flat;
  for (std::size_t b = 0; b < tensors.size(); ++b) {
    require(tensors[b].size() == towers, at.site.str(), ": all_reduce of a bucket: tensor ", b,
            " has ", tensors[b].size(), " participants, but tensor 0 has ", towers);
    flat.insert(flat.end(), tensors[b].begin(), tensors[b].end());
  }
  options.participants = static_cast<int>(towers);
  const std::vector<Output> sums = reduce_with(op, flat, options, std::move(at));
  std::vector<std::vector<Output>> result;
  for (auto next = sums.begin(); next != sums.end(); next += static_cast<std::ptrdiff_t>(towers))
    result.emplace_back(next, next + static_cast<std::ptrdiff_t>(towers));
  return result;
}

OutputTypes all_reduce_shape(const ShapeContext& c) {
  const AllReduceOptions& options = c.options<AllReduceOptions>();
  c.require(options.participants >= 1 && c.inputs() >= 1, "needs at least one tensor");
  const auto towers = static_cast<std::size_t>(options.participants);
  c.require(c.inputs() % towers == 0, c.inputs(), " tensors are not the same number for each of ",
            towers, " participants");
  const DType dtype = c.dtype();
  c.require(is_floating(dtype) || dtype == DType::kI32, "sums floating types and i32, not ",
            name_of(dtype), "; cast first");
  c.require(is_floating(dtype) || !options.mean,
            "the mean of integers is not defined; cast to f32 first");
  const auto require_like = [&](std::size_t other, bool alike, std::size_t i) {
    if (alike) return;
    const auto whose = [&](std::size_t input) {
      const std::string tensor = c.inputs() > towers ? cat(" of tensor ", input / towers) : "";
      return cat("participant ", input % towers, tensor, " has ", c.type(input));
    };
    c.require(false, whose(i), ", but ", whose(other));
  };
  OutputTypes types;
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    const std::size_t first = i / towers * towers;
    require_like(0, c.dtype(i) == dtype, i);
    require_like(first, c.input(i).compatible(c.input(first)), i);
    types.emplace_back(c.type(i));
  }
  return types;
}

// Every participant's input reaches all results of its tensor, so the same op sums gradients. If a
// tensor's results have no gradients, its inputs have none either.
std::vector<Output> all_reduce_gradient(const Node& node, std::span<const Output> grads) {
  const auto towers = static_cast<std::size_t>(collective_size(node));
  std::vector<Output> present;
  std::vector<std::size_t> inputs;  // of `present`
  for (std::size_t first = 0; first < grads.size(); first += towers) {
    const auto tensor = grads.subspan(first, towers);
    if (std::ranges::none_of(tensor, [](const Output& grad) { return bool(grad); })) continue;
    for (std::size_t i = first; i < first + towers; ++i) {
      inputs.push_back(i);
      present.push_back(grads[i]);
      if (present.back()) continue;
      const ColocateWith scope(node.input(i));
      present.back() = fill_like(node.output(i), 0);
    }
  }
  const std::vector<Output> sums =
      reduce_with(node.op(), present, node.options<AllReduceOptions>(), {});
  std::vector<Output> result(grads.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) result[inputs[i]] = sums[i];
  return result;
}

// Calls combine(inputs, outputs, begin, end) for the elements of each tensor in a launch.
template <class Combine>
KernelRun all_reduce_kernel(const KernelPlan& plan, Combine combine) {
  const Node* const node = &plan.node();
  const std::size_t towers = AllReduceShare(plan).participants;
  EndToEnd tensors;
  for (std::size_t i = 0; i < plan.inputs(); i += towers)
    tensors.append(plan.input(i).shape.elements());
  return [node, towers, tensors, combine](const KernelPointers& p) {
    const WorkRange range{p.begin(), p.end()};
    call_collective_hook(*node, range);
    tensors.for_each(range, [&](std::size_t b, std::int64_t begin, std::int64_t end) {
      combine(p.all_inputs().subspan(b * towers, towers),
              p.all_outputs().subspan(b * towers, towers), begin, end);
    });
  };
}

using Inputs = std::span<const void* const>;
using ResultPointers = std::span<void* const>;

template <class T>
KernelRun all_reduce_fast(const KernelPlan& plan) {
  const bool mean = AllReduceShare(plan).divisor > 1;
  return all_reduce_kernel(
      plan, [mean](Inputs inputs, ResultPointers outputs, std::int64_t begin, std::int64_t end) {
        if constexpr (std::is_floating_point_v<T>) {
          if (mean)
            return kernels::tree_mean(inputs, outputs, static_cast<T>(inputs.size()), begin, end);
        }
        kernels::tree_sum<T>(inputs, outputs, begin, end);
      });
}

KernelRun all_reduce_16(const KernelPlan& plan) {
  const bool mean = AllReduceShare(plan).divisor > 1;
  const kernels::HalfConversion convert = kernels::half_conversion(plan.dtype());
  return all_reduce_kernel(plan, [mean, convert](Inputs inputs, ResultPointers outputs,
                                                 std::int64_t begin, std::int64_t end) {
    const float divisor = mean ? static_cast<float>(inputs.size()) : 1;
    kernels::tree_sum_16(convert, inputs, outputs, divisor, begin, end);
  });
}

KernelRun all_reduce_cpu(KernelPlan& plan) {
  switch (plan.dtype()) {
    case DType::kF32: return all_reduce_fast<float>(plan);
    case DType::kF64: return all_reduce_fast<double>(plan);
    case DType::kI32: return all_reduce_fast<std::int32_t>(plan);
    default: return all_reduce_16(plan);
  }
}

// element(inputs, i) computes one element of the sum or mean in T.
template <class T, class Element>
KernelRun all_reduce_plain(const KernelPlan& plan, Element element) {
  return all_reduce_kernel(
      plan, [element](Inputs inputs, ResultPointers outputs, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const T result = element(inputs, i);
          for (void* const out : outputs) static_cast<T*>(out)[i] = result;
        }
      });
}

template <class T>
KernelRun all_reduce_reference_of(const KernelPlan& plan) {
  const bool mean = AllReduceShare(plan).divisor > 1;
  return all_reduce_plain<T>(plan, [mean](Inputs inputs, std::int64_t i) {
    const T sum = kernels::plain_tree<T>(inputs, i);
    return mean ? sum / static_cast<T>(inputs.size()) : sum;
  });
}

KernelRun all_reduce_reference_16(const KernelPlan& plan) {
  const bool mean = AllReduceShare(plan).divisor > 1;
  const auto convert = kernels::half_conversion(plan.dtype(), kernels::HalfPath::kScalar);
  return all_reduce_plain<std::uint16_t>(plan, [mean, convert](Inputs inputs, std::int64_t i) {
    std::vector<float> terms(inputs.size());
    std::vector<const void*> pointers;
    for (std::size_t t = 0; t < inputs.size(); ++t) {
      convert.widen(static_cast<const std::uint16_t*>(inputs[t]) + i, &terms[t], 1);
      pointers.push_back(&terms[t]);
    }
    const float sum = kernels::plain_tree<float>(pointers, 0);
    const float result = mean ? sum / static_cast<float>(inputs.size()) : sum;
    std::uint16_t rounded;
    convert.narrow(&result, &rounded, 1);
    return rounded;
  });
}

KernelRun all_reduce_reference(KernelPlan& plan) {
  switch (plan.dtype()) {
    case DType::kF32: return all_reduce_reference_of<float>(plan);
    case DType::kF64: return all_reduce_reference_of<double>(plan);
    case DType::kI32: return all_reduce_reference_of<std::int32_t>(plan);
    default: return all_reduce_reference_16(plan);
  }
}

// Without `ranks` the sum of one GPU's participants may be fused.
Op sum_over_participants(const char* name, DivisorFunction ranks) {
  return {.name = name,
          .inputs = kVariadicInputs,
          .shape = all_reduce_shape,
          .gradient = all_reduce_gradient,
          .missing_grads = true,
          .split = WorkSplit::kElements,
          .in_place = InPlace::kPairwise,
          .fused_update_on_gpus = !ranks,
          .collective = participants,
          .ranks = ranks,
          .cpu = all_reduce_cpu,
          .reference = all_reduce_reference,
          .half = true};
}

}  // namespace

const Op kAllReduce = sum_over_participants("AllReduce", nullptr);
const Op kNcclAllReduce = sum_over_participants("NcclAllReduce", all_reduce_divisor);

AllReduceShare::AllReduceShare(const KernelPlan& plan) {
  const Node& node = plan.node();
  const auto all = static_cast<std::size_t>(collective_size(node));
  // A kernel of a fused collective gets one tensor. Collectives by ranks are not fused.
  participants = node.op().ranks ? all * plan.inputs() / node.inputs().size() : all;
  const bool sums_all = participants == all && node.options<AllReduceOptions>().processes == 1;
  divisor = sums_all ? all_reduce_divisor(node) : 1;
}

std::vector<Output> all_reduce(std::span<const Output> xs, AllReduceOptions options, At at) {
  return reduce_with(kAllReduce, xs, options, std::move(at));
}

std::vector<std::vector<Output>> all_reduce_bucket(std::span<const std::vector<Output>> tensors,
                                                   AllReduceOptions options, At at) {
  return reduce_bucket(kAllReduce, tensors, options, std::move(at));
}

std::vector<std::vector<Output>> nccl_all_reduce_bucket(
    std::span<const std::vector<Output>> tensors, AllReduceOptions options, At at) {
  return reduce_bucket(kNcclAllReduce, tensors, options, std::move(at));
}

}  // namespace belfry
