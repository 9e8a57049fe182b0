#include "belfry/ops/normalization/layer_norm.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/composed_norm_impl.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm_impl.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"

namespace belfry {
namespace {

// Input i is x; inputs after it have one value per column.
template <bool centred>
void require_rows(const ShapeContext& c, std::size_t i) {
  const double epsilon = c.options<RowNormOptions<centred>>().epsilon;
  c.require(epsilon >= 0, "epsilon must not be negative, but is ", epsilon);
  c.require_floating(0);
  c.require_same_dtype();
  const Shape& x = c.input(i);
  c.require(x.rank() >= 2, "needs rows, but the shape is ", x, "; reshape a vector to [1,n]");
  for (std::size_t k = i + 1; k < c.inputs(); ++k)
    c.require(c.input(k).compatible(Shape{x.back()}), "input ", k, " has shape ", c.input(k),
              ", but rows have ", x.back(), " elements: ", x);
}

template <bool centred>
OutputTypes norm_shape(const ShapeContext& c) {
  require_rows<centred>(c, 0);
  return {c.input(0)};
}

template <bool centred>
OutputTypes norm_grad_shape(const ShapeContext& c) {
  require_rows<centred>(c, 1);
  c.require(c.input(0).compatible(c.input(1)), "gradient and input have shapes ", c.input(0),
            " and ", c.input(1));
  OutputTypes types{c.input(1)};
  types.resize(centred ? 3 : 2, Shape{c.input(1).back()});
  return types;
}

template <const Op& op>
std::vector<Output> norm_gradient(const Node& node, std::span<const Output> grads) {
  const Node& grad =
      node.graph().add(op, {grads[0], node.input(0), node.input(1)}, {}, node.raw_options());
  std::vector<Output> result;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) result.push_back(grad.output(i));
  return result;
}

template <bool centred>
std::vector<Output> row_norm_grad_gradient(const Node& node, std::span<const Output> grads) {
  const double epsilon = node.options<RowNormOptions<centred>>().epsilon;
  return norm_grad_gradient(node, grads, [=](Output x) {
    if constexpr (centred) return composed_norm(x, {-1}, epsilon);
    return x / sqrt(reduce_mean(square(x), {-1}, ReducedAxes::kKept) + epsilon);
  });
}

// Shards have rows of dx, and partial sums of the other gradients.
Sharding norm_grad_shards(const ShardContext& c) {
  Sharding sharding = row_shards({c.node, c.inputs, c.outputs.first(1), c.divisions, c.samples}, 3);
  if (sharding.divides()) sharding.outputs.resize(c.outputs.size(), Division::partial());
  return sharding;
}

// The plain kernels: row by row, in f64.
struct PlainRow {
  template <class T>
  PlainRow(const T* x, std::int64_t n, bool centred, double epsilon) {
    for (std::int64_t i = 0; i < n && centred; ++i) mean += x[i] / static_cast<double>(n);
    double square = 0;
    for (std::int64_t i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
    spread = std::sqrt(square / static_cast<double>(n) + epsilon);
  }
  double of(double x) const { return (x - mean) / spread; }

  double mean = 0, spread;
};

template <bool centred>
KernelRun norm_reference(KernelPlan& plan) {
  const NormRows rows(plan.output().shape);
  const double epsilon = plan.options<RowNormOptions<centred>>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    for (std::int64_t r = p.begin() * rows.per_sample; r < p.end() * rows.per_sample; ++r) {
      const T* const x = p.input<T>(0) + r * rows.columns;
      const PlainRow row(x, rows.columns, centred, epsilon);
      for (std::int64_t i = 0; i < rows.columns; ++i)
        p.output<T>()[r * rows.columns + i] =
            static_cast<T>(row.of(x[i]) * p.input<T>(1)[i] + (centred ? p.input<T>(2)[i] : T(0)));
    }
  });
}

