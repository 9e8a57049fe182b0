// Shared by tests on the recorder.
#pragma once
#include "belfry/framework/device/gpus.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/recorder/recorder.h"

namespace belfry::recorder {

// Skips the test if the module cannot be loaded. Expects no violation, and that all has been freed
// except the handles that the module keeps.
class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpus().backend()) GTEST_SKIP() << gpus().why_none();
    recorder().reset();
    before_ = alive();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_THAT(recorder().violations(), ::testing::IsEmpty());
    EXPECT_EQ(alive(), before_);
  }
  // Allows the leaks so far.
  void allow_leaks() { before_ = alive(); }
  // All that is not freed, without the handles that the module keeps.
  static std::map<std::string, int> alive() {
    auto all = recorder().alive();
    std::erase_if(all, [](const auto& of) { return of.first.starts_with("handles"); });
    return all;
  }

 private:
  std::map<std::string, int> before_;
};

}  // namespace belfry::recorder
