// Sums over any set of axes, as a sequence of row and column sums.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/graph/kernel.h"

namespace belfry {

// The sum of a tensor over some of its axes, for one floating-point type. Dimension 0 is either
// reduced, or kept and then divided among calls: row r of the result depends only on row r of the
// input.
class Reduction {
 public:
  // reduced[axis]: the axis is summed over.
  Reduction(const Shape& x, const std::vector<bool>& reduced);

  // Elements of scratch memory needed for the whole tensor, shared by calls on different rows.
  std::int64_t workspace() const { return workspace_; }
  // Elements of the result.
  std::int64_t size() const { return size_; }

  // Sums rows [begin, end) of dimension 0 into the same rows of y, if dimension 0 is kept; all
  // otherwise.
  template <class T>
  void operator()(const T* x, T* y, T* scratch, std::int64_t begin, std::int64_t end) const;

  // The sums in sequence; each reduces the result of the previous one.
  // [outer, reduced, inner] -> [outer, inner].
  struct Step {
    std::int64_t outer, reduced, inner;
    std::int64_t to;  // offset of the result in the workspace, unused in the last step
  };
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
  std::int64_t rows_ = 1;  // of dimension 0 if it is kept
  std::int64_t workspace_ = 0;
  std::int64_t size_ = 1;
};

}  // namespace belfry
