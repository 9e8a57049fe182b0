#include "belfry/framework/cuda/runtime/gpu_algorithms.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/stream_queue.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {
namespace {

// Runs attention of zeros in a separate stream. The time does not depend on the numbers.
class AttentionTrial {
 public:
  AttentionTrial(const Attention& attention, const Where& where)
      : attention_(attention), where_(where), queue_(where.device) {
    if (where.node) queue_.serve(*where.node);
    const std::int64_t rows = attention.batch * attention.heads * attention.time;
    const std::int64_t tensor = rows * attention.head_dim * 2, sums = rows * 4;
    // In the op's order; the logarithms of sums come last.
    std::vector<std::int64_t> inputs(attention.gradient ? 5 : 3, tensor);
    std::vector<std::int64_t> outputs(attention.gradient ? 3 : 1, tensor);
    (attention.gradient ? inputs : outputs).push_back(sums);
    for (const std::int64_t bytes : inputs) in_.push_back(zeros(bytes));
    for (const std::int64_t bytes : outputs) out_.push_back(zeros(bytes));
  }

  double seconds(const CudnnAlgorithm& algorithm) {
    AttentionCall call{.attention = attention_, .algorithm = algorithm, .scale = 1};
    std::ranges::copy(in_, call.in.begin());
    std::ranges::copy(out_, call.out.begin());
    return timed(algorithm.workspace_bytes, [&](std::byte* workspace) {
      call.workspace = workspace;
      return queue_.attends(call);
    });
  }

  double seconds(const OwnKernel& ours) {
    return timed(ours.workspace_bytes, [&](std::byte* workspace) {
      ours.run(KernelPointers(in_, out_, workspace, {0, attention_.batch}, 0), queue_);
      return true;
    });
  }

 private:
  static constexpr int kRuns = 8;

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

  // enqueue(workspace) returns whether cuDNN accepts the call.
  template <class Enqueue>
  double timed(std::int64_t workspace_bytes, const Enqueue& enqueue) {
    const DeviceMemory workspace = allocate(
        static_cast<std::size_t>(std::max<std::int64_t>(workspace_bytes, 1)), where_.str());
    if (!fits_ || !workspace) return AlgorithmSource::kNever;
    auto* const scratch = static_cast<std::byte*>(workspace.get());
    // The first run also loads what CUDA loads lazily.
    if (!enqueue(scratch)) return AlgorithmSource::kNever;
    const Event before = make_timer(where_.str()), after = make_timer(where_.str());
    BELFRY_GPU_CALL(cudaEventRecord(before.get(), queue_.stream()), where_);
    for (int run = 0; run < kRuns; ++run) enqueue(scratch);
    BELFRY_GPU_CALL(cudaEventRecord(after.get(), queue_.stream()), where_);
    BELFRY_GPU_CALL(cudaStreamSynchronize(queue_.stream()), where_);
    float milliseconds = 0;
    BELFRY_GPU_CALL(cudaEventElapsedTime(&milliseconds, before.get(), after.get()), where_);
    return double{milliseconds} / 1000 / kRuns;
  }

  const Attention& attention_;
  const Where& where_;
  StreamQueue queue_;
  std::vector<DeviceMemory> memory_;
  bool fits_ = true;
  std::vector<void*> in_, out_;
};

}  // namespace

GpuAlgorithms::GpuAlgorithms(std::string device, std::string gpu)
    : where_{.device = std::move(device)},
      machine_(cat(gpu, ", cuDNN ", version_text(cudnnGetVersion()))) {}

std::vector<double> GpuAlgorithms::seconds(const Attention& attention,
                                           std::span<const CudnnAlgorithm> algorithms,
                                           const OwnKernel& ours) {
  AttentionTrial trial(attention, where_);
  std::vector<double> all;
  for (const CudnnAlgorithm& algorithm : algorithms) all.push_back(trial.seconds(algorithm));
  all.push_back(trial.seconds(ours));
  return all;
}

}  // namespace belfry::cuda
