#include "belfry/trainers/commands/local_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace local_processes_test {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Runs a script as two processes. Rank 1 fails as soon as there is a file up.
std::vector<ProcessEnd> run_script(const std::string& folder, const std::string& of_rank_0) {
  ForwardedSignals signals;
  const std::string script = cat("cd ", folder, "; if test $RANK = 0; then ", of_rank_0,
                                 "; fi; until test -e up; do sleep 0.01; done; exit 3");
  LocalProcesses processes({.command = {"sh", "-c", script},
                            .size = 2,
                            .log_directory = folder,
                            .heading = "test",
                            .patience = milliseconds(400)},
                           signals);
  return processes.finish();
}

// It holds the lock as a training does that writes a checkpoint.
TEST(LocalProcesses, AreNotKilledWhileTheyWrite) {
  const std::string folder = temporary_path(".logs");
  local_file_system().create_directory(folder);
  const std::vector<ProcessEnd> writes =
      run_script(folder, "exec flock $BELFRY_UNFINISHED_LOCK sh -c 'touch up; sleep 2'");
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0].how.code, 3);
  EXPECT_EQ(writes[1].rank, 0);
  EXPECT_EQ(writes[1].how.code, 0);
  EXPECT_FALSE(writes[1].made_to);
  EXPECT_THAT(local_file_system().list(folder), ElementsAre("rank_0.log", "rank_1.log", "up"));
  const std::vector<ProcessEnd> hangs = run_script(folder, "exec sleep 100");
  EXPECT_TRUE(hangs[1].made_to);
  remove_tree(local_file_system(), folder);
}

}  // namespace local_processes_test
}  // namespace belfry
