#include "belfry/trainers/runs/restart_times.h"

#include <fstream>

#include <gtest/gtest.h>

#include "belfry/tests/support/programs.h"

namespace belfry {
namespace restart_times_test {

std::int64_t newest_step(const std::string& text) {
  const std::string path = temporary_path(".jsonl");
  std::ofstream(path) << text;
  const std::int64_t step = newest_step_in(local_file_system(), path);
  local_file_system().remove(path);
  return step;
}

TEST(RestartTimes, ARunWasWhereItsLastWholeLineSays) {
  EXPECT_EQ(newest_step("{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n"), 2);
  EXPECT_EQ(newest_step("{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"lo"), 2) << "killed in a line";
  EXPECT_EQ(newest_step("{\"step\":1}\n{\"st\n"), 1) << "the machine went down";
  EXPECT_EQ(newest_step("{\"st"), 0);
  EXPECT_EQ(newest_step(""), 0);
  EXPECT_EQ(newest_step_in(local_file_system(), "/no/such/file"), 0);
  EXPECT_EQ(newest_step(std::string(2 << 20, ' ') + "\n{\"step\":7}\n"), 7) << "of a long file";
}

TEST(RestartTimes, AMarkIsATextForTheEnvironment) {
  EXPECT_EQ((RestartMark{.number = 3, .detection = 0.25, .started_at = 1796004365.5}.str()),
            "3 0.250 1796004365.500");
}

}  // namespace restart_times_test
}  // namespace belfry
