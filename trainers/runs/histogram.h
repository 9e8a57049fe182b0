// How the elements of a tensor are spread.
#pragma once
#include <vector>

#include "belfry/framework/base/tensor.h"

namespace belfry {

// Of the finite elements; those that are not are left out. All zero and empty if there are none.
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  // Bucket i holds what is below ends[i], and not in an earlier one; the last holds the maximum.
  std::vector<double> ends, counts;

  double count() const;
};

inline constexpr int kHistogramBuckets = 30;  // as many as TensorBoard shows

// Equal parts of the range; one bucket if all elements are equal. Takes f32 and f64.
Histogram histogram_of(const Tensor& values);

}  // namespace belfry
