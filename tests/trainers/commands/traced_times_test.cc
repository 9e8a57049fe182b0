#include "belfry/trainers/commands/traced_times.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace traced_times_test {

std::string event(const std::string& name, double begin, double time, int device = 0) {
  return cat(R"({"ph":"X","cat":"Op","name":"Op","pid":1,"tid":1,"ts":)", begin, R"(,"dur":)", time,
             R"(,"args":{"name":")", name, R"(","device":"CPU:)", device,
             R"(","phase":"forward"}},)", "\n");
}

TrainingWorkload plan_of(const std::vector<std::string>& names) {
  TrainingWorkload work{.batch = 1};
  for (const std::string& name : names) work.launches.push_back({.name = name});
  return work;
}

// Two shards of "a" beside each other, a gap, a fetch that the plan lacks, and "b".
TEST(TracedTimes, AddUpToTheTracedStep) {
  TrainingWorkload work = plan_of({"b", "a"});
  take_traced_times(
      event("a", 10, 20) + event("a", 15, 25) + event("fetch", 50, 5) + event("b", 60, 10), work);
  EXPECT_EQ(work.launches[0].name, "a");
  EXPECT_DOUBLE_EQ(work.launches[0].seconds, 30e-6);
  EXPECT_DOUBLE_EQ(work.launches[1].seconds, 30e-6);
}

TEST(TracedTimes, NeedOneDeviceAndAllLaunches) {
  TrainingWorkload work = plan_of({"a", "b"});
  EXPECT_THROW(take_traced_times("", work), InvalidArgument);
  EXPECT_THROW(take_traced_times(event("a", 0, 1) + event("b", 1, 1, 1), work), InvalidArgument);
  EXPECT_THROW(take_traced_times(event("a", 0, 1), work), InvalidArgument);
}

}  // namespace traced_times_test
}  // namespace belfry
