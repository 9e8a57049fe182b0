#include "belfry/trainers/runs/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace belfry {
namespace {

template <class T>
Histogram moments_of(std::span<const T> values) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Histogram found{.min = kInfinity, .max = -kInfinity};
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    found.min = std::min(found.min, value);
    found.max = std::max(found.max, value);
    found.sum += value;
    found.sum_squares += value * value;
  }
  return found;
}

// The width is computed from two quotients, because the whole range may exceed the largest number.
template <class T>
void count_into(Histogram& histogram, std::span<const T> values) {
  const double width = histogram.max / kHistogramBuckets - histogram.min / kHistogramBuckets;
  const int buckets = width > 0 ? kHistogramBuckets : 1;
  for (int i = 1; i < buckets; ++i) histogram.ends.push_back(histogram.min + width * i);
  histogram.ends.push_back(histogram.max);
  histogram.counts.assign(histogram.ends.size(), 0);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const double place = width > 0 ? value / width - histogram.min / width : 0;
    const double bucket = std::clamp(place, 0.0, static_cast<double>(buckets - 1));
    ++histogram.counts[static_cast<std::size_t>(bucket)];
  }
}

}  // namespace

double Histogram::count() const { return std::accumulate(counts.begin(), counts.end(), 0.0); }

Histogram histogram_of(const Tensor& values) {
  return visit_floating(values.dtype(), [&](auto type) {
    const std::span<const decltype(type)> all = values.data<decltype(type)>();
    Histogram histogram = moments_of(all);
    if (histogram.min > histogram.max) return Histogram{};  // no element is finite
    count_into(histogram, all);
    return histogram;
  });
}

}  // namespace belfry
