#include "belfry/trainers/util/busy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/threads.h"

namespace belfry {
namespace busy_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class F>
std::string logged(const F& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Busy, SaysWhatTakesLongUntilItEnds) {
  std::string seen;
  seen = logged([] {
    const Busy busy("planning 512 towers", std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  EXPECT_THAT(seen, HasSubstr("I still planning 512 towers, for 0 s\n"));
}

TEST(Busy, SaysNothingOfShortWork) {
  EXPECT_THAT(logged([] { const Busy busy("adding"); }), IsEmpty());
}

TEST(Busy, WorksInSilenceWhereNoThreadStarts) {
  set_thread_hook([](const ThreadUse&) {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_NO_THROW(Busy("adding", std::chrono::milliseconds(1)));
  set_thread_hook({});
}

}  // namespace busy_test
}  // namespace belfry
