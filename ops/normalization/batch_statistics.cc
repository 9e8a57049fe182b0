#include "belfry/ops/normalization/batch_statistics.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/covering_nodes.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/plan/expansion.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/gather_moments.h"
#include "belfry/ops/normalization/normalise.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

constexpr std::size_t kInputsPerPart = 2;  // x, weight

OutputTypes statistics_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0 && c.inputs() % kInputsPerPart == 0,
            "needs parts, and a weight for each");
  c.require_floating(0);
  c.require_same_dtype();
  const Shape channels{c.input(0).back()};
  for (std::size_t i = 0; i < c.inputs(); i += kInputsPerPart) {
    c.require(c.input(i).rank() >= 2, "needs images or rows, but part ", i / kInputsPerPart,
              " has shape ", c.input(i));
    c.require(c.input(i).back() == channels[0], "parts 0 and ", i / kInputsPerPart, " have ",
              channels[0], " and ", c.input(i).back(), " channels");
    c.require_rank(i + 1, 0);
  }
  return {channels, channels, Shape{}};
}

// Finds the terms of a gradient, one per tower of this process, in order. They were added by one
// AddN, or by AddN nodes that each add two halves (framework/gradients/gradient_sum.cc).
void add_terms(Output gradient, std::ptrdiff_t towers, std::vector<Output>& terms) {
  if (towers == 1) return terms.push_back(gradient);
  const Node& sum = gradient.node();
  const std::span<const Output> inputs = sum.inputs();
  require<InternalError>(
      &sum.op() == &kAddN && (inputs.size() == 2 || std::ssize(inputs) == towers), sum.describe(),
      " is no sum over ", towers, " towers");
  if (std::ssize(inputs) == towers) {
    terms.insert(terms.end(), inputs.begin(), inputs.end());
    return;
  }
  add_terms(inputs[0], (towers + 1) / 2, terms);
  add_terms(inputs[1], towers / 2, terms);
}

std::vector<Output> terms_of(Output gradient, int towers) {
  std::vector<Output> terms;
  add_terms(gradient, towers, terms);
  return terms;
}

// [dmean, dvariance] over the towers of all processes, along the canonical tree.
Output gradient_of_all(const Node& node, Output dmean, Output dvariance) {
  const ProcessPlace process = node.graph().process();
  const auto towers = static_cast<int>(node.inputs().size() / kInputsPerPart),
             before = process.rank * towers;
  const std::vector<Output> means = terms_of(dmean, towers),
                            variances = terms_of(dvariance, towers);
  std::vector<Output> own;
  for (const TreeNode& some : covering_nodes({before, before + towers}, process.size * towers)) {
    const auto sum = [&](const std::vector<Output>& terms) {
      return add_n(std::span(terms).subspan(static_cast<std::size_t>(some.begin - before),
                                            static_cast<std::size_t>(some.end - some.begin)));
    };
    own.push_back(concat({sum(means), sum(variances)}, 0));
  }
  return sum_over_processes(own, process, towers, false);
}

// The gradient of each part is on the device of the part.
std::vector<Output> statistics_gradient(const Node& node, std::span<const Output> grads) {
  const Output mean = node.output(0), count = node.output(2);
  const auto given = [&](std::size_t i) { return grads[i] ? grads[i] : fill_like(mean, 0); };
  Output dmean = given(0), dvariance = given(1);
  if (node.graph().process().size > 1 && grads[0] && grads[1]) {
    const Output all = gradient_of_all(node, dmean, dvariance);
    const std::int64_t channels = mean.shape()[0];
    dmean = slice(all, {0}, {channels});
    dvariance = slice(all, {channels}, {channels});
  }
  std::vector<Output> result;
  for (std::size_t i = 0; i < node.inputs().size(); i += kInputsPerPart) {
    const Output x = node.input(i), weight = node.input(i + 1);
    ColocateWith none(node.graph(), nullptr);
    ColocateWith beside(x);
    const Node& dx =
        node.graph().add(kBatchStatisticsGrad, {x, dmean, dvariance, mean, count, weight});
    result.insert(result.end(), {dx.output(), Output()});
  }
  return result;
}

std::int64_t rows_of(const Shape& x) { return x.product(0, x.rank() - 1); }

