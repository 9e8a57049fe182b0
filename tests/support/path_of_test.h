// Where a test writes files.
#pragma once
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"

namespace belfry {

// A name for files of the running test alone: tests of other suites, and other runs of the tests,
// may run at the same time. A death test, which runs in a process of its own, gets the same name.
inline std::string path_of_test(const std::string& ending) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  const bool is_death_test = !GTEST_FLAG_GET(internal_run_death_test).empty();
  // Short, as errors cut long names.
  const auto number =
      std::hash<std::string>()(cat(test.test_suite_name(), ".", test.name())) % 1'000'000'000;
  return cat(testing::TempDir(), "belfry_", is_death_test ? ::getppid() : ::getpid(), "_", number,
             ending);
}

}  // namespace belfry
