#include "belfry/framework/cuda/runtime/gpu_algorithms.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/recurrence_trial.h"
#include "belfry/framework/cuda/runtime/trial.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {
namespace {

// Attention in 16 bits: results round by 0.4 % (bf16), and so do the weights within.
constexpr double kAttentionTolerance = 2e-2;

class AttentionTrial : Trial {
 public:
  AttentionTrial(const Attention& attention, const Where& where)
      : Trial(where), attention_(attention) {
    const std::int64_t rows = attention.batch * attention.heads * attention.time;
    const std::int64_t tensor = rows * attention.head_dim;
    const std::vector<std::int64_t> q_k_v = attention.joined ? std::vector<std::int64_t>{3 * tensor}
                                                             : std::vector<std::int64_t>(3, tensor);
    const auto take = [&](std::int64_t elements) {
      in_.push_back(random(attention.dtype, elements, 1));
    };
    // In the op's order; the logarithms of sums come last.
    if (attention.gradient) take(tensor);
    std::ranges::for_each(q_k_v, take);
    if (attention.gradient) take(tensor);
    if (attention.gradient) in_.push_back(random(DType::kF32, rows, 1));
    for (const std::int64_t elements : attention.gradient ? q_k_v : std::vector{tensor})
      out_.push_back(result(attention.dtype, elements));
    if (!attention.gradient) out_.push_back(result(DType::kF32, rows));
  }

  // Call it for our kernel first. kNever if cuDNN refuses the call, or its results differ from
  // ours.
  double seconds(const CudnnAlgorithm& algorithm) {
    AttentionCall call{.attention = attention_, .algorithm = algorithm};
    call.take(in_, out_);
    return timed(
        algorithm.workspace_bytes,
        [&](std::byte* workspace) {
          call.workspace = workspace;
          return queue().attends(call);
        },
        [&] { return agrees(attention_.str(), kAttentionTolerance); });
  }

  double seconds(const OwnKernel& ours) {
    return timed(
        ours.workspace_bytes,
        [&](std::byte* workspace) {
          ours.run(KernelPointers(in_, out_, workspace, {0, attention_.batch}, 0), queue());
          return true;
        },
        [&] { return agrees(attention_.str(), kAttentionTolerance); });
  }

 private:
  const Attention& attention_;
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
  const double own = trial.seconds(ours);
  std::vector<double> all;
  for (const CudnnAlgorithm& algorithm : algorithms) all.push_back(trial.seconds(algorithm));
  all.push_back(own);
  return all;
}

std::vector<double> GpuAlgorithms::seconds(const Recurrence& recurrence,
                                           std::span<const RecurrenceKernels> kernels) {
  RecurrenceTrial trial(recurrence, where_);
  // Ours come first, as the others are compared with them. Without memory for ours, nothing else is
  // taken.
  std::vector<double> all(kernels.size(), kNever);
  for (std::size_t i = kernels.size(); i-- > 0;) {
    all[i] = trial.seconds(kernels[i]);
    if (all.back() == kNever) break;
  }
  return all;
}

}  // namespace belfry::cuda
