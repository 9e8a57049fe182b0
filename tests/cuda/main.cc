// Runs the tests of the GPU module in libcuda_tests.so. If the module cannot be loaded, skips each
// of them.
#include <iostream>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"
#include "belfry/tests/cuda/test_names.h"

namespace belfry::test {
namespace {

class Skipped : public ::testing::Test {
  void TestBody() override { GTEST_SKIP() << gpus().why_none(); }
};

// False if the tests exist and cannot be loaded.
bool load_tests() {
  if (!gpus().backend()) {
    for (const auto& [suite, name] : cuda_test_names())
      ::testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                              []() -> ::testing::Test* { return new Skipped; });
    return true;
  }
  if (dlopen(BELFRY_BIN_DIR "/../lib/libcuda_tests.so", RTLD_NOW | RTLD_LOCAL)) return true;
  std::cerr << "the tests of the GPU module cannot be loaded: " << dlerror() << "\n";
  return false;
}

}  // namespace
}  // namespace belfry::test

int main(int argc, char** argv) {
  if (!belfry::test::load_tests()) return 1;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
