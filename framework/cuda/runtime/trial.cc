#include "belfry/framework/cuda/runtime/trial.h"

#include <cmath>

#include "belfry/framework/base/log.h"
#include "belfry/framework/kernels/half_bits.h"

namespace belfry::cuda {
namespace {

// Calls f(T{}) with the type in which hosts keep numbers of a floating-point type.
template <class F>
void visit_stored(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF16: return f(kernels::F16{});
    case DType::kBF16: return f(kernels::BF16{});
    default: visit_floating(dtype, f);
  }
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

// After the work in the queue's stream. The host's memory is pageable, so the copy is in a stream
// of this thread alone.
void Trial::copy(void* to, const void* from, std::size_t bytes) {
  BELFRY_GPU_CALL(cudaStreamSynchronize(queue_.stream()), where_);
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), where_);
  BELFRY_GPU_CALL(cudaStreamSynchronize(cudaStreamPerThread), where_);
}

void* Trial::random(DType dtype, std::int64_t count, double size) {
  void* const memory = zeros(count * static_cast<std::int64_t>(size_of(dtype)));
  if (!memory) return nullptr;
  std::uniform_real_distribution<double> numbers(-size, size);
  visit_stored(dtype, [&]<class T>(T) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values)
      value = kernels::Stored<T>::narrow(
          static_cast<decltype(kernels::Stored<T>::widen(T{}))>(numbers(generator_)));
    copy(memory, values.data(), values.size() * sizeof(T));
  });
  return memory;
}

void* Trial::result(DType dtype, std::int64_t count) {
  void* const memory = zeros(count * static_cast<std::int64_t>(size_of(dtype)));
  results_.push_back({memory, dtype, count});
  return memory;
}

Trial::Numbers Trial::read(const Result& result) {
  Numbers numbers(static_cast<std::size_t>(result.count));
  visit_stored(result.dtype, [&]<class T>(T) {
    std::vector<T> values(numbers.size());
    copy(values.data(), result.memory, values.size() * sizeof(T));
    std::ranges::transform(values, numbers.begin(), kernels::Stored<T>::widen);
  });
  return numbers;
}

bool Trial::agrees(const std::string& call, double tolerance) {
  const bool first = ours_.empty();
  for (std::size_t i = 0; i < results_.size(); ++i) {
    Numbers numbers = read(results_[i]);
    if (first) {
      ours_.push_back(std::move(numbers));
      continue;
    }
    const double difference = relative_difference(numbers, ours_[i]);
    if (difference <= tolerance) continue;
    log_warning(call, ": cuDNN's result ", i, " differs from that of kernels of Belfry by ",
                difference, " of its largest number; it is not used");
    return false;
  }
  return true;
}

}  // namespace belfry::cuda
