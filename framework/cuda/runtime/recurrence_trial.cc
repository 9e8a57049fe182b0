#include "belfry/framework/cuda/runtime/recurrence_trial.h"

#include <cmath>

#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {
namespace {

// For rounding. A wrong order of gates or weights makes a much larger difference.
double tolerance(const Recurrence& recurrence) {
  if (recurrence.dtype == DType::kF64) return 1e-9;
  return recurrence.compute == Compute::kTf32 ? 2e-2 : 1e-3;
}

}  // namespace

// Tensors are in the order of the ops of ops/recurrent/whole_recurrence.h.
RecurrenceTrial::RecurrenceTrial(const Recurrence& recurrence, const Where& where)
    : Trial(where), recurrence_(recurrence) {
  const auto random = [&](std::int64_t count, double size) {
    return Trial::random(recurrence.dtype, count, size);
  };
  const std::int64_t rows = recurrence.batch, columns = recurrence.columns();
  const std::int64_t state = rows * recurrence.hidden, y = state * recurrence.time;
  const std::size_t states = recurrence.has_c() ? 2 : 1;
  const double weight = 1 / std::sqrt(static_cast<double>(recurrence.hidden));
  std::vector<std::int64_t> counts{rows * recurrence.time * recurrence.features,
                                   recurrence.features * columns, recurrence.hidden * columns,
                                   columns, columns};
  for (std::size_t i = 0; i < counts.size(); ++i)
    in_.push_back(random(counts[i], i == 0 ? 1 : weight));
  for (std::size_t i = 0; i < states; ++i) in_.push_back(random(counts.emplace_back(state), 1));
  const auto result = [&](std::int64_t count) { return Trial::result(recurrence.dtype, count); };
  out_ = {result(y), zeros(recurrence.saved_bytes)};
  for (std::size_t i = 0; i < states; ++i) out_.push_back(result(state));
  grad_in_ = in_;
  grad_in_.insert(grad_in_.end(), {out_[0], out_[1], random(y, 1)});
  for (std::size_t i = 0; i < states; ++i) grad_in_.push_back(random(state, 1));
  for (const std::int64_t count : counts) grad_out_.push_back(result(count));
}

void RecurrenceTrial::run(const RecurrenceKernels& kernels, std::byte* workspace) {
  const WorkRange all{0, 1};
  kernels.forward.run(KernelPointers(in_, out_, workspace, all, 0), queue());
  kernels.gradient.run(KernelPointers(grad_in_, grad_out_, workspace, all, 0), queue());
}

double RecurrenceTrial::seconds(const RecurrenceKernels& kernels) try {
  return timed(
      std::max(kernels.forward.workspace_bytes, kernels.gradient.workspace_bytes),
      [&](std::byte* workspace) {
        run(kernels, workspace);
        return true;
      },
      [&] { return agrees(recurrence_.str(), tolerance(recurrence_)); });
} catch (const DeviceError&) {
  if (!knows_ours()) throw;
  // cuDNN refuses the call. If it is the GPU that has failed, so do later calls.
  return AlgorithmSource::kNever;
}

}  // namespace belfry::cuda
