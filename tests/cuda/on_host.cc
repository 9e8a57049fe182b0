// The source of kernels for gpu_ops_tests, and what the module says of them.
#include "belfry/tests/cuda/host_queue.h"

extern "C" void belfry_gpu_kernel_on_host(belfry::KernelPlan& plan, bool own_kernels, int orders,
                                          belfry::KernelRun& run) {
  belfry::cuda::HostAlgorithms algorithms(own_kernels);
  auto kernel = belfry::cuda::prepare_gpu_kernel(plan, algorithms);
  if (kernel) run = belfry::cuda::in_orders(plan, std::move(kernel), orders);
}

extern "C" void belfry_gpu_kernels_of_ops(std::vector<const char*>& missing,
                                          std::vector<const belfry::Op*>& take_half) {
  missing = belfry::cuda::ops_without_gpu_kernel();
  take_half = belfry::cuda::ops_that_take_half();
}
