// A program with too little memory or stack ends with an error that says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace memory_limit_test {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Runs a program with so many KiB of address space.
Finished limited(int kib, const std::string& arguments) {
  return run_program("sh", {"-c", cat("ulimit -c 0; ulimit -v ", kib, " && exec ", BELFRY_BIN_DIR,
                                      "/train_bench --devices=cpu:2 --batch_size=8 "
                                      "--num_batches=1 --num_warmup_batches=1 ",
                                      arguments)});
}

class MemoryLimit : public testing::TestWithParam<const char*> {};

// The limit grows in steps, from what the program needs to start to where it works.
TEST_P(MemoryLimit, EndsInAnErrorThatSaysWhatLacksMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more memory than can be limited";
  constexpr int kFirst = 64'000, kStep = 12'000, kMost = 400'000;
  int refused = 0;
  for (int kib = kFirst; kib < kMost; kib += kStep) {
    const Finished done = limited(kib, GetParam());
    if (done.status == 0) break;
    if (done.status == 127) continue;  // its libraries do not fit
    ++refused;
    ASSERT_EQ(done.status, 1) << kib << " KiB: " << done.errors;
    EXPECT_THAT(done.errors, HasSubstr("error: "));
    EXPECT_THAT(done.errors, Not(HasSubstr("bad_alloc"))) << kib;
    EXPECT_THAT(done.errors, Not(HasSubstr("error: Resource"))) << kib;
  }
  EXPECT_GE(refused, 3);
  EXPECT_EQ(limited(kMost, GetParam()).status, 0);
}

TEST(MemoryOfShards, IsToldToNeedFewerOfThem) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more memory than can be limited";
  const Finished done =
      limited(300'000, "--model=mlp --devices=cpu:1 --batch_size=256 --shards=256");
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("use a smaller batch, fewer devices or shards, or less data"));
}

TEST(StackLimit, IsAnErrorThatSaysHowMuchIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more stack";
  const auto limited_to = [](int kib) {
    return run_program("sh", {"-c", cat("ulimit -s ", kib, " && exec ", BELFRY_BIN_DIR,
                                        "/mnist --devices=cpu:2 --batch_size=8 --max_steps=1")});
  };
  const Finished refused = limited_to(64);
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.errors,
            "error: the stack may have 64 KiB, and needs at least 256; allow it more "
            "(ulimit -s 8192)\n");
  EXPECT_EQ(limited_to(256).status, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryLimit, testing::Values("--model=mnist", "--model=resnet20"),
                         [](const auto& test) { return std::string(test.param + 8); });

}  // namespace memory_limit_test
}  // namespace belfry
