// log.txt on a disk that is full for a while.
#include "belfry/trainers/runs/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace run_log_test {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr char kLog[] = "/disk/log.txt";

std::string text_in(MemoryFileSystem& disk) {
  const std::vector<std::byte> bytes = disk.read(kLog);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The warning of the log after a step.
std::string told(RunLog& log) {
  const auto data = smooth_data(4);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4}, *data);
  testing::internal::CaptureStderr();
  log.after_step(trainer, {});
  return testing::internal::GetCapturedStderr();
}

TEST(RunLog, LosesNoLineOnADiskThatIsFullForAWhileAndSaysSo) {
  MemoryFileSystem disk("/disk");
  RunLog log(disk, kLog);
  log.open();
  log.line("one");
  EXPECT_EQ(told(log), "");
  disk.fail_at(0);
  log.line("two");
  EXPECT_THAT(told(log), HasSubstr("no space left on the disk; the next lines wait"));
  log.line("three");
  EXPECT_THAT(told(log), HasSubstr("/disk/log.txt is written again; no line was lost"));
  log.line("four");
  constexpr char kTime[] = "[-0-9]+ [:0-9]+ ";
  const std::string warning = cat(kTime, "W [^\n]+\n");
  EXPECT_THAT(text_in(disk), MatchesRegex(cat(kTime, "one\n", kTime, "two\n", warning, kTime,
                                              "three\n", warning, kTime, "four\n")));
}

TEST(RunLog, GoesOnBehindWhatIsThere) {
  MemoryFileSystem disk("/disk");
  testing::internal::CaptureStderr();
  for (const char* line : {"one", "two"}) {
    RunLog log(disk, kLog);
    log.open();
    log_warning(line);
  }
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(text_in(disk), MatchesRegex("[-0-9]+ [:0-9]+ W one\n[-0-9]+ [:0-9]+ W two\n"));
}

}  // namespace run_log_test
}  // namespace belfry
