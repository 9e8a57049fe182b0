// Calls scripts/gpu_check. scripts/test rehearses the work that it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace gpu_check_test {

using testing::HasSubstr;

const std::string kScript = cat(BELFRY_SOURCE_DIR, "/scripts/gpu_check");

TEST(GpuCheck, SaysWhatCanBeSet) {
  const Finished done = run_program(kScript, {"--help"});
  EXPECT_EQ(done.status, 0) << done.errors;
  for (const char* what : {"LIMIT=", "LIMITS=", "PROCESSES=", "DEVICES=cpu", "bench.json"})
    EXPECT_THAT(done.output, HasSubstr(what));
}

// It refuses them before it builds or runs anything.
TEST(GpuCheck, RefusesStagesAndNumbersThatAreNone) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refusals{
      {{kScript, "build", "fly"}, "gpu_check: no stage fly; there are build gpu ops bench "},
      {{"LIMITS=fly=3", kScript, "gpu"}, "gpu_check: LIMITS: no stage fly; there are build "},
      {{"LIMITS=gpu=10 ops=1m", kScript, "gpu"}, "gpu_check: LIMITS: ops=1m is not a number"},
      {{"LIMITS=gpu", kScript, "gpu"}, "gpu_check: LIMITS: gpu=gpu is not a number"},
      {{"LIMIT=0", kScript, "gpu"}, "gpu_check: LIMIT=0 is not a number from 1 to 999999"},
      {{"PROCESSES=-1", kScript, "gpu"}, "gpu_check: PROCESSES=-1 is not a number from 1 to"}};
  for (const auto& [arguments, why] : refusals) {
    const Finished done = run_program("env", arguments);
    EXPECT_EQ(done.status, 2) << why;
    EXPECT_EQ(done.output, "") << why;
    EXPECT_THAT(done.errors, HasSubstr(why));
  }
}

}  // namespace gpu_check_test
}  // namespace belfry
