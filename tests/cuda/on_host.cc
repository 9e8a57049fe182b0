// The source of kernels for gpu_ops_tests.
#include "belfry/tests/cuda/host_queue.h"

extern "C" void belfry_gpu_kernel_on_host(belfry::KernelPlan& plan, bool own_kernels,
                                          belfry::KernelRun& run) {
  belfry::cuda::HostAlgorithms algorithms(own_kernels);
  run = belfry::cuda::gpu_kernel_on_host(plan, algorithms);
}