// Channel by channel, in f64.
KernelRun statistics_reference(KernelPlan& plan) {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < plan.inputs(); i += kInputsPerPart)
    rows.push_back(rows_of(plan.input(i).shape));
  const std::int64_t channels = plan.input(0).shape.back();
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const auto counts = [&](std::size_t k) { return p.input<T>(kInputsPerPart * k + 1)[0] != 0; };
    double count = 0;
    for (std::size_t k = 0; k < rows.size(); ++k)
      if (counts(k)) count += static_cast<double>(rows[k]);
    const auto mean_of = [&](std::int64_t channel, const auto& term) {
      double total = 0;
      for (std::size_t k = 0; k < rows.size(); ++k)
        for (std::int64_t r = 0; counts(k) && r < rows[k]; ++r)
          total +=
              term(static_cast<double>(p.input<T>(kInputsPerPart * k)[r * channels + channel]));
      return total / std::max(count, 1.0);
    };
    for (std::int64_t c = 0; c < channels; ++c) {
      const double mean = mean_of(c, [](double x) { return x; });
      p.output<T>(0)[c] = static_cast<T>(mean);
      p.output<T>(1)[c] =
          static_cast<T>(mean_of(c, [&](double x) { return (x - mean) * (x - mean); }));
    }
    p.output<T>(2)[0] = static_cast<T>(count);
  });
}

void set_result(Expansion& e, NodeIndex all) { e.result = {{all, 0}, {all, 1}, {all, 2}}; }

void expand_statistics(Expansion& e) {
  const TensorType &channels = e.output(0), &count = e.output(2);
  std::vector<Value> parts;
  for (std::size_t i = 0; i < e.inputs(); i += kInputsPerPart)
    for (const Value& value :
         e.add_beside(kBatchMoments, e.input(i), {e.input(i + 1)}, {channels, channels, count}))
      parts.push_back(value);
  const int processes = e.node().graph().process().size;
  const auto combine = [&](const Op& op, std::vector<Value> from) {
    return e.add_once(op, std::move(from), {channels, channels, count});
  };
  if (processes == 1) return set_result(e, combine(kCombineMoments, parts));
  const std::vector<int> levels = tree_levels(processes);
  const std::int64_t columns = 2 * channels.shape[0] + 1;
  std::int64_t own = std::ssize(parts) / 3;
  std::vector<Value> given = parts;
  for (std::size_t level = 0;; ++level) {
    const Shape rows{levels[level] * own, columns};
    const NodeIndex gathered =
        e.add_once(gather_moments_at(level), std::move(given), {{rows, count.dtype}});
    if (level + 1 == levels.size())
      return set_result(e, combine(kCombineGathered, {{gathered, 0}}));
    given = {{e.add_once(kMergeMoments, {{gathered, 0}}, {{{1, columns}, count.dtype}}), 0}};
    own = 1;
  }
}

OutputTypes statistics_grad_shape(const ShapeContext& c) { return {c.type(0)}; }

KernelRun statistics_grad_cpu(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t rows = rows_of(x), channels = x.back();
  plan.workspace(2 * channels * static_cast<std::int64_t>(size_of(plan.dtype())));
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    T *const slope = reinterpret_cast<T*>(p.workspace()), *const offset = slope + channels;
    const T count = p.input<T>(4)[0];
    if (p.input<T>(5)[0] == 0) {
      std::fill_n(p.output<T>(), rows * channels, T(0));
      return;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      slope[c] = 2 * p.input<T>(2)[c] / count;
      offset[c] = p.input<T>(1)[c] / count;
    }
    kernels::scale_distance(p.input<T>(0), rows, channels, p.input<T>(3), slope, offset,
                            p.output<T>());
  });
}

KernelRun statistics_grad_reference(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t elements = x.elements(), channels = x.back();
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const auto in = [&](std::size_t input, std::int64_t i) {
      return static_cast<double>(p.input<T>(input)[i]);
    };
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::int64_t c = i % channels;
      const double distance = in(0, i) - in(3, c);
      const double dx = (in(1, c) + 2 * in(2, c) * distance) / in(4, 0);
      p.output<T>()[i] = static_cast<T>(in(5, 0) == 0 ? 0 : dx);
    }
  });
}

}  // namespace

const Op kBatchStatistics{.name = "BatchStatistics",
                          .inputs = kVariadicInputs,
                          .shape = statistics_shape,
                          .gradient = statistics_gradient,
                          .missing_grads = true,
                          .expand = expand_statistics,
                          .composite = true,
                          .reference = statistics_reference,
                          .autocast = Autocast::kFull};

const Op kBatchStatisticsGrad{.name = "BatchStatisticsGrad",
                              .inputs = 6,
                              .shape = statistics_grad_shape,
                              .no_gradient = "moments of parts have no second derivative",
                              .shards = by_rows<1>,
                              .in_place = InPlace::kFirst,
                              .cpu = statistics_grad_cpu,
                              .reference = statistics_grad_reference};

Moments batch_statistics(std::span<const Output> parts, At at) {
  require(!parts.empty(), at.site.str(), ": batch_statistics needs at least one part");
  const Output one = constant(parts[0].graph(), 1.0, parts[0].dtype(), at.site);
  std::vector<Output> inputs;
  for (const Output& part : parts) inputs.insert(inputs.end(), {part, one});
  Node& node = parts[0].graph().add(kBatchStatistics, inputs, at);
  return {node.output(0), node.output(1)};
}

}  // namespace belfry
