// The op of examples/own_parts, and its kernel for GPUs: the source that nvcc compiles, compiled as
// C++ for the host, so that it is tested where no CUDA is.
#include <gtest/gtest.h>

#include "belfry/examples/own_parts/swish.h"
#include "belfry/op_test.h"

// What launch.h uses of CUDA C++. No test runs the kernels by that.
#define __global__
#define __grid_constant__
#define __shared__
namespace {
struct Coordinate {
  unsigned x = 0;
};
const Coordinate blockIdx, blockDim;
}  // namespace

#include "belfry/examples/own_parts/swish.cc"
#include "belfry/examples/own_parts/swish.cu"
#undef __global__
#undef __grid_constant__
#undef __shared__

namespace belfry {
namespace own_parts_test {

cuda::GpuPrepare& registered() {
  static cuda::GpuPrepare prepare = nullptr;
  return prepare;
}

// Runs launches at once, on the host.
class HostQueue final : public cuda::KernelQueue {
 public:
  void launch(const cuda::KernelLaunch& launch) override {
    launch.on_host(launch.kernel, launch.grid, {});
    ++launches;
  }
  void matmul(const cuda::MatMulCall&) override { refuse(); }
  void convolve(const cuda::ConvolutionCall&) override { refuse(); }
  void pool(const cuda::PoolingCall&) override { refuse(); }
  void attend(const cuda::AttentionCall&) override { refuse(); }
  void recur(const cuda::RecurrenceCall&) override { refuse(); }
  void recur_back(const cuda::RecurrenceGradCall&) override { refuse(); }
  cuda::Fault* fault(const std::shared_ptr<const cuda::Refusal>&) override {
    refuse();
    return nullptr;
  }
  const std::uint64_t* step() const override { return &step_; }

  int launches = 0;

 private:
  static void refuse() { ADD_FAILURE() << "the kernel should only launch"; }
  std::uint64_t step_ = 0;
};

// The registered GPU kernel's y for x, run on the host.
Tensor by_gpu_kernel(const Tensor& x, const SwishOptions& options) {
  Graph graph;
  const Output y = swish(constant(graph, x), options);
  const std::vector<TensorType> types{{x.shape(), x.dtype()}};
  KernelPlan plan(y.node(), types, types, {0, x.elements()});
  const cuda::QueueRun run = registered()(plan);
  Tensor in = x, out(x.shape(), x.dtype());
  void* const inputs[] = {in.mutable_raw()};
  void* const outputs[] = {out.mutable_raw()};
  HostQueue queue;
  run(KernelPointers(inputs, outputs, nullptr, plan.range(), 0), queue);
  EXPECT_EQ(queue.launches, 1);
  return out;
}

TEST(OwnParts, OpKeepsItsContract) {
  check_op({.build = [](Inputs x) { return swish(x[0], {.beta = 1.5}); },
            .inputs = {random_values({5, 7})}});
}

TEST(OwnParts, OpRefusesWrongOptions) {
  expect_refused([](Inputs x) { return swish(x[0], {.beta = -1}); }, {{{2}, DType::kF32}},
                 "Swish 'Swish'");
}

TEST(OwnParts, GpuKernelHasTheBitsOfHosts) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
    for (const std::int64_t size : {1, 7, 1000}) {
      const Tensor x = to(random_values({size}, -20, 20), dtype);
      const auto build = [](Inputs in) { return swish(in[0], {.beta = 0.75}); };
      EXPECT_TRUE(by_gpu_kernel(x, {.beta = 0.75}) == compute(build, {x}))
          << name_of(dtype) << " of " << size;
    }
}

}  // namespace own_parts_test

// In place of that of the GPU module.
cuda::GpuKernel::GpuKernel(const Op& op, GpuPrepare prepare, bool takes_half) {
  EXPECT_EQ(&op, &kSwish);
  EXPECT_TRUE(takes_half);
  own_parts_test::registered() = prepare;
}

}  // namespace belfry
