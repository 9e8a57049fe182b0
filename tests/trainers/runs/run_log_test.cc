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
  constexpr char kTime[] = "[-0-9]+ [:0-9]+ [-+][0-9]+ ";
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
  EXPECT_THAT(text_in(disk), MatchesRegex("[-0-9]+ [:0-9]+ [-+][0-9]{4} W one\n"
                                          "[-0-9]+ [:0-9]+ [-+][0-9]{4} W two\n"));
}

TEST(RunLog, HasTheLinesFromBeforeItWasOpened) {
  MemoryFileSystem disk("/disk");
  RunLog log(disk, kLog);
  log.line("devices");
  EXPECT_FALSE(disk.exists(kLog)) << "nothing may be written yet";
  log.open();
  log.line("step 1");
  EXPECT_THAT(text_in(disk), MatchesRegex("[^\n]+ devices\n[^\n]+ step 1\n"));
}

TEST(RunLog, TriesALastTimeAndSaysWhatIsLost) {
  for (const bool stays_full : {false, true}) {
    MemoryFileSystem disk("/disk");
    RunLog log(disk, kLog);
    log.open();
    disk.fail_at(0);
    log.line("error: the last line");
    const std::function<void(MemoryFileSystem&)> full = [&](MemoryFileSystem& here) {
      here.at_call(0, full);
      throw IoError("no space left on the disk");
    };
    if (stays_full) disk.at_call(0, full);
    testing::internal::CaptureStderr();
    log.finish();
    const std::string told = testing::internal::GetCapturedStderr();
    MemoryFileSystem after = disk.again();
    EXPECT_EQ(text_in(after).find("the last line") == std::string::npos, stays_full);
    EXPECT_THAT(told, HasSubstr(stays_full ? "so its last lines are lost" : "no line was lost"));
  }
}

}  // namespace run_log_test
}  // namespace belfry
