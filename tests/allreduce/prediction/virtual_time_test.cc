#include "belfry/allreduce/prediction/virtual_time.h"

#include <gtest/gtest.h>

namespace belfry {
namespace virtual_time_test {

TEST(VirtualTime, RunnersWorkAtOnceAndJobsOfOneInTurns) {
  // Runner 1 waits for the first job of runner 0, and moves bytes after a fixed time.
  std::vector<TimedJob> jobs = {{.runner = 0, .fixed = 2},
                                {.runner = 0, .fixed = 4},
                                {.runner = 1, .deps = {0}, .fixed = 1, .bytes = 30, .rate = 10}};
  EXPECT_DOUBLE_EQ(run_jobs(jobs, {{.jobs = {0, 1}}, {.jobs = {2}}}), 6);
  EXPECT_DOUBLE_EQ(jobs[1].began, 2);
  EXPECT_DOUBLE_EQ(jobs[2].began, 2);
  EXPECT_DOUBLE_EQ(jobs[2].ended, 6);
}

TEST(VirtualTime, WorkersShareOneMemoryAndIdleOnesHelp) {
  const SharedMemory memory{.workers = 2, .one_rate = 10, .all_rate = 16};
  const std::vector<JobRunner> runners = {{.jobs = {0}, .worker = true},
                                          {.jobs = {1}, .worker = true}};
  std::vector<TimedJob> both = {{.runner = 0, .bytes = 80}, {.runner = 1, .bytes = 80}};
  EXPECT_DOUBLE_EQ(run_jobs(both, runners, memory), 10);
  std::vector<TimedJob> helped = {{.runner = 0, .bytes = 160, .shared = true}, {.runner = 1}};
  EXPECT_DOUBLE_EQ(run_jobs(helped, runners, memory), 10);
  std::vector<TimedJob> alone = {{.runner = 0, .bytes = 160}, {.runner = 1}};
  EXPECT_DOUBLE_EQ(run_jobs(alone, runners, memory), 16);
}

TEST(VirtualTime, JobsOfACircleNeverRun) {
  std::vector<TimedJob> jobs = {{.runner = 0, .deps = {1}, .fixed = 1},
                                {.runner = 1, .deps = {0}, .fixed = 1}};
  EXPECT_EQ(run_jobs(jobs, {{.jobs = {0}}, {.jobs = {1}}}), 0);
  EXPECT_EQ(jobs[0].began, -1);
}

}  // namespace virtual_time_test
}  // namespace belfry
