#include "belfry/ops/class_counts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/kernels/on_host.h"

namespace belfry {
namespace {

constexpr char kOnHosts[] = "it counts into a table, row by row, which hosts do";

OutputTypes class_counts_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  const auto& options = c.options<ClassCountsOptions>();
  const std::int64_t classes = c.input(0)[1];
  c.require(classes != kUnknownSize, "the number of classes must be known, not that of logits ",
            c.input(0));
  c.require(options.k >= 1 && options.k <= std::max<std::int64_t>(classes, 1),
            "k must be from 1 to the number of classes, not ", options.k, ", for logits ",
            c.input(0));
  switch (options.of) {
    case ClassCountsOf::kClasses: return {{Shape{3, classes}, DType::kF64}};
    case ClassCountsOf::kConfusion: return {{Shape{classes, classes + 1}, DType::kF64}};
    case ClassCountsOf::kTopK: break;
  }
  return {{Shape{2}, DType::kF64}};
}

// How many of x [n] rank before the class: larger ones, and equal ones with a smaller index. None
// if there is a NaN.
template <class T>
std::optional<std::int64_t> place_of_class(const T* x, std::int64_t n, std::int64_t label) {
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return {};
    if (x[i] > x[label] || (x[i] == x[label] && i < label)) ++before;
  }
  return before;
}

// The first of the largest logits; n if there is a NaN.
template <class T>
std::int64_t predicted_class(const T* x, std::int64_t n) {
  if (std::any_of(x, x + n, [](T value) { return std::isnan(value); })) return n;
  return std::max_element(x, x + n) - x;
}

template <class T>
void count_row(const ClassCountsOptions& options, const T* x, std::int64_t n, std::int64_t label,
               double* counts) {
  if (options.of == ClassCountsOf::kTopK) {
    const std::optional<std::int64_t> place = place_of_class(x, n, label);
    counts[0] += place && *place < options.k ? 1 : 0;
    counts[1] += 1;
    return;
  }
  const std::int64_t predicted = predicted_class(x, n);
  if (options.of == ClassCountsOf::kConfusion) {
    counts[label * (n + 1) + predicted] += 1;
    return;
  }
  counts[label] += 1;
  if (predicted < n) counts[n + predicted] += 1;
  if (predicted == label) counts[2 * n + label] += 1;
}

KernelRun class_counts_kernel(KernelPlan& plan) {
  const std::int64_t rows = plan.input(0).shape[0], n = plan.input(0).shape[1];
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) -> KernelRun {
    return [=, options = plan.options<ClassCountsOptions>(),
            size = plan.output(0).shape.elements()](const KernelPointers& p) {
      double* const counts = p.output<double>();
      std::fill_n(counts, size, 0.0);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto label = static_cast<std::int64_t>(p.input<Label>(1)[row]);
        if (label >= 0 && label < n) count_row(options, p.input<T>(0) + row * n, n, label, counts);
      }
    };
  });
}

OutputTypes score_counts_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64 || is_floating(c.dtype(1)),
            "labels are i32, i64 or floating point, not ", name_of(c.dtype(1)));
  c.require(c.input(0).rank() > 0 && c.input(0).compatible(c.input(1)), "scores ", c.input(0),
            " and labels ", c.input(1), " must have one shape, of samples");
  const auto& options = c.options<ScoreCountsOptions>();
  c.require(options.buckets >= 2, options.buckets, " buckets; there are at least 2");
  const bool is_interval =
      options.buckets == 2 ? options.low == options.high : options.low < options.high;
  c.require(std::isfinite(options.low) && std::isfinite(options.high) && is_interval,
            "scores from ", options.low, " to ", options.high, " are no interval for ",
            options.buckets, " buckets");
  return {{Shape{2, options.buckets}, DType::kF64}};
}

// The bucket of a score that is not NaN. A score on an edge is in the bucket above.
std::int64_t bucket_of(const ScoreCountsOptions& options, double score) {
  if (score < options.low) return 0;
  if (score >= options.high) return options.buckets - 1;
  const int between = options.buckets - 2;
  const double place = (score - options.low) / (options.high - options.low) * between;
  return 1 + std::min(static_cast<std::int64_t>(place), std::int64_t{between} - 1);
}

template <class F>
auto visit_label_type(DType dtype, const F& f) {
  if (dtype == DType::kI32) return f(std::int32_t{});
  if (dtype == DType::kI64) return f(std::int64_t{});
  return visit_floating(dtype, f);
}

KernelRun score_counts_kernel(KernelPlan& plan) {
  return visit_floating(plan.input(0).dtype, [&]<class T>(T) {
    return visit_label_type(plan.input(1).dtype, [&]<class Label>(Label) -> KernelRun {
      return [options = plan.options<ScoreCountsOptions>(),
              samples = plan.input(0).shape.elements()](const KernelPointers& p) {
        double* const counts = p.output<double>();
        std::fill_n(counts, 2 * options.buckets, 0.0);
        bool has_nan = false;
        for (std::int64_t i = 0; i < samples; ++i) {
          const auto label = static_cast<double>(p.input<Label>(1)[i]);
          const auto score = static_cast<double>(p.input<T>(0)[i]);
          if (label != 0 && label != 1) continue;
          has_nan = has_nan || std::isnan(score);
          if (!has_nan) counts[(label == 1 ? options.buckets : 0) + bucket_of(options, score)] += 1;
        }
        if (has_nan)
          std::fill_n(counts, 2 * options.buckets, std::numeric_limits<double>::quiet_NaN());
      };
    });
  });
}

}  // namespace

const Op kClassCounts{.name = "ClassCounts",
                      .inputs = 2,
                      .shape = class_counts_shape,
                      .no_gradient = "it counts, and is constant almost everywhere",
                      .shards = to_sums<3>,
                      .reference = class_counts_kernel,
                      .cpu_only = kOnHosts,
                      .autocast = Autocast::kFull};
const Op kScoreCounts{.name = "ScoreCounts",
                      .inputs = 2,
                      .shape = score_counts_shape,
                      .no_gradient = "it counts, and is constant almost everywhere",
                      .shards = to_sums<3>,
                      .reference = score_counts_kernel,
                      .cpu_only = kOnHosts,
                      .autocast = Autocast::kFull};
const StoredOptions<ClassCountsOptions> kStoredClassCounts(kClassCounts);
const StoredOptions<ScoreCountsOptions> kStoredScoreCounts(kScoreCounts);

Output class_counts(Output logits, Output labels, ClassCountsOptions options, At at) {
  return add_on_host(kClassCounts, {logits, labels}, at, NodeOptions(options)).output();
}

Output score_counts(Output scores, Output labels, ScoreCountsOptions options, At at) {
  return add_on_host(kScoreCounts, {scores, labels}, at, NodeOptions(options)).output();
}

}  // namespace belfry
