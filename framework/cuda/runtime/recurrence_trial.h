// Times the kernels of a recurrence on random numbers, and compares their results.
#pragma once
#include "belfry/framework/cuda/runtime/trial.h"

namespace belfry::cuda {

class RecurrenceTrial : Trial {
 public:
  RecurrenceTrial(const Recurrence& recurrence, const Where& where);

  // Of both passes. Call it for our kernels first. kNever if the results of others differ from
  // theirs by more than rounding, or if the library refuses the call.
  double seconds(const RecurrenceKernels& kernels);

 private:
  void run(const RecurrenceKernels& kernels, std::byte* workspace);

  const Recurrence& recurrence_;
  std::vector<void*> in_, out_;            // of the forward op
  std::vector<void*> grad_in_, grad_out_;  // and of its gradient
};

}  // namespace belfry::cuda
