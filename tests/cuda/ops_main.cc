// gpu_ops_tests: the tests of ops with the GPU module's kernels in place of Op::cpu. They run on
// the GPU of $BELFRY_TEST_GPUS, or on the host, with blocks and threads in reverse; then in N - 1
// other orders, which must give the same bits (--orders=N, otherwise 2). All are skipped if the
// module cannot be loaded.
// With --own_kernels, kernels of ours compute convolution, pooling, attention and recurrences, as
// if cuDNN refused them.
#include <charconv>
#include <iostream>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/framework/graph/node.h"
#include "belfry/tests/support/gpu_runner.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/test_devices.h"

namespace {

using OnHost = void(belfry::KernelPlan&, bool own_kernels, int orders, belfry::KernelRun&);
using OwnKernel = void(belfry::KernelPlan&, belfry::GpuRun&);
OnHost* on_host = nullptr;
OwnKernel* own_kernel = nullptr;  // on a GPU
bool own_kernels = false;
int orders = 2;  // in which each kernel runs on the host

// Tests of gradients run a kernel many times, with other values: only the first time in all orders.
int orders_for(const belfry::KernelPlan& plan) {
  static std::set<std::string> seen;
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  if (test.test_suite_name() == std::string_view("AllReduceHook")) return 1;  // it counts runs
  std::string kernel = belfry::cat(test.test_suite_name(), ".", test.name(), " ", plan.op().name,
                                   plan.node().raw_options().str());
  for (std::size_t i = 0; i < plan.inputs(); ++i) kernel += " " + plan.input(i).str();
  for (std::size_t i = 0; i < plan.outputs(); ++i) kernel += " to " + plan.output(i).str();
  return seen.insert(std::move(kernel)).second ? orders : 1;
}

belfry::KernelRun take_on_host(belfry::KernelPlan& plan) {
  belfry::KernelRun run;
  on_host(plan, own_kernels, orders_for(plan), run);
  return run;
}

// cuDNN computes attention and recurrences only if the bits need not be the same each time.
bool needs_freedom(const belfry::KernelPlan& plan) {
  const std::string_view name = plan.op().name;
  return name.find("Attention") != name.npos || name.starts_with("Whole");
}

belfry::KernelRun take_on_gpu(belfry::KernelPlan& plan) {
  const belfry::GpuBackend& backend = *belfry::gpus().backend();
  static auto& runtime = *new belfry::test::GpuRunner(backend);  // CUDA may end before statics do
  belfry::GpuRun run;
  if (own_kernels)
    own_kernel(plan, run);
  else
    run = backend.prepare(0, plan, !needs_freedom(plan));
  testing::Test::RecordProperty("devices", "gpu");
  return run ? runtime.kernel(plan, std::move(run)) : belfry::KernelRun();
}

class WithoutModule : public testing::Environment {
  void SetUp() override { GTEST_SKIP() << belfry::gpus().why_none(); }
};

bool load_kernels() {
  void* const tests = dlopen(BELFRY_BIN_DIR "/../lib/libgpu_kernel_tests.so", RTLD_NOW);
  if (tests) {
    on_host = reinterpret_cast<OnHost*>(dlsym(tests, "belfry_gpu_kernel_on_host"));
    own_kernel = reinterpret_cast<OwnKernel*>(dlsym(tests, "belfry_own_gpu_kernel"));
  }
  if (on_host && own_kernel) return true;
  std::cerr << "the kernels of the GPU module cannot be had: " << dlerror() << "\n";
  return false;
}

// Takes one flag; false if it is none.
bool take(std::string_view flag) {
  constexpr std::string_view kOrders = "--orders=";
  if (flag == "--own_kernels") return own_kernels = true;
  if (!flag.starts_with(kOrders)) return false;
  const char* const end = flag.data() + flag.size();
  const auto [rest, error] = std::from_chars(flag.data() + kOrders.size(), end, orders);
  return error == std::errc() && rest == end && orders > 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (const char* argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1))
    if (!take(argument)) {
      std::cerr << argument << ": known are --own_kernels, --orders=N and those of GoogleTest\n";
      return 1;
    }
  try {
    if (belfry::test::test_gpus() > 0) {
      belfry::test::use_test_gpus();
      if (own_kernels && !load_kernels()) return 1;
      belfry::set_kernel_source(take_on_gpu);
      return RUN_ALL_TESTS();
    }
  } catch (const belfry::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  if (!belfry::gpus().backend()) {
    testing::AddGlobalTestEnvironment(new WithoutModule);
    return RUN_ALL_TESTS();
  }
  if (!load_kernels()) return 1;
  belfry::set_kernel_source(take_on_host);
  return RUN_ALL_TESTS();
}
