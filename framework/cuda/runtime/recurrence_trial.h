// Times the kernels of a recurrence on random numbers, and compares their results.
#pragma once
#include <random>

#include "belfry/framework/cuda/runtime/trial.h"

namespace belfry::cuda {

// The largest difference, relative to the largest of `ours`; infinite for NaN.
double relative_difference(std::span<const double> theirs, std::span<const double> ours);

class RecurrenceTrial : Trial {
 public:
  RecurrenceTrial(const Recurrence& recurrence, const Where& where);

  // Of both passes. Call it for our kernels first. kNever if the results of others differ from
  // theirs by more than rounding, or if the library refuses the call.
  double seconds(const RecurrenceKernels& kernels);

 private:
  using Numbers = std::vector<double>;

  std::size_t element() const { return size_of(recurrence_.dtype); }
  void copy(void* to, const void* from, std::size_t bytes);
  // A tensor of `count` elements from -size to size.
  void* random(std::int64_t count, double size);
  void run(const RecurrenceKernels& kernels, std::byte* workspace);
  Numbers read(std::size_t result);
  bool agrees();

  const Recurrence& recurrence_;
  std::mt19937 generator_;                               // no two tensors are alike
  std::vector<void*> in_, out_;                          // of the forward op
  std::vector<void*> grad_in_, grad_out_;                // and of its gradient
  std::vector<std::pair<void*, std::int64_t>> results_;  // the outputs, with their elements
  std::vector<Numbers> ours_;
};

}  // namespace belfry::cuda
