// gpu_ops_tests: the tests of ops once more, with the kernels of the GPU module, run on the host,
// in place of Op::cpu. All are skipped where the module cannot be loaded. With --own_kernels,
// convolution and pooling are computed by kernels of ours, as where cuDNN refuses them.
#include <iostream>
#include <string_view>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "belfry/framework/gpus.h"
#include "belfry/tests/support/interpreter.h"

namespace {

using OnHost = void(belfry::KernelPlan&, bool own_kernels, belfry::KernelRun&);
OnHost* on_host = nullptr;
bool own_kernels = false;

belfry::KernelRun take(belfry::KernelPlan& plan) {
  belfry::KernelRun run;
  on_host(plan, own_kernels, run);
  return run;
}

class WithoutModule : public testing::Environment {
  void SetUp() override { GTEST_SKIP() << belfry::gpus().why_none(); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  own_kernels = argc > 1 && argv[1] == std::string_view("--own_kernels");
  if (!belfry::gpus().backend()) {
    testing::AddGlobalTestEnvironment(new WithoutModule);
    return RUN_ALL_TESTS();
  }
  void* const tests = dlopen(BELFRY_BIN_DIR "/../lib/libgpu_kernel_tests.so", RTLD_NOW);
  if (tests) on_host = reinterpret_cast<OnHost*>(dlsym(tests, "belfry_gpu_kernel_on_host"));
  if (!on_host) {
    std::cerr << "the kernels of the GPU module cannot be had: " << dlerror() << "\n";
    return 1;
  }
  belfry::set_kernel_source(take);
  return RUN_ALL_TESTS();
}
