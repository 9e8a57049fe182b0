// The distribution of the elements of a tensor.
#pragma once
#include <vector>

#include "belfry/framework/base/tensor.h"

namespace belfry {

// Counts finite elements alone. All zero and empty if there are none.
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // Bucket i counts elements below ends[i] that are in no earlier bucket; the last one has the
  // maximum.
  std::vector<double> ends, counts;

  double count() const;
};

inline constexpr int kHistogramBuckets = 30;  // as many as TensorBoard shows

// Equal parts of the range; one bucket if all elements are equal. Takes f32 and f64.
Histogram histogram_of(const Tensor& values);

}  // namespace belfry
