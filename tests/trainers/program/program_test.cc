#include "belfry/trainers/program/program.h"

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace program_test {

// The pages that the system makes while a list of 64 MiB is filled and freed.
long pages_of_a_long_list() {
  const auto made = [] {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const long before = made();
  const std::vector<char> list(64 << 20, 'x');
  return list.back() == 'x' ? made() - before : -1;
}

// Runs in a process of its own, so that other tests free memory as usual.
[[noreturn]] void fill_twice() {
  keep_freed_memory();
  const long first = pages_of_a_long_list();
  const long second = pages_of_a_long_list();
  std::_Exit(first > 0 && second * 10 < first ? 0 : 1);
}

TEST(Program, ThatOnlyPlansKeepsWhatItFrees) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have an allocator of their own";
  EXPECT_EXIT(fill_twice(), testing::ExitedWithCode(0), "");
}

TEST(Program, WithoutMemorySaysWhatToDo) {
  const std::string said = error_line(std::bad_alloc());
  EXPECT_THAT(said, testing::AllOf(testing::StartsWith("error: there is no memory left; use a "
                                                       "smaller batch, fewer shards or fewer "
                                                       "devices"),
                                   testing::Not(testing::HasSubstr("bad_alloc"))));
}

}  // namespace program_test
}  // namespace belfry
