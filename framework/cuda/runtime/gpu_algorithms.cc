#include "belfry/framework/cuda/runtime/gpu_algorithms.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/stream_queue.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {
namespace {

// Attention whose tensors are all zeros, in a stream of its own: what is computed takes the same
// time for any numbers.
class AttentionTrial {
 public:
  AttentionTrial(const Attention& attention, const Where& where)
      : attention_(attention), where_(where), queue_(where.device) {
    if (where.node) queue_.serve(*where.node);
    const std::int64_t rows = attention.batch * attention.heads * attention.time;
    const std::int64_t tensor = rows * attention.head_dim * 2, sums = rows * 4;
    // As the op has them; the logarithms of sums come last.
    inputs_ = attention.gradient ? std::vector(5, tensor) : std::vector(3, tensor);
    outputs_ = attention.gradient ? std::vector(3, tensor) : std::vector(1, tensor);
    (attention.gradient ? inputs_ : outputs_).push_back(sums);
    std::int64_t bytes = 0;
    for (auto* const sizes : {&inputs_, &outputs_})
      for (std::int64_t& size : *sizes) {
        const std::int64_t at = bytes;
        bytes += (size + 255) / 256 * 256;
        size = at;  // where it is, from now on
      }
    memory_ = allocate(static_cast<std::size_t>(bytes), where.str());
    if (memory_)
      BELFRY_GPU_CALL(
          cudaMemsetAsync(memory_.get(), 0, static_cast<std::size_t>(bytes), queue_.stream()),
          where_);
  }

  double seconds(const CudnnAlgorithm& algorithm) {
    AttentionCall call{.attention = attention_, .algorithm = algorithm, .scale = 1};
    return timed(algorithm.workspace_bytes, [&](std::byte* workspace) {
      for (std::size_t i = 0; i < inputs_.size(); ++i) call.in[i] = at(inputs_[i]);
      for (std::size_t i = 0; i < outputs_.size(); ++i) call.out[i] = at(outputs_[i]);
      call.workspace = workspace;
      return queue_.attends(call);
    });
  }

  double seconds(const OwnKernel& ours) {
    std::vector<void*> in, out;
    for (const std::int64_t input : inputs_) in.push_back(memory_ ? at(input) : nullptr);
    for (const std::int64_t output : outputs_) out.push_back(memory_ ? at(output) : nullptr);
    return timed(ours.workspace_bytes, [&](std::byte* workspace) {
      ours.run(Pointers(in, out, workspace, {0, attention_.batch}, 0), queue_);
      return true;
    });
  }

 private:
  static constexpr int kRuns = 8;

  void* at(std::int64_t offset) const { return static_cast<std::byte*>(memory_.get()) + offset; }

  // enqueue(workspace) says whether it has.
  template <class Enqueue>
  double timed(std::int64_t workspace_bytes, const Enqueue& enqueue) {
    const DeviceMemory workspace = allocate(
        static_cast<std::size_t>(std::max<std::int64_t>(workspace_bytes, 1)), where_.str());
    if (!memory_ || !workspace) return AlgorithmSource::kNever;
    auto* const scratch = static_cast<std::byte*>(workspace.get());
    if (!enqueue(scratch))
      return AlgorithmSource::kNever;  // which also loads what is loaded lazily
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
  std::vector<std::int64_t> inputs_, outputs_;  // offsets in the memory
  DeviceMemory memory_;                         // null if there is not so much
};

}  // namespace

GpuAlgorithms::GpuAlgorithms(std::string device, std::string gpu)
    : where_{.device = std::move(device)},
      machine_(cat(gpu, ", cuDNN ", version_text(cudnnGetVersion()))) {}

std::vector<double> GpuAlgorithms::seconds(const Attention& attention,
                                           std::span<const CudnnAlgorithm> algorithms,
                                           const OwnKernel* ours) {
  AttentionTrial trial(attention, where_);
  std::vector<double> all;
  for (const CudnnAlgorithm& algorithm : algorithms) all.push_back(trial.seconds(algorithm));
  if (ours) all.push_back(trial.seconds(*ours));
  return all;
}

}  // namespace belfry::cuda
