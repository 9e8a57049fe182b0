#include "belfry/framework/cuda/runtime/recurrence_trial.h"

#include <cmath>

#include "belfry/framework/base/log.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {
namespace {

// For rounding. A wrong order of gates or weights makes a much larger difference.
double tolerance(const Recurrence& recurrence) {
  if (recurrence.dtype == DType::kF64) return 1e-9;
  return recurrence.compute == Compute::kTf32 ? 2e-2 : 1e-3;
}

}  // namespace

double relative_difference(std::span<const double> theirs, std::span<const double> ours) {
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(ours[i]));
    const double apart = std::abs(theirs[i] - ours[i]);
    difference = std::max(difference, std::isnan(apart) ? AlgorithmSource::kNever : apart);
  }
  return difference == 0 ? 0 : difference / largest;
}

// Tensors are in the order of the ops of ops/recurrent/whole_recurrence.h.
RecurrenceTrial::RecurrenceTrial(const Recurrence& recurrence, const Where& where)
    : Trial(where), recurrence_(recurrence) {
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
  const auto result = [&](std::int64_t count) {
    void* const memory = zeros(count * static_cast<std::int64_t>(element()));
    results_.emplace_back(memory, count);
    return memory;
  };
  out_ = {result(y), zeros(recurrence.saved_bytes)};
  for (std::size_t i = 0; i < states; ++i) out_.push_back(result(state));
  grad_in_ = in_;
  grad_in_.insert(grad_in_.end(), {out_[0], out_[1], random(y, 1)});
  for (std::size_t i = 0; i < states; ++i) grad_in_.push_back(random(state, 1));
  for (const std::int64_t count : counts) grad_out_.push_back(result(count));
}

// After the work in the queue's stream. The host's memory is pageable, so the copy is in a stream
// of this thread alone.
void RecurrenceTrial::copy(void* to, const void* from, std::size_t bytes) {
  BELFRY_GPU_CALL(cudaStreamSynchronize(queue().stream()), where());
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread),
                  where());
  BELFRY_GPU_CALL(cudaStreamSynchronize(cudaStreamPerThread), where());
}

void* RecurrenceTrial::random(std::int64_t count, double size) {
  void* const memory = zeros(count * static_cast<std::int64_t>(element()));
  if (!memory) return nullptr;
  std::uniform_real_distribution<double> numbers(-size, size);
  visit_floating(recurrence_.dtype, [&]<class T>(T) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(numbers(generator_));
    copy(memory, values.data(), values.size() * sizeof(T));
  });
  return memory;
}

void RecurrenceTrial::run(const RecurrenceKernels& kernels, std::byte* workspace) {
  const WorkRange all{0, 1};
  kernels.forward.run(KernelPointers(in_, out_, workspace, all, 0), queue());
  kernels.gradient.run(KernelPointers(grad_in_, grad_out_, workspace, all, 0), queue());
}

RecurrenceTrial::Numbers RecurrenceTrial::read(std::size_t result) {
  const auto [memory, count] = results_[result];
  Numbers numbers(static_cast<std::size_t>(count));
  visit_floating(recurrence_.dtype, [&]<class T>(T) {
    std::vector<T> values(numbers.size());
    copy(values.data(), memory, values.size() * sizeof(T));
    std::ranges::copy(values, numbers.begin());
  });
  return numbers;
}

// Keeps the results of the first kernels, and compares those of the others with them.
bool RecurrenceTrial::agrees() {
  const bool first = ours_.empty();
  for (std::size_t i = 0; i < results_.size(); ++i) {
    Numbers numbers = read(i);
    if (first) {
      ours_.push_back(std::move(numbers));
      continue;
    }
    const double difference = relative_difference(numbers, ours_[i]);
    if (difference <= tolerance(recurrence_)) continue;
    log_warning(recurrence_, ": cuDNN's result ", i, " differs from that of kernels of Belfry by ",
                difference, " of its largest number; it is not used");
    return false;
  }
  return true;
}

double RecurrenceTrial::seconds(const RecurrenceKernels& kernels) try {
  return timed(
      std::max(kernels.forward.workspace_bytes, kernels.gradient.workspace_bytes),
      [&](std::byte* workspace) {
        run(kernels, workspace);
        return true;
      },
      [&] { return agrees(); });
} catch (const DeviceError&) {
  if (ours_.empty()) throw;
  // cuDNN refuses the call. If it is the GPU that has failed, so do later calls.
  return AlgorithmSource::kNever;
}

}  // namespace belfry::cuda
