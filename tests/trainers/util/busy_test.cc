#include "belfry/trainers/util/busy.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/threads.h"

namespace belfry {
namespace busy_test {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

template <class F>
std::string logged(const F& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Busy, SaysWhatTakesLongUntilItEnds) {
  std::atomic<int> lines = 0;
  const LogCopy copy([&](std::string_view) { ++lines; });
  const std::string seen = logged([&] {
    const Busy busy("planning 512 towers", 1ms);
    while (lines < 2) std::this_thread::sleep_for(1ms);
  });
  EXPECT_THAT(seen, testing::StartsWith("I still planning 512 towers, for "));
  EXPECT_THAT(seen, testing::EndsWith(" s\n"));
}

// It may stop at any point of its thread. A stop between two looks must not count as elapsed time.
TEST(Busy, SaysNothingOfShortWork) {
  EXPECT_THAT(logged([] {
                for (int i = 0; i < 4000; ++i) {
                  const auto end = std::chrono::steady_clock::now() + i % 1000 * 20ns;
                  const Busy busy("adding");
                  while (std::chrono::steady_clock::now() < end) continue;
                }
              }),
              IsEmpty());
}

TEST(Busy, WorksInSilenceWhereNoThreadStarts) {
  set_thread_hook([](const ThreadUse&) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_NO_THROW(Busy("adding", 1ms));
  set_thread_hook({});
}

}  // namespace busy_test
}  // namespace belfry
