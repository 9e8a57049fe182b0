// What the tests on the recorder share.
#pragma once
#include "belfry/framework/device/gpus.h"
#include "belfry/tests/framework/run/gpu_test_support.h"
#include "belfry/tests/recorder/recorder.h"

namespace belfry::recorder {

// Skips where the module cannot be loaded; expects that nothing was violated, and that all has been
// freed but the handles that the module keeps.
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
  // Until now.
  void allow_leaks() { before_ = alive(); }
  // But for the handles that the module keeps.
  static std::map<std::string, int> alive() {
    auto all = recorder().alive();
    std::erase_if(all, [](const auto& of) { return of.first.starts_with("handles"); });
    return all;
  }

 private:
  std::map<std::string, int> before_;
};

}  // namespace belfry::recorder
