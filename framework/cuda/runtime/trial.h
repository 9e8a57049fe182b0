// Runs kernels of a call in a separate stream on random numbers, to choose the fastest, and
// compares their results.
#pragma once
#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "belfry/framework/cuda/runtime/algorithm_provider.h"
#include "belfry/framework/cuda/runtime/stream_queue.h"

namespace belfry::cuda {

// The largest difference, relative to the largest of `ours`; infinite for NaN.
double relative_difference(std::span<const double> theirs, std::span<const double> ours);

class Trial {
 public:
  explicit Trial(const Where& where) : where_(where), queue_(where.device) {
    if (where.node) queue_.serve(*where.node);
  }

 protected:
  static constexpr int kRuns = 8;

  StreamQueue& queue() { return queue_; }
  const Where& where() const { return where_; }
  // Whether there was enough memory so far.
  bool fits() const { return fits_; }

  // Null if there is not that much memory.
  void* zeros(std::int64_t bytes) {
    memory_.push_back(allocate(static_cast<std::size_t>(bytes), where_.str()));
    void* const start = memory_.back().get();
    if (start)
      BELFRY_GPU_CALL(cudaMemsetAsync(start, 0, static_cast<std::size_t>(bytes), queue_.stream()),
                      where_);
    else
      fits_ = false;
    return start;
  }

  // A tensor of `count` numbers from -size to size, floating point; null if there is no memory.
  void* random(DType dtype, std::int64_t count, double size);
  // Memory for a result that all kernels must agree on.
  void* result(DType dtype, std::int64_t count);
  // Keeps the results of the first kernels, ours, and compares those of others with them. False,
  // and a warning that names `call`, if they differ by more than `tolerance` of the largest number.
  bool agrees(const std::string& call, double tolerance);
  // Whether agrees() has kept results.
  bool knows_ours() const { return !ours_.empty(); }

  // enqueue(workspace) returns whether the call is accepted. first() is called after the first run,
  // and returns whether its results are right.
  template <class Enqueue, class First>
  double timed(std::int64_t workspace_bytes, const Enqueue& enqueue, const First& first) {
    const DeviceMemory workspace = allocate(
        static_cast<std::size_t>(std::max<std::int64_t>(workspace_bytes, 1)), where_.str());
    if (!fits_ || !workspace) return AlgorithmSource::kNever;
    auto* const scratch = static_cast<std::byte*>(workspace.get());
    // The first run also loads what CUDA loads lazily.
    if (!enqueue(scratch) || !first()) return AlgorithmSource::kNever;
    const Event before = make_timer(where_.str()), after = make_timer(where_.str());
    BELFRY_GPU_CALL(cudaEventRecord(before.get(), queue_.stream()), where_);
    for (int run = 0; run < kRuns; ++run) enqueue(scratch);
    BELFRY_GPU_CALL(cudaEventRecord(after.get(), queue_.stream()), where_);
    BELFRY_GPU_CALL(cudaStreamSynchronize(queue_.stream()), where_);
    float milliseconds = 0;
    BELFRY_GPU_CALL(cudaEventElapsedTime(&milliseconds, before.get(), after.get()), where_);
    return double{milliseconds} / 1000 / kRuns;
  }

 private:
  using Numbers = std::vector<double>;
  struct Result {
    void* memory;
    DType dtype;
    std::int64_t count;
  };

  void copy(void* to, const void* from, std::size_t bytes);
  Numbers read(const Result& result);

  const Where& where_;
  StreamQueue queue_;
  std::vector<DeviceMemory> memory_;
  bool fits_ = true;
  std::mt19937 generator_;  // no two tensors are alike
  std::vector<Result> results_;
  std::vector<Numbers> ours_;
};

}  // namespace belfry::cuda
