#include "belfry/framework/base/log.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/before_log.h"

namespace belfry {
namespace log_test {

using ::testing::HasSubstr;

template <class F>
std::string printed(const F& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WritesOneLineWithItsLevelToStderr) {
  EXPECT_EQ(printed([] { log_info("a ", 1); }), "I a 1\n");
  EXPECT_EQ(printed([] { log_warning("b"); }), "W b\n");
  EXPECT_EQ(printed([] { log_error("c"); }), "E c\n");
}

TEST(Log, IsSilentBelowItsLevel) {
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
  EXPECT_TRUE(log_enabled(LogLevel::kInfo));
  EXPECT_EQ(printed([] { log_debug("hidden"); }), "");
}

TEST(Log, TakesBracesAsText) {
  EXPECT_EQ(printed([] { log_info("{} {0} %s {"); }), "I {} {0} %s {\n");
}

TEST(FirstTime, IsSoOncePerText) {
  EXPECT_TRUE(first_time_logged("log_test: a"));
  EXPECT_TRUE(first_time_logged("log_test: b"));
  EXPECT_FALSE(first_time_logged("log_test: a"));
}

TEST(BeforeLog, IsCalledBeforeEachLineWhileItLives) {
  EXPECT_EQ(printed([] {
              {
                const BeforeLog first([] { std::fputs("(1)", stderr); });
                const BeforeLog second([] { std::fputs("(2)", stderr); });
                log_info("a");
                log_debug("hidden");
              }
              log_info("b");
            }),
            "(1)(2)I a\nI b\n");
}

TEST(Log, LinesOfThreadsDoNotMix) {
  const std::string text = printed([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) log_info("0123456789");
      });
    for (std::thread& thread : threads) thread.join();
  });
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += "I 0123456789\n";
  EXPECT_EQ(text, expected);
}

}  // namespace log_test
}  // namespace belfry