template <class T>
void plain_row_gradient(const T* dy, const T* x, const T* gamma, std::int64_t n,
                        const PlainRow& row, bool centred, T* dx) {
  double sum = 0, product = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += double{dy[i]} * gamma[i];
    product += double{dy[i]} * gamma[i] * row.of(x[i]);
  }
  const double mean = centred ? sum / static_cast<double>(n) : 0;
  const double slope = product / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = static_cast<T>((double{dy[i]} * gamma[i] - mean - row.of(x[i]) * slope) / row.spread);
}

template <bool centred>
KernelRun norm_grad_reference(KernelPlan& plan) {
  const NormRows rows(plan.input(1).shape);
  const double epsilon = plan.options<RowNormOptions<centred>>().epsilon;
  return typed_kernel(plan, [=, n = rows.columns]<class T>(T, const KernelPointers& p) {
    std::vector<double> dgamma(static_cast<std::size_t>(n)), dbeta(dgamma);
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const T *const dy = p.input<T>(0) + r * n, *const x = p.input<T>(1) + r * n;
      const PlainRow row(x, n, centred, epsilon);
      for (std::int64_t i = 0; i < n; ++i) {
        dgamma[static_cast<std::size_t>(i)] += dy[i] * row.of(x[i]);
        dbeta[static_cast<std::size_t>(i)] += dy[i];
      }
      plain_row_gradient(dy, x, p.input<T>(2), n, row, centred, p.output<T>(0) + r * n);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      p.output<T>(1)[i] = static_cast<T>(dgamma[static_cast<std::size_t>(i)]);
      if (centred) p.output<T>(2)[i] = static_cast<T>(dbeta[static_cast<std::size_t>(i)]);
    }
  });
}

}  // namespace

const Op kLayerNorm{.name = "LayerNorm",
                    .inputs = 3,
                    .shape = norm_shape<true>,
                    .gradient = norm_gradient<kLayerNormGrad>,
                    .split = WorkSplit::kRows,
                    .shards = by_rows<1>,
                    .fuse = fuse_row_norm,
                    .in_place = InPlace::kFirst,
                    .cpu = row_norm_on_host<true>,
                    .reference = norm_reference<true>,
                    .autocast = Autocast::kFull};

const Op kLayerNormGrad{.name = "LayerNormGrad",
                        .inputs = 3,
                        .shape = norm_grad_shape<true>,
                        .gradient = row_norm_grad_gradient<true>,
                        .missing_grads = true,
                        .shards = norm_grad_shards,
                        .fuse = fuse_row_norm_gradient,
                        .cpu = row_norm_gradient_on_host<true>,
                        .reference = norm_grad_reference<true>};

const Op kRmsNorm{.name = "RmsNorm",
                  .inputs = 2,
                  .shape = norm_shape<false>,
                  .gradient = norm_gradient<kRmsNormGrad>,
                  .split = WorkSplit::kRows,
                  .shards = by_rows<1>,
                  .fuse = fuse_row_norm,
                  .in_place = InPlace::kFirst,
                  .cpu = row_norm_on_host<false>,
                  .reference = norm_reference<false>,
                  .autocast = Autocast::kFull};

const Op kRmsNormGrad{.name = "RmsNormGrad",
                      .inputs = 3,
                      .shape = norm_grad_shape<false>,
                      .gradient = row_norm_grad_gradient<false>,
                      .missing_grads = true,
                      .shards = norm_grad_shards,
                      .fuse = fuse_row_norm_gradient,
                      .cpu = row_norm_gradient_on_host<false>,
                      .reference = norm_grad_reference<false>};
const StoredOptions<LayerNormOptions> kStoredLayerNorm(kLayerNorm, kLayerNormGrad);
const StoredOptions<RmsNormOptions> kStoredRmsNorm(kRmsNorm, kRmsNormGrad);

Output layer_norm(Output x, Output gamma, Output beta, LayerNormOptions options, At at) {
  return x.graph().add(kLayerNorm, {x, gamma, beta}, at, NodeOptions(options)).output();
}

Output rms_norm(Output x, Output gamma, RmsNormOptions options, At at) {
  return x.graph().add(kRmsNorm, {x, gamma}, at, NodeOptions(options)).output();
}

}  // namespace belfry
