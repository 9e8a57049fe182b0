// For gpu_ops_tests, which takes its kernels from here.
#include "belfry/tests/cuda/host_queue.h"

extern "C" void belfry_gpu_kernel_on_host(belfry::KernelPlan& plan, belfry::KernelRun& run) {
  run = belfry::cuda::gpu_kernel_on_host(plan);
}
