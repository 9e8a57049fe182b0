// For gpu_ops_tests on a GPU with --own_kernels: there libraries compute only products.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/runtime/cuda_stream.h"
#include "belfry/framework/cuda/runtime/gpu_algorithms.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {
namespace {

class OwnKernels final : public Algorithms {
 public:
  explicit OwnKernels(const Node& node) : source_("GPU 0", "a GPU") { source_.serve(node); }
  MatMulAlgorithm matmul(const MatMul& matmul) override { return source_.matmul(matmul); }
  std::optional<CudnnAlgorithm> convolution(const Convolution&) override { return {}; }
  bool pooling(const Pooling&) override { return false; }
  std::optional<CudnnAlgorithm> attention(const Attention&, const MakeOwnKernel&) override {
    return {};
  }
  std::optional<CudnnAlgorithm> recurrence(const Recurrence&, const MakeRecurrence&) override {
    return {};
  }

 private:
  GpuAlgorithms source_;
};

}  // namespace
}  // namespace belfry::cuda

extern "C" void belfry_own_gpu_kernel(belfry::KernelPlan& plan, belfry::GpuRun& run) {
  using namespace belfry::cuda;
  const DeviceGuard guard(0);
  OwnKernels algorithms(plan.node());
  QueueRun prepared = prepare_gpu_kernel(plan, algorithms);
  if (!prepared) return;
  run = StreamRun{std::move(prepared), {.cublas_lt = true}};
}
